"""Edits that judges dispute are listed for people, the worst first."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from stillme.api.pipeline import run_stages
from tests.records import rows_in

Write = Callable[..., Path]
JUDGES = """
use = "scripted"
name = "mild"
parameters = {{ scores = {{ edit_success = 4, race_change = 1 }} }}
[[judges]]
use = "scripted"
name = "stern"
parameters = {{ scores = {{ edit_success = {success}, race_change = {race} }} }}
"""


def rows(folder: Path, name: str) -> list[dict[str, str]]:
    return rows_in(folder / "tables" / "judges" / name)


def test_what_judges_dispute_is_listed_with_what_each_said(write_audit: Write):
    folder = write_audit(judge=JUDGES.format(success=3, race=3))
    run_stages(folder, ("edit", "judge", "estimate"))
    listed = rows(folder, "flagged.csv")
    assert {row["priority"] for row in listed} == {"medium"}
    assert {row["axis"] for row in listed} == {"race_change"}
    assert {(row["judge"], row["score"]) for row in listed} == {("mild", "1"), ("stern", "3")}
    assert len(listed) == 12 * 2
    shares = {row["measure"]: row["value"] for row in rows(folder, "agreement.csv") if row["axis"] == "edit_success"}
    assert (shares["exact"], shares["within_one"]) == ("0", "1")


def test_judges_who_agree_leave_nothing_to_people(write_audit: Write):
    folder = write_audit(judge=JUDGES.format(success=4, race=2))
    run_stages(folder, ("edit", "judge", "estimate"))
    assert rows(folder, "flagged.csv") == []


def test_a_single_judge_has_nobody_to_agree_with(write_audit: Write):
    folder = write_audit()
    run_stages(folder, ("edit", "judge", "estimate"))
    assert not (folder / "tables" / "judges").exists()
