"""Difference and ratio, their intervals and their tests."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from stillme.estimates import Contrast, Settings, benjamini_hochberg, contrasts, estimate, holm

from .worlds import known, ordinal, people, rows

quick = Settings(factors=("race",))


def one(rows: list[Contrast], quantity: str, measure: str, group: str) -> Contrast:
    (match,) = [row for row in rows if (row.quantity, row.measure, row.group) == (quantity, measure, group)]
    return match


def test_every_measure_is_what_its_name_says() -> None:
    stream = np.random.default_rng(0)
    values = ordinal(stream.normal(0.8, 1, (36, 7)))
    edits, scores = rows(people("ABC", 12), values)
    compared = contrasts(
        edits, [scores], replace(quick, reference={"race": "C"}), against=("reference", "rest", "pairs")
    )
    a, rest = values[:12].ravel(), values[12:].ravel()
    assert known(one(compared, "race_change", "difference", "A - rest")).value == pytest.approx(a.mean() - rest.mean())
    ratio = known(one(compared, "race_changed", "ratio", "B - rest"))
    others = np.concatenate([values[:12], values[24:]])
    assert ratio.value == pytest.approx((values[12:24] >= 3).mean() / (others >= 3).mean())
    assert {contrast.group for contrast in compared if contrast.against == "B"} == {"A - B"}


def test_the_difference_has_the_interval_of_the_estimates() -> None:
    values = ordinal(np.random.default_rng(1).normal(0.8, 1, (48, 6)))
    edits, scores = rows(people("ABCD", 12), values)
    table = {(e.quantity, e.group): e.outcome for e in estimate(edits, [scores], quick) if e.scope == "contrast"}
    compared = contrasts(edits, [scores], quick, against=("rest",), measures=("difference",))
    assert compared
    assert all(table[contrast.quantity, contrast.group] == contrast.outcome for contrast in compared)


def test_a_ratio_to_nothing_is_not_estimable_and_of_nothing_is_zero() -> None:
    values = np.full((24, 10), 1.0)
    values[:12, ::2] = 5.0
    edits, scores = rows(people("AB", 12), values)
    ratios = contrasts(edits, [scores], quick, against=("pairs", "rest"), measures=("ratio",))
    never = one(ratios, "race_changed", "ratio", "A - rest")
    assert "the rate of the other side is 0" in never.outcome.reason
    zero = known(one(ratios, "race_changed", "ratio", "B - rest"))
    assert zero.value == zero.low == 0
    assert 0.05 < zero.high < 1


def test_a_contrast_does_not_depend_on_which_others_are_asked_for() -> None:
    stream = np.random.default_rng(6)
    values = ordinal(stream.normal(0.8, 1, (84, 6)))
    # Portraits rated unequally often, and one quantity with a gap: its tests go on when the others stop.
    values[stream.random(values.shape) < 0.1] = np.nan
    values[:12] += 1
    edits, scores = rows(people("ABCDEFG", 12), np.minimum(values, 5))
    asked = replace(quick, reference={"race": "G"})
    together = contrasts(edits, [scores], asked, against=("reference", "rest", "pairs"))
    for kind in ("reference", "rest", "pairs"):
        for quantity in ("race_change", "race_changed"):
            alone = contrasts(edits, [scores], asked, against=(kind,), quantities=[quantity])
            assert alone
            assert all(contrast in together for contrast in alone)


def test_without_an_effect_tests_find_one_in_a_twentieth_of_audits_and_naive_ones_in_most() -> None:
    from stillme.estimates import row_tests

    audits, single, any_pair, naive = 60, 0.0, 0, 0
    for seed in range(audits):
        stream = np.random.default_rng(seed)
        latent = stream.normal(0.3, 1, (48, 1)) + stream.normal(0, 1, (48, 20))
        edits, scores = rows(people("ABCD", 12), ordinal(latent))
        compared = contrasts(
            edits, [scores], quick, against=("pairs",), measures=("difference",), quantities=("race_change",)
        )
        tests = [contrast.permutation for contrast in compared if contrast.permutation]
        assert len(tests) == 6
        assert all(test.p <= test.holm for test in tests)
        single += np.mean([test.p <= 0.05 for test in tests])
        any_pair += min(test.holm for test in tests) <= 0.05
        naive += row_tests(edits, [scores], quick)[0].p <= 0.05
    # Three standard errors of 60 audits are 8 points.
    assert single / audits < 0.12
    assert any_pair / audits < 0.14
    assert naive / audits > 0.6


def test_a_planted_pair_is_found_and_named() -> None:
    stream = np.random.default_rng(5)
    latent = stream.normal(0, 0.5, (36, 1)) + stream.normal(0, 1, (36, 20))
    latent[:12] += 1.5
    edits, scores = rows(people("ABC", 12, blocks=True), ordinal(latent))
    compared = contrasts(
        edits, [scores], quick, against=("pairs",), measures=("difference",), quantities=("race_change",)
    )
    tests = {contrast.group: contrast.permutation for contrast in compared}
    assert tests["A - B"].holm < 0.01
    assert tests["A - C"].holm < 0.01
    assert tests["B - C"].p > 0.05


def test_in_small_data_the_permutation_test_is_the_exact_one() -> None:
    stream = np.random.default_rng(8)
    values = stream.normal(0, 1, (10, 1))
    values[:5] += 1.0
    edits, scores = rows(people("AB", 5), values, axis="skin_delta_l")
    compared = contrasts(edits, [scores], quick, against=("pairs",), measures=("difference",))
    (test,) = [contrast.permutation for contrast in compared if contrast.quantity == "skin_delta_l"]
    exact = stats.permutation_test(
        (values[:5, 0], values[5:, 0]),
        lambda x, y: (x.mean() - y.mean()) / math.sqrt(x.var(ddof=1) + y.var(ddof=1)),
        n_resamples=np.inf,
    ).pvalue
    assert test.p == pytest.approx(exact)
    assert test.holm == test.p


def test_a_test_that_cannot_reject_leaves_the_family() -> None:
    assert holm([0.01, 0.5], [0.001, 0.5]) == [0.01, 1.0]
    assert holm([0.01, 0.5]) == [0.02, 0.5]


@given(st.lists(st.floats(0, 1), min_size=1, max_size=30))
def test_adjusted_p_values_are_scipys_and_those_of_closed_testing(p: list[float]) -> None:
    assert benjamini_hochberg(p) == pytest.approx(stats.false_discovery_control(p).tolist())
    # Holm is Bonferroni's test of every set of hypotheses that holds this one; of each size the hardest set counts.
    for own, adjusted in zip(p, holm(p), strict=True):
        others = sorted(p, reverse=True)
        others.remove(own)
        hardest = [min(1.0, (size + 1) * min([own, *others[:size]])) for size in range(len(p))]
        assert adjusted == pytest.approx(max(hardest))


def test_coverage_of_every_measure_is_near_nominal() -> None:
    audits, covered = 60, dict.fromkeys(("difference", "ratio"), 0)
    spread = math.hypot(0.7, 1.0)
    chances = [
        np.diff([0, *(stats.norm.cdf(cut, shift, spread) for cut in (0, 0.7, 1.4, 2.1)), 1]) for shift in (1.0, 0.5)
    ]
    group, rest = chances
    truth = {"difference": (group - rest) @ np.arange(1, 6), "ratio": group[2:].sum() / rest[2:].sum()}
    for seed in range(audits):
        stream = np.random.default_rng(seed)
        latent = 0.5 + stream.normal(0, 0.7, (48, 1)) + stream.normal(0, 1, (48, 20))
        latent[:12] += 0.5
        edits, scores = rows(people("ABCD", 12), ordinal(latent))
        compared = contrasts(edits, [scores], quick, against=("rest",), quantities=("race_change", "race_changed"))
        for measure, quantity in (("difference", "race_change"), ("ratio", "race_changed")):
            limits = known(one(compared, quantity, measure, "A - rest"))
            covered[measure] += limits.low <= truth[measure] <= limits.high
    for measure, count in covered.items():
        assert count / audits > 0.86, measure
