"""One door for Prolific, MTurk and a class: parameters of the address, codes by outcome, decisions to paste back.

Who took part is kept as counts in which nobody can be found.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stillme.core.errors import StillmeError
from stillme.findings.tables.paper.people import table_17
from stillme.findings.tables.paper.table import Count
from stillme.runs import participants
from stillme.runs.participants import FEWEST, MISSING, RARE, summarised, suppressed
from stillme.study import config
from stillme.study.app import build
from stillme.study.assignment import exclude
from stillme.study.drawing import PLATFORMS
from stillme.study.entry import platform_hash
from stillme.study.submissions import DECISIONS, apply_statuses, describe
from tests.records import rows_in
from tests.study.conftest import Served


def changed(served: Served, **settings: object) -> Served:
    """The same study with other settings."""
    study = replace(served.study, config=served.study.config.model_copy(update=settings))
    return Served(study, build(study), served.password)


def recruited(served: Served, platform: str) -> Served:
    codes = config.Codes(completed="DONE1", returned="BACK1", other="OTHER1")
    return changed(served, recruiting=PLATFORMS[platform].model_copy(update={"codes": codes}))


def exported(folder: Path, rows: list[dict[str, str]]) -> Path:
    file = folder / "export.csv"
    with file.open("w", newline="") as stream:
        writer = csv.DictWriter(stream, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
    return file


# -- codes ------------------------------------------------------------------------------------------------------------


def test_the_code_is_on_the_page_and_only_at_the_end(served: Served) -> None:
    browser = served.browser().enter("one").to_rating()
    assert "DONE1" not in browser.page()
    browser.hand_in()
    assert '<code id="completion-code">DONE1</code>' in browser.page()
    assert "Return to Prolific" in browser.page()
    left = browser.ask("GET", "/finish").headers["location"]
    assert left == "https://app.prolific.com/submissions/complete?cc=DONE1"


def test_too_many_wrong_tries_at_the_training_end_with_the_code_for_that(serve: Callable[..., Served]) -> None:
    served = serve(extra='screened_out = "OUT1"\n')
    served = changed(served, checks=config.Checks(training_tries=2))
    browser = served.browser().enter("one").to_training()
    data, csrf = browser.data()
    wrong = {"answers": [[[5] * len(data["items"][0]["questions"]) for _ in data["items"][0]["pictures"][1:]]]}
    assert not browser.api("POST", "/api/training", wrong, csrf).json()["finished"]
    assert browser.api("POST", "/api/training", wrong, csrf).json()["finished"]
    page = browser.page()
    assert "OUT1" in page
    assert browser.ask("GET", "/finish").headers["location"].endswith("cc=OUT1")
    assert served.column("SELECT state FROM slot WHERE participant IS NOT NULL") == ["void"]
    # Others may still try as often as they like in a study without that limit.
    patient = serve().browser().enter("one").to_training()
    data, csrf = patient.data()
    for _ in range(5):
        assert not patient.api("POST", "/api/training", wrong, csrf).json()["finished"]


# -- other platforms --------------------------------------------------------------------------------------------------


def test_an_mturk_worker_enters_by_mturks_parameters_and_copies_the_code(served: Served, tmp_path: Path) -> None:
    served = recruited(served, "mturk")
    preview = served.browser().ask("GET", "/enter?workerId=A1&assignmentId=ASSIGNMENT_ID_NOT_AVAILABLE&hitId=H1")
    assert (preview.status_code, "accept the task on MTurk first" in preview.text) == (403, True)
    assert served.browser().ask("GET", "/enter?workerId=A1&hitId=H1").status_code == 403
    worker = served.browser()
    assert worker.ask("GET", "/enter?workerId=A1&assignmentId=B1&hitId=H1").status_code == 303
    worker.to_rating()
    worker.hand_in()
    page = worker.page()
    assert "Please enter this code on MTurk" in page
    assert "Prolific" not in page
    last = worker.ask("GET", "/finish")
    assert (last.status_code, "DONE1" in last.text) == (200, True)
    rows = [{"WorkerId": "A1", "AssignmentId": "B1", "AssignmentStatus": "Submitted"}]
    applied = apply_statuses(served.study, exported(tmp_path, rows))
    assert applied.decisions == {"approve": 1}
    rows[0]["AssignmentStatus"] = "Approved"
    assert apply_statuses(served.study, exported(tmp_path, rows)).done == {"ids deleted": 1}


def test_a_class_enters_with_one_parameter_and_only_the_own_browser_resumes(served: Served) -> None:
    served = recruited(served, "class")
    student = served.browser()
    assert student.ask("GET", "/enter?student=ada.l-1@uni.example").status_code == 303
    student.to_rating()
    student.save(student.answers())
    # Names of students are no secret: whoever knows one gets nothing with it.
    assert served.browser().ask("GET", "/enter?student=ada.l-1@uni.example").status_code == 403
    assert student.ask("GET", "/enter?student=ada.l-1@uni.example").status_code == 303
    student.complete()
    assert "enter this code on your course" in student.page()


# -- decisions --------------------------------------------------------------------------------------------------------


def test_decisions_approve_work_and_reject_only_missed_attention_checks(served: Served, tmp_path: Path) -> None:
    served.browser().take_part("good")
    served.browser().take_part("disliked")
    served.browser().guess("careless")
    served.browser().enter("half").to_rating()
    with served.study.database.writing() as connection:
        for pid, reason in (("careless", "attention"), ("disliked", "odd screen")):
            known = platform_hash(served.study, pid)
            who = connection.value("SELECT id FROM participant WHERE ext_hmac = ?", (known,))
            exclude(connection, who, reason, 0.0)
    rows = [
        {"Participant id": pid, "Submission id": f"s{pid}", "Status": "AWAITING REVIEW"}
        for pid in ("good", "disliked", "careless", "half", "stranger")
    ]
    applied = apply_statuses(served.study, exported(tmp_path, rows))
    assert applied.decisions == {"approve": 2, "reject": 1, "ask to return": 2}
    file = served.study.folder / DECISIONS
    assert (applied.file, file.stat().st_mode & 0o777) == (file, 0o600)
    decided = {row["Participant id"]: row for row in rows_in(file)}
    assert {pid for pid, row in decided.items() if row["Approve"]} == {"good", "disliked"}
    assert decided["careless"]["Reject"].startswith("You missed 2 of 2 attention checks")
    assert "did the work: odd screen" in decided["disliked"]["Note"]
    assert "not finished here" in decided["half"]["Note"]


def test_a_file_that_is_no_export_is_refused(served: Served, tmp_path: Path) -> None:
    with pytest.raises(StillmeError, match="lacks the columns of an export"):
        apply_statuses(served.study, exported(tmp_path, [{"name": "x"}]))


def export(path: Path, names: list[str]) -> Path:
    with path.open("w", newline="") as stream:
        writer = csv.writer(stream)
        writer.writerow(["Submission id", "Participant id", "Status", "Age", "Sex", "Ethnicity simplified"])
        for place, name in enumerate(names):
            writer.writerow(
                [f"s{name}", name, "APPROVED", 30 + place, "Female", ["White", "CONSENT_REVOKED"][place % 2]]
            )
    return path


def test_only_raters_who_finished_are_counted_and_nobody_is_named(serve: Callable[..., Served], tmp_path: Path) -> None:
    served = serve(tasks=3, per_task=1, raters=2, checks=False)
    names = [f"pid{number}" for number in range(6)]
    for name in names:
        served.browser().take_part(name)
    served.browser().enter("pid9")
    described = describe(served.study, export(tmp_path / "export.csv", [*names, "pid9", "stranger"]), tmp_path)
    assert (described.count, described.age_mean) == (6, 32.5)
    assert described.attributes["Sex"] == {"Female": 6}
    assert described.attributes["Ethnicity simplified"] == {participants.RARE: 3, participants.MISSING: 3}
    kept = (tmp_path / participants.FILE).read_text()
    assert not any(name in kept for name in names)


@pytest.mark.parametrize("text", ["", "Participant id\np1\n", "Age\n3\n"])
def test_another_file_is_one_sentence(serve: Callable[..., Served], tmp_path: Path, text: str) -> None:
    (tmp_path / "export.csv").write_text(text)
    with pytest.raises(StillmeError, match="Name a demographic export from Prolific"):
        describe(serve().study, tmp_path / "export.csv", tmp_path)


@given(st.dictionaries(st.text(min_size=1), st.integers(1, 40), max_size=8))
def test_only_answers_of_fewer_than_five_are_merged_and_none_of_them_is_named(counts: dict[str, int]) -> None:
    kept = suppressed(counts | {MISSING: 2})
    assert sum(kept.values()) == sum(counts.values()) + 2 - counts.get(MISSING, 0)
    named = {name: count for name, count in counts.items() if count >= FEWEST and name not in (MISSING, RARE)}
    assert {name: count for name, count in kept.items() if name not in (MISSING, RARE)} == named
    assert kept[MISSING] == 2


def crowd(count: int, **attributes: str) -> list[dict[str, str]]:
    return [{"Age": str(20 + place), **attributes} for place in range(count)]


def test_groups_of_five_the_missing_and_the_age_range_are_kept() -> None:
    rows = [
        *crowd(20, Sex="Female"),
        *crowd(7, Sex="Male"),
        *crowd(1, Sex="Prefer not to say"),
        *crowd(3, Sex=""),
    ]
    summary = summarised("s", rows, ["Sex"], "Age")
    assert summary.attributes == {"Sex": {"Female": 20, "Male": 7, RARE: 1, MISSING: 3}}
    assert (summary.count, summary.age_low, summary.age_high) == (31, 20, 39)
    assert "(range 20–39)" in "".join(table_17([summary]).notes)
    assert "Prefer not to say" not in "".join(row.label for row in table_17([summary]).rows)


def test_too_few_people_are_not_described_at_all() -> None:
    with pytest.raises(StillmeError, match="too few to describe"):
        summarised("s", crowd(4, Sex="Female"), ["Sex"], "Age")


def test_a_study_replaces_its_own_counts_and_table_17_shows_all(tmp_path: Path) -> None:
    for study, count in (("one", 6), ("two", 9), ("one", 8)):
        participants.add(tmp_path, summarised(study, crowd(count, Sex="Female"), ["Sex"], "Age"))
    kept = participants.read(tmp_path)
    assert {entry.study: entry.count for entry in kept} == {"one": 8, "two": 9}
    table = table_17(kept)
    assert [cell.value for row in table.rows for cell in row.cells if isinstance(cell, Count)] == [9, 9, 8, 8]
    ages = {f"age_{part}" for part in ("mean", "sd", "low", "high")}
    assert set(json.loads((tmp_path / participants.FILE).read_text())[0]) == {"study", "count", "attributes", *ages}
