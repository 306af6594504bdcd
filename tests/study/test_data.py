"""What becomes of the answers: quality, admin pages, exports, and rows of the judge `people`."""

from __future__ import annotations

import io
import json
import shutil
import sqlite3
import time
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from unittest.mock import Mock

import numpy as np
import pytest

from stillme.api.pipeline import run_stages
from stillme.core.errors import StillmeError
from stillme.findings.tables.analyses import ANALYSES
from stillme.runs import RecordedRun
from stillme.study import items
from stillme.study.app import build
from stillme.study.assignment import exclude
from stillme.study.closing import close_study
from stillme.study.drawing import NewStudy
from stillme.study.export import export_study
from stillme.study.opening import open_study
from stillme.study.progress import overview_of
from tests.command_lines import invoke, ran
from tests.records import add_judge, rows_in
from tests.study.conftest import Browser, Served
from tests.study.studies import RIGHT, draw_study, practised

# -- quality ----------------------------------------------------------------------------------------------------------


def rate_well(browser: Browser, name: str) -> None:
    """Right on the checks, and the same on the same pictures."""
    browser.enter(name).to_rating()
    shown = browser.data()[0]["items"]
    answers = browser.answers()
    for answer in answers:
        if "dark suit" in shown[answer["item"]]["prompt"]:
            answer["value"] = RIGHT[answer["question"]]
        elif answer["value"] != 2:
            answer["value"] = 2 + answer["question"] % 3
    browser.hand_in(answers, moments=[{"item": n, "kind": "active", "amount": 9000.0} for n in range(len(shown))])


def test_a_careful_rater_is_not_flagged_and_a_careless_one_is(served: Served) -> None:
    rate_well(served.browser(), "careful")
    served.browser().guess("careless", moments=[{"item": 0, "kind": "active", "amount": 300.0}])
    good, bad = overview_of(served.study).raters
    assert good.flags == ()
    assert good.attention == (2, 2)
    assert good.gold == 1.0
    assert good.seconds == 9.0
    assert good.repeat == 0.0
    assert {"attention", "gold", "too fast", "straight-lining"} <= set(bad.flags)
    assert bad.entropy == 0.0
    assert bad.straight == 1.0


def test_side_bias_and_agreement_are_measured_on_the_right_outputs(serve: Callable[..., Served]) -> None:
    served = serve(tasks=1, per_task=6, raters=4, checks=False)
    stream = np.random.default_rng(0)
    truth: dict[tuple[str, int], int] = {}
    for n in range(4):
        browser = served.browser().enter(f"p{n}").to_rating()
        data, _ = browser.data()
        answers = browser.answers()
        for answer in answers:
            # Every output has its own true value, whichever side it is on; ids of pictures are the same for all.
            output = data["items"][answer["item"]]["pictures"][answer["side"] + 1]
            answer["value"] = truth.setdefault((output, answer["question"]), int(stream.integers(1, 6)))
        browser.hand_in(answers)
    overview = overview_of(served.study)
    assert [round(axis[name] or 0, 6) for axis in overview.agreement for name in ("alpha", "kappa")] == [1.0] * 10
    assert overview.as_text().count("Fleiss' kappa 1.00 (1.00 to 1.00)") == 5
    assert all(rater.agreement == pytest.approx(1.0) for rater in overview.raters)
    assert all(abs(rater.side or 0) < 2 for rater in overview.raters)


def test_cannot_tell_is_no_number_in_the_consistency_of_repeats(served: Served) -> None:
    browser = served.browser().enter("unsure").to_rating()
    # 4 wherever they can tell; which question they cannot tell differs from item to item, so also in repeats.
    browser.hand_in([{**a, "value": 0 if a["question"] == a["item"] % 5 else 4} for a in browser.answers()])
    (quality,) = overview_of(served.study).raters
    assert quality.repeat == 0.0
    assert quality.cannot_tell == pytest.approx(0.2)
    # Somebody who never can tell has no gold accuracy, rather than a bad one.
    served.browser().take_part("silent", lambda i, s, q: 0)
    quality = overview_of(served.study).raters[-1]
    assert (quality.gold, quality.repeat) == (None, None)
    assert "often cannot tell" in quality.flags


