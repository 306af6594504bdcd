"""A large grid is recorded beside the work on it, and reads as if it had been recorded before."""

from __future__ import annotations

import json
import re
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from stillme.api.doctor import examine_run
from stillme.api.pipeline import Options, run_stages
from stillme.audit import load
from stillme.cli import cli
from stillme.core.errors import StillRecording
from stillme.runs import Run
from stillme.runs.status import recording_status
from stillme.runs.store import Store
from stillme.work import recording
from stillme.work.tally import Tally
from tests.processes import stillme
from tests.report.test_serving import ask, problem_of, serving

Write = Callable[..., Path]
WORK = ("edit", "judge")


@pytest.fixture
def large(monkeypatch: pytest.MonkeyPatch) -> None:
    """Everything above five requests is large, and is recorded four at a time."""
    monkeypatch.setattr(recording, "_AT_ONCE", 5)
    monkeypatch.setattr(recording, "_STEP", 4)


def plans(folder: Path) -> list[list[tuple[Any, ...]]]:
    with sqlite3.connect(folder / "stillme.sqlite") as ledger:
        queries = ("SELECT id, hash, requests FROM plan", "SELECT * FROM request", "SELECT hash FROM design")
        return [ledger.execute(query).fetchall() for query in queries]


def cut_off(folder: Path, recorded: int = 4) -> None:
    """Begin the run, and end it as soon as so many requests are recorded."""

    def watch(tally: Tally) -> None:
        if tally.name == "record requests" and tally.done >= recorded:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_stages(folder, WORK, Options(watch=watch))


def test_a_large_grid_is_recorded_as_a_small_one_is(write_audit: Write, request: pytest.FixtureRequest):
    folder = write_audit()
    run_stages(folder, WORK, Options())
    before = plans(folder)
    (folder / "stillme.sqlite").unlink()
    request.getfixturevalue("large")
    *_, recorded = run_stages(folder, WORK, Options()).tallies
    assert plans(folder) == before
    assert (recorded.name, recorded.counts["recorded"], recorded.total) == ("record requests", 12, 12)
    *_, again = run_stages(folder, WORK, Options()).tallies
    assert again.counts["recorded"] == 0
    assert plans(folder) == before


@pytest.mark.usefixtures("large")
def test_a_run_that_was_killed_while_recording_says_so_and_goes_on(write_audit: Write, tmp_path: Path):
    folder = write_audit()
    cut_off(folder)
    with pytest.raises(StillRecording, match=r"before all its requests are recorded, 4 so far\. `stillme status "):
        Run.open(folder)
    run_stages(folder, WORK, Options())
    with Run.open(folder) as run:
        assert len(list(run.requests())) == run.request_count == 12


@pytest.mark.usefixtures("large")
def test_what_was_half_recorded_of_another_audit_is_replaced(write_audit: Write):
    folder = write_audit()
    cut_off(folder)
    (folder / "audit.toml").write_text((folder / "audit.toml").read_text().replace('"O-02"', '"V-02"'))
    run_stages(folder, WORK, Options(allow_changes=True))
    with Run.open(folder) as run:
        assert {asked.prompt for asked in run.requests()} == {prompt.id for prompt in run.design.prompts}
        assert "V-02" in {asked.prompt for asked in run.requests()}
        assert run.request_count == len(list(run.requests())) == 12


@pytest.mark.usefixtures("large")
def test_parts_that_are_recorded_again_are_counted_once(write_audit: Write, portraits: Path):
    folder = write_audit()
    cut_off(folder, 8)
    # The first part is still what is asked, the second is not.
    (portraits / "p3.png").write_bytes((portraits / "p5.png").read_bytes())
    counted: list[int] = []
    *_, tally = run_stages(folder, WORK, Options(allow_changes=True, watch=lambda t: counted.append(t.done))).tallies
    assert (tally.name, tally.done, tally.saved, tally.total) == ("record requests", 12, 12, 12)
    assert max(counted) == 12


@pytest.mark.usefixtures("large")
def test_what_was_half_recorded_of_a_longer_audit_is_no_part_of_the_plan(write_audit: Write):
    folder = write_audit()
    cut_off(folder)
    text = (folder / "audit.toml").read_text()
    (folder / "audit.toml").write_text(text.replace("[prompts]", "limit = 1\n[prompts]"))
    run_stages(folder, WORK, Options(allow_changes=True))
    with Run.open(folder) as run:
        assert run.request_count == len(list(run.requests())) == 2


