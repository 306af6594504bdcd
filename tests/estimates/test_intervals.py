"""What every interval must keep: it never has a width of nothing, and what it depends on is what it should."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from itertools import combinations, pairwise

import numpy as np
import pytest
from scipy.special import stdtrit

from stillme.core.types import Interval
from stillme.estimates import Disparity, Edits, Scores, Settings, estimate, paired_effects
from stillme.estimates.intervals import ICC_FLOOR, quantile, t_quantile, wilson

from .worlds import crossed_people, ordinal, people, rows

pytestmark = pytest.mark.numeric

FAULT, FINE = 5.0, 1.0
by_race = Settings(factors=("race",))


def rate(edits: Edits, scores: Scores, group: str, settings: Settings = by_race, quantity: str = "race_changed"):
    found, *_ = [row for row in estimate(edits, [scores], settings) if (row.quantity, row.group) == (quantity, group)]
    assert isinstance(found.outcome, Interval)
    return found.outcome


def null(edits: Edits, scores: Scores):
    """What chance makes of the gap between races on the one quantity."""
    (found,) = [row for row in estimate(edits, [scores], by_race) if isinstance(row, Disparity) and row.judge]
    assert found.null is not None
    return found.null


def faults(hits: list[int], prompts: int = 20) -> np.ndarray:
    """So many faults of each portrait."""
    return np.where(np.arange(prompts) < np.array(hits)[:, None], FAULT, FINE)


def test_a_rate_has_the_limits_of_the_formula() -> None:
    hits = np.array([0, 1, 2, 9, 1, 0, 3, 1, 0, 2, 12, 1] + [1] * 12)
    edits, scores = rows(people("AB", 12), faults(hits.tolist()))
    share, edits_of_a = hits[:12].sum() / 240, 240
    variance = 12 / 11 * (((hits[:12] - share * 20) / edits_of_a) ** 2).sum()
    effect = edits_of_a * variance / (share * (1 - share))
    other = hits[12:].sum() / 240
    pooled = edits_of_a**2 * variance / (edits_of_a * (share * (1 - share) + other * (1 - other)))
    assert effect > max(pooled, 1 + 19 * ICC_FLOOR)
    size, t = max(12, edits_of_a / effect), t_quantile(0.975, 11)
    centre = (share + t**2 / (2 * size)) / (1 + t**2 / size)
    half = t * math.sqrt(share * (1 - share) / size + t**2 / (4 * size**2)) / (1 + t**2 / size)
    found = rate(edits, scores, "A")
    assert (found.low, found.high) == pytest.approx((centre - half, centre + half))


def test_one_more_fault_never_lowers_the_upper_limit() -> None:
    by_number: list[tuple[float, ...]] = []
    for faulty in range(6):
        hits = [0] * 84
        for place in range(faulty):
            hits[13 * place] = 1
        edits, scores = rows(crossed_people(), faults(hits))
        by_number.append(tuple(rate(edits, scores, group).high for group in ("", "A")))
    assert by_number[0][0] < 0.05, "an editor without a fault in 1,680 edits can pass"
    for fewer, more in pairwise(by_number):
        assert fewer[0] <= more[0]
    assert by_number[0][1] <= by_number[1][1]


@pytest.mark.parametrize("axis", ["race_change", "skin_tone", "edit_success", "age_change"])
@pytest.mark.parametrize("score", [1.0, 2.0, 3.0, 4.0, 5.0])
@pytest.mark.parametrize("per_level", [2, 12])
def test_equal_scores_are_no_certainty(axis: str, score: float, per_level: int) -> None:
    edits, scores = rows(
        people("AB", per_level), np.full((2 * per_level, 2, 2), score), axis=axis, arms=("baseline", "feature")
    )
    for settings in (by_race, replace(by_race, prompts="sample")):
        found = [*estimate(edits, [scores], settings), *paired_effects(edits, [scores], settings)]
        for row in found:
            if isinstance(row.outcome, Interval) and row.judge:
                assert row.outcome.high - row.outcome.low > 0.001, row


def test_two_portraits_against_two_have_wide_limits() -> None:
    edits, scores = rows(people("AB", 2), np.repeat([[1.0], [2.0]], 2, axis=0))
    gap = rate(edits, scores, "A - rest", quantity="race_change")
    assert gap.low < -1 < 0 < gap.high


def unrated(values: np.ndarray, more: int) -> np.ndarray:
    """As many portraits more of each of two groups, without a score."""
    half = len(values) // 2
    none = np.full((more, values.shape[1]), np.nan)
    return np.concatenate([values[:half], none, values[half:], none])


def test_portraits_without_a_score_change_no_p_value() -> None:
    values = np.random.default_rng(3).normal(0, 1, (12, 4))
    values[:6] += 1.0
    for more in (0, 3, 30):
        edits, scores = rows(people("AB", 6 + more), unrated(values, more), axis="skin_delta_l")
        found = null(edits, scores)
        if not more:
            alone = found
        assert found == alone


def studentised(one: Sequence[float], other: Sequence[float]) -> float:
    """The test's statistic, for two groups, written down from the formula."""
    variances = [np.var(side, ddof=1) for side in (one, other)]
    if min(variances) == 0:
        squares = sum(((np.array(side) - np.mean(side)) ** 2).sum() for side in (one, other))
        variances = [squares / (len(one) + len(other) - 2)] * 2
    return float((np.mean(one) - np.mean(other)) ** 2 / (variances[0] / len(one) + variances[1] / len(other)))


