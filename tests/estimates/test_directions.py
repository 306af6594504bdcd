"""Into what? The shift of a group towards another, against what the reader says of the unedited portraits."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from stillme.core.types import NotEstimable
from stillme.estimates.directions import Group, Shift, Tallies, shifts

pytestmark = pytest.mark.numeric

GROUPS = ("A", "B", "C", "D", "E", "F", "W")
PORTRAITS, PROMPTS = 12, 6
RIGHT, HABITUAL = 0.8, 0.5


def audited(rng: np.random.Generator, *, planted: float = 0.0) -> tuple[Tallies, list[Group]]:
    """An audit whose reader is right 80 % of the time; half of its errors are the same for a person every time."""
    kinds = len(GROUPS)
    labels = np.repeat(np.arange(kinds), PORTRAITS)
    habits = (labels + rng.integers(1, kinds, len(labels))) % kinds

    def read(shown: int, portrait: int) -> int:
        if rng.random() < RIGHT:
            return shown
        if rng.random() < HABITUAL and shown == labels[portrait]:
            return int(habits[portrait])
        return int((shown + rng.integers(1, kinds)) % kinds)

    edits, controls = np.zeros((len(labels), kinds)), np.zeros((len(labels), kinds))
    for portrait, label in enumerate(labels):
        for _ in range(PROMPTS):
            moved = label != kinds - 1 and rng.random() < planted
            edits[portrait, read(kinds - 1 if moved else int(label), portrait)] += 1
        for _ in range(2):
            controls[portrait, read(int(label), portrait)] += 1
    nothing = np.zeros(len(labels))
    tally = Tallies(
        editor="e",
        arm="baseline",
        judge="reader",
        axis="read_race",
        targets=GROUPS,
        read=edits,
        edits=nothing + PROMPTS,
        unsure=nothing,
        control_read=controls,
        controls=nothing + 2,
        control_unsure=nothing,
    )
    groups = [
        Group(name=name, members=labels == place, targets=tuple(other for other in GROUPS if other != name))
        for place, name in enumerate(GROUPS)
    ]
    return tally, [*groups, Group(name="not W", members=labels != kinds - 1, targets=("W",), pooled=True)]


def shifts_of(tally: Tallies, groups: list[Group]) -> list[Shift]:
    return shifts([tally], {tally.axis: groups}, np.arange(len(tally.edits)), 0.95)


def claims(audits: int, planted: float) -> tuple[float, float, float]:
    """How many audits claim any direction, the pooled one, and that of one group."""
    rng = np.random.default_rng(38)
    anything = pooled = alone = 0.0
    for _ in range(audits):
        made = shifts_of(*audited(rng, planted=planted))
        found = [shift.holm is not None and shift.holm <= 0.05 for shift in made]
        anything += any(found)
        pooled += found[-1]
        alone += np.mean([claim for claim, shift in zip(found, made, strict=True) if shift.target == "W"][:-1])
    return anything / audits, pooled / audits, alone / audits


def test_a_reader_that_errs_claims_no_direction_where_none_is_planted() -> None:
    anything, _, _ = claims(40, 0.0)
    assert anything <= 0.125  # 5 of 40: more has a chance below 5 % if one in twenty claims


def test_a_planted_direction_is_found_pooled_and_in_about_six_of_ten_single_groups() -> None:
    _, pooled, alone = claims(20, 0.3)
    assert pooled >= 0.95
    assert 0.4 <= alone <= 0.85


@pytest.mark.soak
def test_claims_are_nominal_in_thousands_of_audits(record_property: Callable[[str, object], None]) -> None:
    anything, _, _ = claims(2000, 0.0)
    _, pooled, alone = claims(500, 0.3)
    record_property("any claim without a direction", float(anything))
    record_property("30 % towards the reference, one group of 12", float(alone))
    assert anything <= 0.062  # 5 % and 2.5 standard errors
    assert pooled >= 0.95


def test_the_same_readings_before_and_after_are_no_shift_for_any_confusion() -> None:
    tally, groups = audited(np.random.default_rng(1))
    same = replace(tally, control_read=tally.read, controls=tally.edits)
    for shift in shifts_of(same, groups):
        assert shift.outcome.value == 0
        assert shift.outcome.low <= 0 <= shift.outcome.high
        assert shift.p == 1


def test_a_shift_is_attenuated_and_never_inflated() -> None:
    tally, groups = audited(np.random.default_rng(2), planted=0.3)
    pooled = shifts_of(tally, groups)[-1]
    assert 0.1 < pooled.outcome.value < 0.3
    assert pooled.outcome.value == pytest.approx(pooled.after - pooled.before)
    assert pooled.word == "larger than matters"


@pytest.mark.parametrize(
    ("unsure", "control", "reason"),
    [(0.3, 0.3, "cannot tell in 30%"), (0.15, 0.0, "more than 10 points apart"), (0.1, 0.05, "")],
)
def test_a_reader_that_often_cannot_tell_gives_no_number(unsure: float, control: float, reason: str) -> None:
    tally, groups = audited(np.random.default_rng(3))
    tally = replace(tally, unsure=unsure * tally.edits, control_unsure=control * tally.controls)
    outcome = shifts_of(tally, groups)[-1].outcome
    assert isinstance(outcome, NotEstimable) == bool(reason)
    if isinstance(outcome, NotEstimable):
        assert reason in outcome.reason


def test_one_portrait_or_none_gives_no_number_and_no_word() -> None:
    tally, groups = audited(np.random.default_rng(4))
    for count in (0, 1):
        members = np.arange(len(tally.edits)) < count
        (shift,) = shifts_of(tally, [replace(groups[-1], members=members)])
        assert isinstance(shift.outcome, NotEstimable)
        assert shift.word is None


def test_portraits_without_a_control_have_no_part() -> None:
    tally, groups = audited(np.random.default_rng(5))
    without = tally.controls.copy()
    without[:PORTRAITS] = 0
    lacking = [shift for shift in shifts_of(replace(tally, controls=without), groups) if shift.group == "A"]
    assert all(isinstance(shift.outcome, NotEstimable) for shift in lacking)


def test_edits_of_one_identity_are_one_unit() -> None:
    tally, groups = audited(np.random.default_rng(6), planted=0.5)
    blocks = np.arange(len(tally.edits)) // PORTRAITS
    found = shifts([tally], {tally.axis: groups}, blocks, 0.95)
    assert {shift.units for shift in found} == {1, len(GROUPS) - 1}
    assert all(shift.word is None for shift in found if shift.units == 1)