def test_a_clock_that_jumps_back_gives_no_negative_minutes(served: Served, tmp_path: Path) -> None:
    browser = served.browser().enter("late").to_rating()
    active = [{"item": 0, "kind": "active", "amount": 90_000.0}]
    browser.save(browser.answers(), moments=active)
    served.change("UPDATE slot SET begun = begun + 7200 WHERE state = 'held'")
    browser.complete()
    overview = overview_of(served.study)
    assert overview.raters[0].minutes == pytest.approx(1.5)
    assert overview.progress.median_minutes == pytest.approx(1.5)
    assert overview.progress.per_hour > 0
    export_study(served.study, tmp_path, "csv")
    assert all(float(row["seconds"]) >= 0 for row in rows_in(tmp_path / "ratings.csv"))


def test_checks_are_reported_by_rater_with_advice_and_nobody_is_excluded(served: Served, tmp_path: Path) -> None:
    served.browser().guess("careless")
    (quality,) = overview_of(served.study).raters
    page = served.admin().ask("GET", "/admin").text
    assert "Missed attention checks: look at the time per item before you decide" in page
    assert "Checks that were missed" in page
    assert quality.counts
    export_study(served.study, tmp_path, "csv")
    rows = rows_in(tmp_path / "checks.csv")
    assert {row["rater"] for row in rows} == {quality.rater}
    assert {row["kind"] for row in rows} == {"attention", "gold"}
    assert all(row["right"] == "False" for row in rows if row["kind"] == "attention")
    (rater,) = rows_in(tmp_path / "raters.csv")
    assert (rater["full_brightness"], rater["no_colour_filter"], rater["ratio"]) == ("1", "1", "1.5")


def test_comments_are_kept_without_the_id(served: Served, tmp_path: Path) -> None:
    browser = served.browser().enter("pidabc").to_rating()
    browser.save(browser.answers(), comments=[{"seq": 900, "item": 1, "text": "=HYPERLINK(1) by pidabc"}])
    browser.save([], comments=[{"seq": 899, "item": 1, "text": "older"}])
    browser.complete()
    browser.form("/study/comment", comment="Thank you, pidabc")
    assert "Your comment is saved" in browser.page()
    export_study(served.study, tmp_path, "csv")
    rows = rows_in(tmp_path / "comments.csv")
    assert {(bool(row["item"]), row["comment"]) for row in rows} == {
        (False, "Thank you, [id]"),
        (True, "'=HYPERLINK(1) by [id]"),
    }


def test_low_pay_raises_an_alarm(served: Served) -> None:
    served.browser().take_part("slow")
    assert not overview_of(served.study).progress.alarm
    served.change("UPDATE slot SET ended = begun + 7200 WHERE state = 'done'")
    assert "below the floor" in overview_of(served.study).progress.alarm
    shown = ran("study", "status", served.study.folder, code=1)
    assert "ALARM" in shown.output


# -- admin ------------------------------------------------------------------------------------------------------------


def test_the_admin_sees_progress_decides_and_is_logged(served: Served) -> None:
    served.browser().take_part("pid1")
    half = served.browser().enter("pid2").to_rating()
    half.save(half.answers()[:5])
    admin = served.admin()
    page = admin.ask("GET", "/admin").text
    done, held = overview_of(served.study).raters
    assert done.rater in page
    assert "pid1" not in page
    csrf = admin.csrf("/admin")
    assert admin.decide("/admin/exclude", done.rater, "told us that they guessed").status_code == 303
    asked = admin.decide("/admin/release", held.rater, "released")
    assert asked.status_code == 200
    assert "cannot be undone" in asked.text
    statuses = [admin.decide("/admin/release", held.rater, "released", sure="yes").status_code for _ in range(2)]
    assert statuses == [303, 404]
    assert admin.ask("POST", "/admin/release", data={"csrf": "x", "rater": held.rater}).status_code == 403
    (left,) = overview_of(served.study).raters
    assert left.excluded == "told us that they guessed"
    assert "Your place was released" in half.page()
    submissions = admin.ask("GET", "/admin/submissions").text
    assert "pid1" in submissions
    log = admin.ask("GET", "/admin/log").text
    assert all(word in log for word in ("signed in", "excluded", "released", "looked at submissions"))
    admin.ask("POST", "/admin/logout", data={"csrf": csrf})
    assert admin.ask("GET", "/admin/log").status_code == 401


def test_the_admins_log_cannot_be_rewritten(served: Served) -> None:
    served.admin()
    for change in ("DELETE FROM audit", "UPDATE audit SET actor = 'nobody'"):
        with pytest.raises(sqlite3.IntegrityError, match="append-only"):
            served.change(change)


# -- export -----------------------------------------------------------------------------------------------------------