@pytest.mark.parametrize(("one", "other"), [((0, 1), (2, 3, 7)), ((0, 2), (1, 3, 4)), ((1, 4), (0, 9, 9.5))])
def test_of_few_rated_portraits_the_p_value_is_the_exact_one(one: Sequence[float], other: Sequence[float]) -> None:
    """Once .0021 where .20 was exact: portraits without a score were permuted too."""
    every = [*one, *other]
    reached = [
        studentised([every[place] for place in chosen], [every[place] for place in range(5) if place not in chosen])
        >= studentised(one, other) - 1e-9
        for chosen in combinations(range(5), 2)
    ]
    values = np.full((80, 1), np.nan)
    values[:2, 0], values[40:43, 0] = one, other
    edits, scores = rows(people("AB", 40), values, axis="skin_delta_l")
    found = null(edits, scores)
    assert found.omnibus == sum(reached) / 10
    assert found.smallest_p >= 0.1


def test_a_gate_at_the_true_mean_of_nearly_equal_scores_rarely_passes() -> None:
    """Once in .20 of audits, and .80 of intervals covered: where no spread was seen, none was believed."""
    audits, covered, passed = 100, 0, 0
    for seed in range(audits):
        stream = np.random.default_rng(seed)
        edits, scores = rows(people("AB", 12), np.where(stream.random((24, 20)) < 0.015, 5.0, 1.0))
        mean = rate(edits, scores, "A", quantity="race_change")
        covered += mean.low <= 1.06 <= mean.high
        passed += mean.high < 1.06
    # Three standard errors of 100 audits: 6.5 points of .95, 4.7 of .025.
    assert covered >= 89
    assert passed <= 7


def test_names_and_rows_that_are_there_twice_change_nothing() -> None:
    stream = np.random.default_rng(4)
    values = ordinal(stream.normal(0.8, 0.7, (84, 1)) + stream.normal(0, 1, (84, 5)))
    edits, scores = rows(crossed_people(), values)
    settings = Settings(factors=("race", "gender"))
    plain = estimate(edits, [scores], settings)
    twice = np.tile(np.arange(len(edits)), 2)
    doubled = replace(
        edits,
        keys=[edits.keys[row] for row in twice],
        portrait=edits.portrait[twice],
        prompt=edits.prompt[twice],
        editor=edits.editor[twice],
        arm=edits.arm[twice],
        state=edits.state[twice],
        image=[""] * len(twice),
        seed=None,
    )
    assert estimate(doubled, [replace(scores, value=scores.value[twice], state=scores.state[twice])], settings) == plain
    renamed = replace(edits, portraits=tuple(replace(p, id=f"z{place}") for place, p in enumerate(edits.portraits)))
    limits = [[row.outcome for row in found] for found in (plain, estimate(renamed, [scores], settings))]
    assert limits[0] == limits[1]


