"""What must not change an estimate does not, and what must does."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from stillme.core.types import Estimate, Interval
from stillme.estimates import Edits, Scores, Settings, contrasts, estimate
from tests.estimates.worlds import ordinal, people, rows

pytestmark = pytest.mark.numeric

quick = Settings(factors=("race",))


def world(seed: int) -> tuple[Edits, Scores]:
    stream = np.random.default_rng(seed)
    values = ordinal(stream.normal(0.8, 0.7, (30, 1)) + stream.normal(0, 1, (30, 6)))
    values[stream.random(values.shape) < 0.1] = np.nan
    return rows(people("ABC", 10), values)


def limits(estimates: list[Estimate], rename: Callable[[str], str] = str) -> dict[tuple[str, ...], tuple[float, ...]]:
    return {
        (row.quantity, row.scope, rename(row.group)): (row.outcome.value, row.outcome.low, row.outcome.high)
        for row in estimates
        if isinstance(row.outcome, Interval)
    }


@pytest.mark.parametrize("seed", range(3))
def test_renaming_groups_renames_results_and_nothing_else(seed: int) -> None:
    edits, scores = world(seed)
    names = {"A": "zz", "B": "yy", "C": "xx"}
    renamed = replace(
        edits,
        portraits=tuple(
            replace(portrait, attributes={**portrait.attributes, "race": names[portrait.attributes["race"]]})
            for portrait in edits.portraits
        ),
    )
    before = limits(estimate(edits, [scores], quick), lambda group: names.get(group[:1], "") + group[1:])
    after = limits(estimate(renamed, [scores], quick))
    groups = [key for key in before if key[1] in ("group", "all", "contrast")]
    assert groups
    for key in groups:
        assert before[key][0] == pytest.approx(after[key][0])
        assert before[key][1:] == pytest.approx(after[key][1:])


@pytest.mark.parametrize("seed", range(3))
def test_a_constant_moves_means_and_leaves_contrasts(seed: int) -> None:
    edits, scores = world(seed)
    moved = replace(scores, axis="skin_delta_l", value=scores.value + 10)
    plain = replace(scores, axis="skin_delta_l")
    before, after = (limits(estimate(edits, [part], quick)) for part in (plain, moved))
    for key, values in before.items():
        if key[0] != "skin_delta_l":
            continue
        shift = 10.0 if key[1] in ("all", "group") else 0.0
        assert after[key] == pytest.approx(tuple(value + shift for value in values), abs=1e-9)


@pytest.mark.parametrize("seed", range(3))
def test_every_row_twice_is_no_more_evidence(seed: int) -> None:
    """The portrait is the unit: the same edits once more change neither a mean nor its interval."""
    edits, scores = world(seed)
    rows_twice = np.tile(np.arange(len(edits)), 2)
    twice = replace(
        edits,
        keys=[f"{edits.keys[row]}/{place}" for place, row in enumerate(rows_twice.tolist())],
        portrait=edits.portrait[rows_twice],
        prompt=edits.prompt[rows_twice],
        editor=edits.editor[rows_twice],
        arm=edits.arm[rows_twice],
        state=edits.state[rows_twice],
        image=[""] * len(rows_twice),
        seed=None if edits.seed is None else edits.seed[rows_twice],
    )
    doubled = replace(scores, value=scores.value[rows_twice], state=scores.state[rows_twice])
    before, after = limits(estimate(edits, [scores], quick)), limits(estimate(twice, [doubled], quick))
    for key, values in before.items():
        if key[0] == "race_change":
            assert after[key] == pytest.approx(values), key


def test_swapping_two_groups_turns_their_contrast_around() -> None:
    edits, scores = world(4)
    found = {
        (contrast.level, contrast.against): contrast.outcome
        for reference in ("A", "B")
        for contrast in contrasts(
            edits,
            [scores],
            replace(quick, reference={"race": reference}),
            against=("reference",),
            measures=("difference",),
            quantities=("race_change",),
        )
    }
    one, other = found["A", "B"], found["B", "A"]
    assert isinstance(one, Interval)
    assert isinstance(other, Interval)
    assert (one.value, one.low, one.high) == pytest.approx((-other.value, -other.high, -other.low))


def test_one_portrait_a_group_and_nothing_rated_have_reasons_and_no_numbers() -> None:
    values = np.array([[1.0, 2.0], [3.0, 4.0]])
    edits, scores = rows(people("AB", 1), values)
    for row in estimate(edits, [scores], quick):
        assert isinstance(row.outcome, Interval) == (row.scope == "all"), row
    edits, scores = rows(people("AB", 6), np.full((12, 2), np.nan))
    assert not any(isinstance(row.outcome, Interval) for row in estimate(edits, [scores], quick) if row.judge)
