"""What a run asks is recorded whole or not at all, and once."""

from __future__ import annotations

import itertools
import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from stillme.api.doctor import examine_run
from stillme.api.pipeline import run_stages
from stillme.audit import load
from stillme.audit.design import RecordedRequest
from stillme.core.errors import StillRecording
from stillme.runs import RecordedRun
from stillme.runs.store import Store
from tests.command_lines import invoke
from tests.processes import stillme

Write = Callable[..., Path]
WORK = ("edit", "judge")


def plans(folder: Path) -> list[list[tuple[Any, ...]]]:
    with sqlite3.connect(folder / "stillme.sqlite") as ledger:
        queries = ("SELECT id, hash, requests FROM plan", "SELECT * FROM request", "SELECT hash FROM design")
        return [ledger.execute(query).fetchall() for query in queries]


def test_running_again_records_nothing_and_another_analysis_no_request(write_audit: Write):
    folder = write_audit()
    for _ in range(2):
        run_stages(folder, WORK)
    _, requests, designs = plans(folder)
    assert len(designs) == 1
    with (folder / "audit.toml").open("a") as stream:
        stream.write('\n[ensemble]\nrule = "median"\n')
    run_stages(folder, WORK)
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


def test_a_run_that_has_just_begun_is_neither_an_old_one_nor_none(write_audit: Write):
    folder = write_audit()
    with Store.writing(folder) as store:
        with pytest.raises(StillRecording, match="none of its requests recorded yet"):
            RecordedRun.open(folder)
        audit = load(folder)
        # What a run does first; the portraits and the requests come later.
        store.record_audit(audit.hash, audit.resolved)
        with pytest.raises(StillRecording, match="none of its requests recorded yet"):
            RecordedRun.open(folder)
        assert [check.state for check in examine_run(folder)] == ["ok", "ok", "lacking"]
    words = (["tables"], ["tables", "--all"], ["export"], ["compare", folder], ["status"])
    for verb, *rest in (["gate", "--baseline", folder], *words):
        stopped = invoke(verb, folder, *rest).exception
        assert isinstance(stopped, StillRecording), (verb, stopped)
    done = stillme("export", folder)
    said = done.stdout + done.stderr
    assert (done.returncode, "damaged" in said, "no run yet" in said) == (3, False, False)


def test_a_run_that_was_killed_while_recording_has_no_part_of_a_plan(write_audit: Write):
    folder = write_audit()
    requests = cut_short(load(folder).recorded_requests(), 4)
    with Store.writing(folder) as store, pytest.raises(RuntimeError, match="killed"), store.transaction():
        store.designs.add_plan(requests)
    assert plans(folder) == [[], [], []]
    run_stages(folder, WORK)
    assert [len(rows) for rows in plans(folder)] == [1, 12, 1]


def cut_short(requests: Iterator[RecordedRequest], after: int) -> Iterator[RecordedRequest]:
    yield from itertools.islice(requests, after)
    raise RuntimeError("killed")
