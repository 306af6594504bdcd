"""Silence about some groups more than about others decides nothing."""

from __future__ import annotations

import csv
from dataclasses import replace
from pathlib import Path

import numpy as np

from stillme.core.types import Estimate
from stillme.estimates import RatingState, Settings, estimate, find_gaps
from stillme.estimates.headlines import Finding, abstentions, uneven
from stillme.findings.tables.estimates import write_tables

from .worlds import people, rows

by_race = Settings(factors=("race",))
PASSED = {"judge": {"race_change": "passed"}}


def unlike(silent: tuple[int, int]) -> list[Estimate]:
    """Everyone of A changed and no one of B; of each group's twenty edits a person, so many have no answer."""
    values = np.where(np.arange(24)[:, None] < 12, 5.0, 1.0) * np.ones((24, 20))
    edits, scores = rows(people("AB", 12), values)
    quiet = (np.arange(20) < np.repeat(silent, 12)[:, None]).ravel()
    state = np.where(quiet, RatingState.ABSTAINED, RatingState.RATED).astype(np.int32)
    return estimate(edits, [replace(scores, value=np.where(quiet, np.nan, scores.value), state=state)], by_race)


def changed(estimates: list[Estimate]) -> Finding:
    return next(found for found in find_gaps(estimates, PASSED, by_race) if found.quantity == "race_changed")


def test_even_silence_leaves_a_gap_its_word():
    for silent in ((0, 0), (10, 10), (2, 0)):
        found = changed(unlike(silent))
        assert (found.word, found.validity) == ("larger than matters", "")


def test_uneven_silence_takes_it_away_and_says_so():
    found = changed(unlike((8, 1)))
    assert (found.word, found.p) == (None, None)
    assert found.validity == "uneven: no answer for 40% of A, 5% of B"


def test_abstentions_are_counted_by_group_and_written():
    shares = {row.group: row.share for row in abstentions(unlike((8, 1))) if row.quantity == "race_changed"}
    assert shares == {"A": 0.4, "B": 0.05}
    assert not uneven(unlike((3, 1)))


def test_the_table_names_those_that_are_uneven(tmp_path: Path):
    (table,) = [path for path in write_tables(unlike((8, 1)), tmp_path, by_race) if path.name == "abstentions.csv"]
    with table.open(encoding="utf-8", newline="") as stream:
        lines = [row for row in csv.DictReader(stream) if row["quantity"] == "race_changed"]
    assert [(row["group"], row["abstained"], row["share"]) for row in lines] == [
        ("A", "96", "0.4"),
        ("B", "12", "0.05"),
    ]
    assert all(row["note"].startswith("uneven") for row in lines)