def test_what_identities_share_is_no_gap_between_ages_or_genders() -> None:
    audits, found = 60, {"age": 0, "gender": 0}
    for seed in range(audits):
        stream = np.random.default_rng(seed)
        shared = np.tile(stream.normal(0, 1, 12), 7)[:, None]
        edits, scores = rows(crossed_people(), shared + stream.normal(0, 1, (84, 5)), axis="skin_delta_l")
        for row in estimate(edits, [scores], Settings(factors=("race", "gender", "age"))):
            if isinstance(row, Disparity) and row.judge and row.factor in found:
                found[row.factor] += row.null.omnibus <= 0.05
    # Three standard errors of 60 audits are 8 points; with portraits as units half of the audits find an age gap.
    assert max(found.values()) / audits < 0.14


def test_a_group_that_varies_more_does_not_differ() -> None:
    audits, found = 100, 0
    for seed in range(audits):
        stream = np.random.default_rng(seed)
        values = stream.normal(0, 1, (32, 2))
        values[:8] *= 6
        edits, scores = rows(people("ABCD", 8), values, axis="skin_delta_l")
        found += null(edits, scores).omnibus <= 0.05
    assert found / audits < 0.12


def test_wilson_of_independent_answers_is_wilsons() -> None:
    assert wilson(0.1, 50, 0.95) == pytest.approx((0.0434754, 0.2136023), abs=1e-6)


VARIED = [0, 0, 1, 2, 3, 4, 5, 6, 7, 9, 11, 13]
RARE = [0] * 6 + [1] * 4 + [2] * 2
MORE = [0, 0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 3]


def test_the_interval_of_a_difference_is_skewed_as_the_rare_rate_is() -> None:
    """A group with few faults may have many more, but hardly fewer; Student's interval is symmetric."""
    edits, scores = rows(people("ABCDEFG", 12), faults(RARE + 6 * MORE))
    group, difference = rate(edits, scores, "A"), rate(edits, scores, "A - rest")
    assert difference.high - difference.value > 1.3 * (difference.value - difference.low)
    assert difference.high - difference.value == pytest.approx(group.high - group.value, rel=0.1)


def test_a_difference_of_two_rates_or_means_turns_around_with_its_sides() -> None:
    settings = replace(by_race, reference={"race": "B"})
    edits, scores = rows(people("AB", 12), faults(RARE + VARIED))
    for quantity in ("race_changed", "race_change"):
        found = rate(edits, scores, "A - B", settings, quantity)
        turned = rate(edits, scores, "B - A", replace(settings, reference={"race": "A"}), quantity)
        assert (found.low, found.value, found.high) == pytest.approx((-turned.high, -turned.value, -turned.low))


def test_what_the_people_of_a_set_share_cancels_in_a_difference_of_rates() -> None:
    first, second = VARIED, [min(20, hits + extra) for hits, extra in zip(VARIED, [1, 2] * 6, strict=True)]
    together = rows(people("AB", 12, blocks=True), faults(second + first))
    apart = rows(people("AB", 12), faults(second + first))
    widths = [found.high - found.low for found in (rate(*both, "A - rest") for both in (together, apart))]
    assert widths[0] < widths[1] / 3


LEVELS = (0.025, 0.3, 0.5, 0.9, 0.975, 0.995, 1 - 0.025 / 21, 1 - 0.025 / 91)
"""The last two are those of all pairs of 7 and of 14 groups."""


@pytest.mark.parametrize("probability", LEVELS)
def test_quantiles_of_whole_degrees_of_freedom_are_scipys(probability: float):
    for freedom in (*range(1, 120), 251, 503, 999, 1_000, 1679, 5038):
        assert quantile(probability, freedom) == pytest.approx(float(stdtrit(freedom, probability)), rel=1e-12, abs=0)


def test_other_degrees_of_freedom_and_the_normal_are_scipys():
    for freedom in (0.5, 1.7, 11.25, 83.5, 20_000, math.inf):
        assert quantile(0.975, freedom) == pytest.approx(float(stdtrit(freedom, 0.975)), rel=1e-12)
