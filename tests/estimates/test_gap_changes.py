"""Which gaps an editor has that another has not."""

from __future__ import annotations

import numpy as np
import pytest

from stillme.estimates import GapChanges, Settings, gap_changes
from tests.estimates.worlds import people, rows

pytestmark = pytest.mark.numeric

ARMS = ("first", "second")
quick = Settings(factors=("race",))


def two_editors(shift: float, seed: int = 0, noise: float = 0.5) -> np.ndarray:
    """Twelve portraits of each of four races; under the second editor race A scores higher by `shift`."""
    stream = np.random.default_rng(seed)
    portrait = stream.normal(0, 1, (48, 1, 1))
    values = portrait + stream.normal(0, 1, (48, 10, 2)) + stream.normal(0, noise, (48, 1, 2))
    values[:12, :, 1] += shift
    return values


def changes(values: np.ndarray) -> GapChanges:
    edits, scores = rows(people("ABCD", 12), values, arms=ARMS, axis="skin_delta_l")
    (change,) = gap_changes(edits, [scores], quick, arm="second", against="first", quantities=["skin_delta_l"])
    return change


def test_a_gap_that_appears_is_found_at_its_size() -> None:
    change = changes(two_editors(2.0))
    assert change.verdict == "grew"
    clearest = change.clearest
    assert "A" in (clearest.one, clearest.other)
    assert clearest.outcome.low < 2.0 < clearest.outcome.high
    assert change.largest.low > 0


def test_a_gap_that_disappears_shrank_and_one_that_turns_is_reversed() -> None:
    values = two_editors(2.0, noise=0.1)
    assert changes(values[:, :, ::-1]).verdict == "shrank"
    values[:12, :, 0] -= 2.0
    assert changes(values).verdict == "reversed"


def test_noise_of_one_editor_is_no_gap() -> None:
    found = [changes(two_editors(0.0, seed, noise=2.0)).verdict for seed in range(12)]
    assert found.count("unclear") >= 10


def test_swapping_the_editors_turns_every_change_around() -> None:
    values = two_editors(1.0)
    there, back = changes(values), changes(values[:, :, ::-1])
    for one, other in zip(there.pairs, back.pairs, strict=True):
        assert (one.one, one.other) == (other.one, other.other)
        assert one.outcome.value == pytest.approx(-other.outcome.value)
        assert (one.outcome.low, one.p) == pytest.approx((-other.outcome.high, other.p))


def test_a_constant_for_every_edit_changes_nothing() -> None:
    values = two_editors(1.0)
    there, higher = changes(values), changes(values + 7.0)
    for one, other in zip(there.pairs, higher.pairs, strict=True):
        assert (one.outcome.low, one.outcome.high) == pytest.approx((other.outcome.low, other.outcome.high))


def test_rates_that_never_change_have_no_verdict_and_no_false_certainty() -> None:
    edits, scores = rows(people("AB", 6), np.ones((12, 4, 2)), arms=ARMS)
    (change,) = gap_changes(edits, [scores], quick, arm="second", against="first", quantities=["race_changed"])
    assert change.verdict == "unclear"
    assert change.largest.high > 0.2


def test_many_portraits_give_what_sign_flips_give() -> None:
    stream = np.random.default_rng(5)
    values = stream.normal(0, 1, (1100, 1, 2))
    values[:550, :, 1] += 0.2
    edits, scores = rows(people("AB", 550), values, arms=ARMS, axis="skin_delta_l")
    (large,) = gap_changes(edits, [scores], quick, arm="second", against="first")[-1:]
    pair = large.pairs[0]
    changed = values[:, 0, 1] - values[:, 0, 0]
    error = np.sqrt(changed[:550].var(ddof=1) / 550 + changed[550:].var(ddof=1) / 550)
    assert (pair.outcome.high - pair.outcome.low) / 2 / error == pytest.approx(1.96, abs=0.08)


def wholly(per_level: int, levels: str = "AB") -> GapChanges | None:
    """Under the second editor every edit of A is a fault; all others never are."""
    values = np.ones((per_level * len(levels), 5, 2))
    values[:per_level, :, 1] = 5.0
    edits, scores = rows(people(levels, per_level), values, arms=ARMS)
    found = gap_changes(edits, [scores], quick, arm="second", against="first", quantities=["race_changed"])
    return found[0] if found else None


@pytest.mark.parametrize("levels", ["AB", "ABCD"])
@pytest.mark.parametrize("per_level", range(2, 16))
def test_a_whole_group_that_changes_has_limits_from_five_units_on(per_level: int, levels: str) -> None:
    change = wholly(per_level, levels)
    if per_level < 5:
        assert change is None
        return
    assert {pair.p for pair in change.pairs} == {None}, "no unit differs from the others, so there is no p"
    for pair in change.pairs:
        assert pair.outcome.high - pair.outcome.low > 1 / per_level**2, "what was not seen may still happen"


def test_a_measure_without_bounds_that_no_portrait_spreads_says_nothing_of_a_change() -> None:
    for shift in (0.0, 2.0):
        values = np.zeros((24, 5, 2))
        values[:12, :, 1] = shift
        edits, scores = rows(people("AB", 12), values, arms=ARMS, axis="skin_delta_l")
        assert gap_changes(edits, [scores], quick, arm="second", against="first", quantities=["skin_delta_l"]) == []


def test_groups_that_change_in_the_same_blocks_have_a_gap_with_limits_around_no_change() -> None:
    """The paired differences do not vary at all; this once divided by 0."""
    values = np.ones((24, 5, 2))
    values[[3, 15], 0, 1] = 5.0
    edits, scores = rows(people("AB", 12, blocks=True), values, arms=ARMS)
    (change,) = gap_changes(edits, [scores], quick, arm="second", against="first", quantities=["race_changed"])
    (pair,) = change.pairs
    assert (change.verdict, pair.outcome.value, pair.p) == ("unclear", 0, None)
    assert pair.outcome.low < -0.01 < 0.01 < pair.outcome.high