def test_exports_name_nobody_and_say_exactly_what_was_asked(served: Served, tmp_path: Path) -> None:
    served.browser().take_part("prolificperson")
    half = served.browser().enter("secondperson").to_rating()
    half.save(half.answers()[:4])
    inside = served.column(
        "SELECT id FROM participant UNION SELECT ext_hmac FROM participant UNION SELECT id FROM slot"
    )
    for kind in ("csv", "jsonl", "parquet"):
        written = export_study(served.study, tmp_path / kind, kind)
        assert [path.name for path in written] == [
            f"ratings.{kind}",
            f"items.{kind}",
            *(f"{name}.{kind}" for name in ("raters", "checks", "comments", "agreement", "exclusions")),
            "codebook.md",
        ]
        everything = b"".join(path.read_bytes() for path in written)
        for secret in ("prolificperson", "secondperson", *inside):
            assert secret.encode() not in everything
    rows = rows_in(tmp_path / "csv" / "ratings.csv")
    assert len([row for row in rows if row["finished"] == "1"]) == len(half.answers())
    assert len([row for row in rows if row["finished"] == "0"]) == 4
    assert all(float(row["seconds"]) < 600 for row in rows), "a time of day would lead to Prolific's records"
    codebook = (tmp_path / "csv" / "codebook.md").read_text()
    assert "Much darker (≥2 shades)" in codebook
    assert served.study.config.hash in codebook
    lines = (tmp_path / "jsonl" / "ratings.jsonl").read_text().splitlines()
    assert json.loads(lines[0])["rater"].startswith("r-")


def test_the_admins_download_is_the_same_export(served: Served) -> None:
    served.browser().take_part("pid1")
    packed = zipfile.ZipFile(io.BytesIO(served.admin().ask("GET", "/admin/export.zip").content))
    names = ("ratings", "items", "raters", "checks", "comments", "agreement", "exclusions")
    assert set(packed.namelist()) == {*(f"{name}.csv" for name in names), "codebook.md"}


def test_what_does_not_count_is_in_the_exclusion_log(served: Served, tmp_path: Path) -> None:
    half = served.browser().enter("half").to_rating()
    half.save(half.answers()[:4])
    (held,) = overview_of(served.study).raters
    served.admin().decide("/admin/release", held.rater, "returned", sure="yes")
    export_study(served.study, tmp_path, "csv")
    (row,) = rows_in(tmp_path / "exclusions.csv")
    assert (row["rater"], row["reason"], row["answers"]) == (held.rater, "returned", "4")
    assert rows_in(tmp_path / "ratings.csv") == []


# -- into the run -----------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def drawn_once(two_editors: Path, tmp_path_factory: pytest.TempPathFactory) -> NewStudy:
    run = shutil.copytree(two_editors, tmp_path_factory.mktemp("drawn") / "run")
    return draw_study(run, items=6, per_task=6, gold=0, attention=1, repeats=1)


@pytest.fixture
def from_run(drawn_once: NewStudy, tmp_path: Path) -> Iterator[tuple[Path, Served]]:
    """A run and a study that was drawn from it, of this test's own."""
    run = shutil.copytree(drawn_once.folder.parent, tmp_path / "run")
    items = run / "study" / "items.json"
    items.write_text(items.read_text().replace(str(drawn_once.folder.parent), str(run)))
    with open_study(run / "study") as study:
        yield run, Served(study, build(study), drawn_once.password)


def take_part_by_link(served: Served, value: int) -> None:
    browser = served.invited().to_rating(practised(served.study))
    browser.hand_in(browser.answers(lambda i, s, q: value))


def test_ratings_become_assessments_that_the_report_reads(from_run: tuple[Path, Served]) -> None:
    run, served = from_run
    for value in (2, 4, 0):
        take_part_by_link(served, value)
    done = close_study(served.study, flagged="include")
    assert (done.added, done.raters, done.epochs) == (3 * 12, 3, 3)
    add_judge(run, use="people", epochs=3)
    run_stages(run, ("estimate",))
    with RecordedRun.open(run) as opened:
        gathered, store = opened.results, opened.store
        assert opened.judges[1].capabilities.kind == "person"
        effective = [row[0] for row in store.query("SELECT effective FROM assessment WHERE epoch IN (0, 1, 2)")]
    (skin,) = [score for score in gathered.scores if (score.judge, score.axis) == ("people", "skin_tone")]
    rated = skin.value[~np.isnan(skin.value)]
    # Two raters said 2 and 4; the third could not tell, which is no number.
    assert len(rated) == 12
    assert set(rated) == {3.0}
    origins = [json.loads(text) for text in effective if "rater" in text]
    assert len(origins) == 36
    assert all(set(origin) == {"study", "rater", "draw", "chance", "side", "position"} for origin in origins)
    assert not [score for score in gathered.scores if score.judge.startswith("ensemble")]


