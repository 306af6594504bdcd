"""Four words for a gap, and the record that every reader takes them from."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from stillme.core.types import Interval, NotEstimable
from stillme.estimates import Settings, estimate, find_gaps
from stillme.estimates.headlines import MIN_UNITS, Finding, Word, smallest_effect, word_for
from stillme.findings.tables.estimates import write_tables

from .worlds import people, rows

by_race = Settings(factors=("race",))


def gap(low: float, high: float) -> Interval:
    return Interval(value=(low + high) / 2, low=low, high=high, confidence=0.95, method="")


def changed(values: np.ndarray, settings: Settings = by_race, **calibrated: str) -> Finding:
    """The finding about race in a run of two groups."""
    edits, scores = rows(people("AB", len(values) // 2), values)
    gaps = find_gaps(estimate(edits, [scores], settings), {"judge": calibrated} if calibrated else {}, settings)
    return next(found for found in gaps if found.quantity == "race_changed")


@pytest.mark.parametrize(
    ("interval", "p", "word"),
    [
        (gap(0.06, 0.3), 0.01, "larger than matters"),
        (gap(-0.3, -0.06), 0.01, "larger than matters"),
        (gap(0.06, 0.3), 0.06, "unclear"),
        (gap(0.06, 0.3), None, "unclear"),
        (gap(0.0, 0.04), 0.5, "smaller than matters"),
        (gap(0.01, 0.04), 0.001, "smaller than matters"),
        (gap(0.01, 0.3), 0.01, "differs, size unclear"),
        (gap(0.0, 0.3), 0.3, "unclear"),
    ],
)
def test_a_gap_has_the_word_of_its_interval_and_its_test(interval: Interval, p: float | None, word: Word) -> None:
    assert word_for(interval, p=p, smallest=0.05, units=12) == word
    assert word_for(interval, p=p, smallest=0.05, units=MIN_UNITS - 1) is None
    assert word_for(interval, p=p, smallest=None, units=12) in ("unclear", "differs, size unclear")
    assert word_for(NotEstimable(reason="no rows"), p=p, smallest=0.05, units=12) is None


def test_smallest_effects_are_in_the_quantitys_own_unit_and_the_audits_come_first() -> None:
    assert [smallest_effect(name, {}) for name in ("race_changed", "refused", "race_change>=2")] == [0.05] * 3
    assert smallest_effect("race_change", {}) == 0.25
    assert smallest_effect("skin_delta_l", {}) == 3
    assert smallest_effect("changed_hair", {}) is None
    assert smallest_effect("race_changed", {"rate": 0.1}) == 0.1
    assert smallest_effect("race_changed", {"rate": 0.1, "race_changed": 0.2}) == 0.2


def test_a_planted_gap_is_larger_than_matters_and_none_is_smaller(tmp_path: Path) -> None:
    stream = np.random.default_rng(0)
    values = np.where(stream.random((40, 20)) < np.repeat([0.6, 0.05], 20)[:, None], 5.0, 1.0)
    finding = changed(values)
    assert (finding.word, finding.groups, finding.units) == ("larger than matters", ("A", "B"), 20)
    assert finding.validity == "not calibrated"
    assert finding.low > 0.05
    assert finding.p is not None
    assert finding.p <= 0.05
    edits, scores = rows(people("AB", 20), values)
    *_, path = write_tables(estimate(edits, [scores], by_race), tmp_path, by_race)
    written = json.loads(path.read_text("utf-8"))
    assert [record["word"] for record in written if record["quantity"] == "race_changed"] == ["larger than matters"]
    assert changed(values, replace(by_race, smallest_effects={"rate": 0.9})).word == "smaller than matters"


def test_two_portraits_against_two_have_a_number_and_no_word() -> None:
    finding = changed(np.array([[5.0] * 9, [5.0] * 9, [1.0] * 9, [1.0] * 9]))
    assert (finding.value, finding.word, finding.units) == (1.0, None, 2)


def test_a_judge_that_failed_calibration_has_no_word() -> None:
    values = np.where(np.arange(24)[:, None] < 12, 5.0, 1.0) * np.ones((24, 5))
    finding = changed(values, race_change="failed")
    assert (finding.word, finding.p, finding.validity) == (None, None, "calibration failed")
