"""All editors together, as the paper tests: the pairs stay pairs of one editor, and the portrait can be the unit."""

from __future__ import annotations

import numpy as np
import pytest

from stillme.core.types import Interval
from stillme.estimates import (
    PairedEffect,
    Settings,
    estimate,
    paired_effects,
    paired_row_tests,
    row_tests,
)
from tests.estimates import worlds

pytestmark = pytest.mark.numeric

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
    assert isinstance(pooled.outcome, Interval)
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
    (gap,) = [
        row
        for row in estimate(edits.pooled(), [score], SETTINGS)
        if (row.quantity, row.scope) == ("race_change", "disparity")
    ]
    assert (naive.editor, gap.editor, naive.edits, naive.naive) == ("all", "all", 14 * 20 * 3, True)
    assert naive.p is not None
    null = getattr(gap, "null", None)
    assert null is not None
    assert naive.p < 0.001 < 0.05 < null.omnibus