@pytest.mark.usefixtures("large")
def test_another_analysis_of_a_large_grid_records_no_request_again(write_audit: Write):
    folder = write_audit()
    run_stages(folder, WORK, Options())
    _, requests, _ = plans(folder)
    with (folder / "audit.toml").open("a") as stream:
        stream.write('\n[ensemble]\nrule = "median"\n')
    run_stages(folder, WORK, Options())
    _, after, designs = plans(folder)
    assert after == requests
    assert len(designs) == 2


@pytest.mark.parametrize("arms", ['["baseline"]', '["baseline", "noop"]', '["noop"]'])
def test_requests_are_counted_as_they_are_made(write_audit: Write, arms: str):
    folder = write_audit("use = 'noop'\nseeds = [1, 2, 3]")
    (folder / "audit.toml").write_text(f"arms = {arms}\n" + (folder / "audit.toml").read_text())
    audit = load(folder)
    (editor,) = audit.editors
    assert audit.request_count(editor) == len(list(audit.requests(editor))) > 0


def test_running_again_records_no_second_design(write_audit: Write):
    folder = write_audit()
    for _ in range(3):
        run_stages(folder, WORK, Options())
    _, _, designs = plans(folder)
    assert len(designs) == 1


def ended_with(*words: str | Path) -> tuple[int, str]:
    """The exit code of a command and what it said, as a shell sees it."""
    done = stillme(*words)
    return done.returncode, done.stdout + done.stderr


@pytest.mark.usefixtures("large")
def test_a_run_that_is_still_being_recorded_is_incomplete_and_no_error_of_the_user(write_audit: Write):
    folder = write_audit()
    cut_off(folder)
    baseline = ["--baseline", str(folder)]
    for words in (["gate", *baseline], ["tables"], ["tables", "--all"], ["export"], ["compare", str(folder)]):
        stopped = CliRunner().invoke(cli, [words[0], str(folder), *words[1:]]).exception
        assert isinstance(stopped, StillRecording), (words, stopped)
    code, said = ended_with("export", folder)
    assert (code, "damaged" in said, "no run yet" in said) == (3, False, False)
    assert "before all its requests are recorded, 4 so far" in said


@pytest.mark.usefixtures("large")
def test_status_shows_how_far_the_recording_is(write_audit: Write):
    folder = write_audit()
    cut_off(folder)
    code, said = ended_with("status", folder)
    assert code == 0
    assert re.search(r"record +requests +33%  4 of 12\n", said)
    assert "Next: stillme run" in said
    shown = json.loads(ended_with("status", folder, "--json")[1])
    assert shown["recording"] == {"total": 12, "done": 4}
    (folder / "audit.toml").unlink()
    assert re.search(r"record +requests +–  4\n", ended_with("status", folder)[1])
    run_stages(write_audit(), WORK, Options())
    assert json.loads(ended_with("status", folder, "--json")[1])["recording"] is None


def test_a_run_that_has_just_begun_is_neither_an_old_one_nor_none(write_audit: Write):
    folder = write_audit()
    with Store.writing(folder) as store:
        with pytest.raises(StillRecording, match="none of its requests recorded yet"):
            Run.open(folder)
        audit = load(folder)
        # What a run does first; the portraits and the requests come later.
        store.record_audit(audit.hash, audit.resolved)
        with pytest.raises(StillRecording, match="none of its requests recorded yet"):
            Run.open(folder)
        assert [check.state for check in examine_run(folder)] == ["ok", "ok", "lacking"]
        assert recording_status(folder).requests == 12


@pytest.mark.usefixtures("large")
def test_the_page_of_a_run_that_is_being_recorded_says_so(write_audit: Write):
    folder = write_audit()
    cut_off(folder)
    with serving(folder) as (refresher, server):
        refresher.start()
        problem_of(server, lambda said: "4 so far" in said)
        assert b"4 so far" in ask(server, "/")[1]
        run_stages(folder, WORK, Options())
        problem_of(server, lambda said: not said)
        refresher.stop()
        refresher.join()
