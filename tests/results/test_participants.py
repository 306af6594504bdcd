"""Who took part is kept as counts in which nobody can be found."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stillme.core.errors import StillmeError
from stillme.findings.tables.paper.people import table_17
from stillme.findings.tables.paper.table import Count
from stillme.runs import participants
from stillme.runs.participants import FEWEST, MISSING, RARE, summarised, suppressed


@given(st.dictionaries(st.text(min_size=1), st.integers(1, 40), max_size=8))
def test_only_answers_of_fewer_than_five_are_merged_and_none_of_them_is_named(counts: dict[str, int]) -> None:
    kept = suppressed(counts | {MISSING: 2})
    assert sum(kept.values()) == sum(counts.values()) + 2 - counts.get(MISSING, 0)
    named = {name: count for name, count in counts.items() if count >= FEWEST and name not in (MISSING, RARE)}
    assert {name: count for name, count in kept.items() if name not in (MISSING, RARE)} == named
    assert kept[MISSING] == 2


def people(count: int, **attributes: str) -> list[dict[str, str]]:
    return [{"Age": str(20 + place), **attributes} for place in range(count)]


def test_groups_of_five_the_missing_and_the_age_range_are_kept() -> None:
    rows = [*people(20, Sex="Female"), *people(7, Sex="Male"), *people(1, Sex="Prefer not to say"), *people(3, Sex="")]
    summary = summarised("s", rows, ["Sex"], "Age")
    assert summary.attributes == {"Sex": {"Female": 20, "Male": 7, RARE: 1, MISSING: 3}}
    assert (summary.count, summary.age_low, summary.age_high) == (31, 20, 39)
    assert "(range 20–39)" in "".join(table_17([summary]).notes)
    assert "Prefer not to say" not in "".join(row.label for row in table_17([summary]).rows)


def test_too_few_people_are_not_described_at_all() -> None:
    with pytest.raises(StillmeError, match="too few to describe"):
        summarised("s", people(4, Sex="Female"), ["Sex"], "Age")


def test_a_study_replaces_its_own_counts_and_table_17_shows_all(tmp_path: Path) -> None:
    for study, count in (("one", 6), ("two", 9), ("one", 8)):
        participants.add(tmp_path, summarised(study, people(count, Sex="Female"), ["Sex"], "Age"))
    kept = participants.read(tmp_path)
    assert {entry.study: entry.count for entry in kept} == {"one": 8, "two": 9}
    table = table_17(kept)
    assert [cell.value for row in table.rows for cell in row.cells if isinstance(cell, Count)] == [9, 9, 8, 8]
    ages = {f"age_{part}" for part in ("mean", "sd", "low", "high")}
    assert set(json.loads((tmp_path / participants.FILE).read_text())[0]) == {"study", "count", "attributes", *ages}