def test_chances_of_an_informative_draw_are_read_back_from_the_run_alone(
    two_editors: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    corrected = Mock(return_value=[])
    monkeypatch.setattr("stillme.findings.tables.analyses.corrected", corrected)
    run = tmp_path / "run"
    shutil.copytree(two_editors, run)
    add_judge(run, use="scripted", name="again", parameters={"scores": {"race_change": 3, "skin_tone": 2}})
    run_stages(run, ("judge",))
    with RecordedRun.open(run) as opened:
        assert opened.results.chances is None
    wanted = {"gold": 0, "attention": 1, "repeats": 1, "compare": "none", "choose": "informative"}
    made = draw_study(run, items=10, per_task=10, **wanted)
    drawn = {item.outputs[0].edit: item.chance for item in made.drawn.items if item.kind == "real"}
    assert len(drawn) == 10
    assert all(chance is not None and 0 < chance <= 1 for chance in drawn.values())
    assert items.read(made.folder) == made.drawn
    with open_study(made.folder) as study:
        take_part_by_link(Served(study, build(study), made.password), 2)
        close_study(study, flagged="include")
    shutil.rmtree(made.folder)
    add_judge(run, use="people")
    run_stages(run, ("estimate",))
    moved = shutil.move(run, tmp_path / "moved")
    with RecordedRun.open(Path(moved)) as opened:
        gathered = opened.results
        rated = {
            gathered.edits.keys[row]: gathered.chances[row]
            for score in gathered.scores
            if (score.judge, score.axis) == ("people", "race_change")
            for row in np.flatnonzero(~np.isnan(score.value))
        }
        assert rated == pytest.approx(drawn)
        ANALYSES["corrected"](opened)
        weighed = corrected.call_args.kwargs["chances"]
    assert weighed is gathered.chances


def test_an_informative_draw_needs_models_that_can_disagree(two_editors: Path, tmp_path: Path) -> None:
    with pytest.raises(StillmeError, match="two judges"):
        draw_study(two_editors, tmp_path / "study", items=4, choose="informative")
    assert not (tmp_path / "study").exists()


def test_closing_again_adds_nothing_and_leaves_out_whom_the_researcher_left_out(from_run: tuple[Path, Served]) -> None:
    _, served = from_run
    for value in (2, 4):
        take_part_by_link(served, value)
    with served.study.database.writing() as connection:
        who = connection.value("SELECT id FROM participant")
        exclude(connection, who, "guessed", time.time())
    first, again = close_study(served.study, flagged="include"), close_study(served.study, flagged="include")
    assert (first.added, first.excluded) == (12, {"guessed": 1})
    assert (again.added, again.already) == (0, 12)
    assert "The study has ended" in served.invited().agree().page()


def test_a_moved_run_must_be_named(from_run: tuple[Path, Served], tmp_path: Path) -> None:
    _, served = from_run
    with pytest.raises(StillmeError, match="--run"):
        close_study(served.study, tmp_path / "elsewhere", flagged="include")
    assert served.study.is_open, "a failed closing must not close"


# -- the command line -------------------------------------------------------------------------------------------------


def test_every_command_prints_json_and_reports_mistakes_in_one_sentence(
    from_run: tuple[Path, Served], tmp_path: Path
) -> None:
    run, served = from_run
    folder = str(served.study.folder)
    take_part_by_link(served, 3)

    def ask(*words: str) -> object:
        shown = ran("study", *words, "--json")
        return json.loads(shown.stdout)

    made = ask("new", str(run), "--items", "4", "--per-task", "2", "--size", "64", "--out", str(tmp_path / "s2"))
    assert (made["items"], made["tasks"]) == (4, 2)
    assert len(ask("invite", "3", folder, "--address", "https://study.example/")) == 3
    assert ask("status", folder)["progress"]["slots"]["done"] == 1
    assert len(ask("export", folder, "--to", str(tmp_path / "out"))["files"]) == 8
    assert ask("close", folder, "--include-flagged")["added"] == 12
    text = invoke("study", "close", folder, "--include-flagged")
    assert 'use = "people"' in text.output
    wrong = invoke("study", "status", tmp_path)
    assert isinstance(wrong.exception, StillmeError)
    new = invoke("study", "password", folder).stdout.strip()
    from stillme.study import keys

    assert keys.load(served.study.folder).is_admin(new)
    assert not keys.load(served.study.folder).is_admin(served.password)
