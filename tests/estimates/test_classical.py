"""The paper's own tests, row by row, of one editor and of all together: pairs stay pairs of one editor."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from scipy import stats

from stillme.estimates import PairedEffect, Settings, estimate, paired_effects, paired_row_tests, row_tests
from tests.estimates import worlds

from .worlds import people, rows

race = Settings(factors=("race",))


@hypothesis_settings(max_examples=30)
@given(data=st.data())
def test_every_test_equals_scipy_on_data_with_ties_and_gaps(data: st.DataObject) -> None:
    score = st.one_of(st.just(float("nan")), st.integers(1, 5).map(float))
    values = np.array(data.draw(st.lists(score, min_size=30, max_size=30))).reshape(15, 2)
    edits, scores = rows(people("ABC", 5), values)
    groups = [part[~np.isnan(part)] for part in (values[:5].ravel(), values[5:10].ravel(), values[10:].ravel())]
    present = [part for part in groups if len(part)]
    tests = {test.group: test for test in row_tests(edits, [scores], race)}
    if len(present) < 2 or np.ptp(np.concatenate(present)) == 0:
        assert all(test.p is None and test.reason for test in tests.values())
        return
    kruskal = stats.kruskal(*present)
    assert (tests[""].statistic, tests[""].p) == (kruskal.statistic, kruskal.pvalue)
    if len(groups[0]) and len(groups[1]) + len(groups[2]):
        whitney = stats.mannwhitneyu(groups[0], np.concatenate(groups[1:]))
        assert (tests["A - rest"].statistic, tests["A - rest"].p) == (whitney.statistic, whitney.pvalue)


def test_a_test_is_naive_only_where_a_portrait_comes_twice() -> None:
    values = np.random.default_rng(0).normal(0, 1, (24, 3))
    edits, scores = rows(people("AB", 12), values, axis="skin_delta_l")
    assert all(test.naive for test in row_tests(edits, [scores], race))
    once = edits.prompt == 0
    single = row_tests(edits.where(once), [scores.where(once)], race)
    assert not any(test.naive for test in single)
    assert {(test.portraits, test.edits) for test in single} == {(24, 24)}


def test_a_reference_is_compared_with_besides_the_rest() -> None:
    values = np.random.default_rng(1).normal(0, 1, (36, 1))
    edits, scores = rows(people("ABC", 12), values, axis="skin_delta_l")
    tests = row_tests(edits, [scores], replace(race, reference={"race": "B"}))
    assert [test.group for test in tests] == ["", "A - rest", "A - B", "B - rest", "C - rest", "C - B"]
    assert tests[2].p == stats.mannwhitneyu(values[:12, 0], values[12:24, 0]).pvalue


SETTINGS = Settings(factors=("race",))
EDITORS = ("one", "two", "three")


def test_pooled_pairs_are_the_pairs_of_every_editor():
    stream = np.random.default_rng(2)
    values = stream.integers(1, 6, (14, 4, 2, 1, 3)).astype(np.float64)
    values[0, 0, 1, 0, 0] = np.nan
    edits, score = worlds.rows(worlds.people("AB", 7), values, arms=("baseline", "feature"), editors=EDITORS)
    (pooled,) = [
        effect
        for effect in paired_effects(edits, [score], SETTINGS, quantities=["race_change"], pool=True)
        if isinstance(effect, PairedEffect) and effect.scope == "all"
    ]
    assert pooled.editor == "all"
    assert pooled.edits == 14 * 4 * 3 - 1, "averaged over editors there would be 56 pairs"
    change = values[:, :, 1] - values[:, :, 0]
    assert pooled.outcome.value == pytest.approx(np.nanmean(change))
    (test,) = paired_row_tests(edits, [score], pool=True)
    assert (test.editor, test.edits, test.naive) == ("all", 14 * 4 * 3 - 1, True)


def test_pooled_rows_keep_two_editors_edits_of_one_request_apart():
    values = np.random.default_rng(4).integers(1, 6, (14, 4, 2, 1, 3)).astype(np.float64)
    edits, score = worlds.rows(worlds.people("AB", 7), values, arms=("baseline", "feature"), editors=EDITORS)
    (test,) = paired_row_tests(edits.pooled(), [score])
    (together,) = paired_row_tests(edits, [score], pool=True)
    assert (test.edits, test.p) == (14 * 4 * 3, pytest.approx(together.p))


def test_pooled_tests_are_naive_and_the_portrait_stands_beside_them():
    """No race differs, but people do: the paper's test sees a gap, the one over portraits does not."""
    stream = np.random.default_rng(9)
    # Four of one race change and three of the other.
    person = np.array([3.0] * 4 + [0.0] * 3 + [3.0] * 3 + [0.0] * 4)
    values = np.clip(1 + person[:, None, None, None, None] + stream.integers(0, 2, (14, 20, 1, 1, 3)), 1, 5)
    edits, score = worlds.rows(worlds.people("AB", 7), values, editors=EDITORS)
    (naive,) = [test for test in row_tests(edits.pooled(), [score], SETTINGS) if test.test == "Kruskal–Wallis"]
    found = {row.scope: row for row in estimate(edits.pooled(), [score], SETTINGS) if row.quantity == "race_change"}
    gap = found["disparity"]
    assert found["all"].outcome.value == pytest.approx(values.mean())
    assert (naive.editor, gap.editor, naive.edits, naive.naive) == ("all", "all", 14 * 20 * 3, True)
    null = getattr(gap, "null", None)
    assert naive.p < 0.001 < 0.05 < null.omnibus
