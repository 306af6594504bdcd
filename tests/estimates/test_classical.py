"""The paper's own tests, row by row."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from scipy import stats

from stillme.estimates import Settings, row_tests

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
