"""Four words for a gap; silence about some groups more than about others takes them away where it could explain it."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stillme.core.types import Estimate, Interval, NotEstimable
from stillme.estimates import RatingState, Settings, estimate, find_gaps
from stillme.estimates.estimating import Disparity
from stillme.estimates.headlines import MIN_UNITS, Finding, Word, smallest_effect, uneven, word_for
from stillme.estimates.quantities import Floats
from stillme.estimates.rows import Flags
from stillme.findings.tables.estimates import write_tables
from tests.records import rows_in

from .worlds import people, rows

by_race = Settings(factors=("race",))
PASSED = {"judge": {"race_change": "passed"}}


def judged(values: Floats, quiet: Flags, groups: str = "AB") -> list[Estimate]:
    """Twelve people of each group with so many edits each, of which the quiet ones have no answer."""
    edits, scores = rows(people(groups, 12), values)
    silent = quiet.ravel()
    state = np.where(silent, RatingState.ABSTAINED, RatingState.RATED).astype(np.int32)
    return estimate(edits, [replace(scores, value=np.where(silent, np.nan, scores.value), state=state)], by_race)


def unlike(silent: tuple[int, int]) -> list[Estimate]:
    """Everyone of A changed and no one of B; of each group's twenty edits a person, so many have no answer."""
    values = np.where(np.arange(24)[:, None] < 12, 5.0, 1.0) * np.ones((24, 20))
    return judged(values, np.arange(20) < np.repeat(silent, 12)[:, None])


def changed(estimates: list[Estimate]) -> Finding:
    return next(found for found in find_gaps(estimates, PASSED, by_race) if found.quantity == "race_changed")


@pytest.mark.parametrize(
    ("silent", "word", "validity"),
    [
        *(((count, other), "larger than matters", "") for count, other in ((0, 0), (10, 10), (2, 0))),
        ((18, 1), None, "uneven: no answer for 90% of A, 5% of B"),
        ((8, 1), "larger than matters", "uneven: no answer for 40% of A, 5% of B"),
    ],
)
def test_uneven_silence_takes_a_gap_its_word_where_missing_answers_could_close_it(silent, word, validity):
    found = changed(unlike(silent))
    assert (found.word, found.validity) == (word, validity)
    assert found.word or not found.decides


def test_silence_about_the_unchanged_of_one_group_accuses_no_one():
    """Half of everyone's edits changed, but only those of A that changed have an answer: 100 % against 50 %."""
    values = np.where(np.arange(20) < 10, 5.0, 1.0) * np.ones((24, 20))
    found = changed(judged(values, (values < 3) & (np.arange(24)[:, None] < 12)))
    assert (found.value, found.word) == (pytest.approx(0.5), None)
    assert (found.p or 1) < 0.01


def test_a_mean_without_bounds_on_what_is_missing_decides_nothing():
    (mean,) = [row for row in unlike((8, 1)) if isinstance(row, Disparity) and row.quantity == "race_change"]
    assert mean.sure is None


def test_a_finding_among_three_groups_tells_of_the_two_it_names():
    """C's few answers prove nothing; the gap between A and B stands, and the finding has its numbers."""
    values = np.repeat([[4.0] * 8 + [1.0] * 2, [1.0] * 10, [4.0] * 10], 12, axis=0)
    quiet = np.arange(10) < np.repeat([0, 0, 9], 12)[:, None]
    found = changed(judged(values, quiet, "ABC"))
    assert (found.groups, found.word) == (("A", "B"), "larger than matters")
    assert found.value == pytest.approx(0.8)
    assert 0.1 < found.low < 0.8 < found.high < 1


@given(seed=st.integers(0, 2**32 - 1), quiet=st.floats(0, 0.9))
def test_the_sure_gap_holds_whatever_the_missing_answers_were(seed: int, quiet: float):
    generator = np.random.default_rng(seed)
    rates = np.repeat(generator.random(2), 12)[:, None]
    values = np.where(generator.random((24, 6)) < rates, 5.0, 1.0)
    silent = generator.random((24, 6)) < quiet * np.repeat(generator.random(2), 12)[:, None]
    gap = next(row for row in judged(values, silent) if isinstance(row, Disparity) and row.quantity == "race_changed")
    if gap.sure is None:
        return
    (a, b) = (values[:12] > 3).mean(), (values[12:] > 3).mean()
    truth = a - b if gap.sure.highest == "A" else b - a
    assert gap.sure.interval.low <= truth <= gap.sure.interval.high


def test_the_table_names_those_that_are_uneven(tmp_path: Path):
    (table,) = [path for path in write_tables(unlike((8, 1)), tmp_path, by_race) if path.name == "abstentions.csv"]
    lines = [row for row in rows_in(table) if row["quantity"] == "race_changed"]
    assert [(row["group"], row["abstained"], row["share"]) for row in lines] == [
        ("A", "96", "0.4"),
        ("B", "12", "0.05"),
    ]
    assert all(row["note"].startswith("uneven") for row in lines)
    assert not uneven(unlike((3, 1)))


def gap(low: float, high: float) -> Interval:
    return Interval(value=(low + high) / 2, low=low, high=high, confidence=0.95, method="")


def worded(values: np.ndarray, settings: Settings = by_race, **calibrated: str) -> Finding:
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
    finding = worded(values)
    assert (finding.word, finding.groups, finding.units) == ("larger than matters", ("A", "B"), 20)
    assert finding.validity == "not calibrated"
    assert finding.low > 0.05
    assert finding.p <= 0.05
    edits, scores = rows(people("AB", 20), values)
    *_, path = write_tables(estimate(edits, [scores], by_race), tmp_path, by_race)
    written = json.loads(path.read_text("utf-8"))
    assert [record["word"] for record in written if record["quantity"] == "race_changed"] == ["larger than matters"]
    assert worded(values, replace(by_race, smallest_effects={"rate": 0.9})).word == "smaller than matters"


def test_two_portraits_against_two_have_a_number_and_no_word() -> None:
    finding = worded(np.array([[5.0] * 9, [5.0] * 9, [1.0] * 9, [1.0] * 9]))
    assert (finding.value, finding.word, finding.units) == (1.0, None, 2)


def test_a_judge_that_failed_calibration_has_no_word() -> None:
    values = np.where(np.arange(24)[:, None] < 12, 5.0, 1.0) * np.ones((24, 5))
    finding = worded(values, race_change="failed")
    assert (finding.word, finding.p, finding.validity) == (None, None, "calibration failed")
