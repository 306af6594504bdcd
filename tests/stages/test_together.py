"""Judges that wait for a provider work while edits are made, and beside each other."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel

from stillme.api.pipeline import RunOptions, run_stages
from stillme.core.registry import plugin_class
from stillme.core.types import Assessment, EditOutcome, Failed, Pair, Request
from stillme.editors.known import Noop
from stillme.judges.given import Scripted
from stillme.work import tasks
from stillme.work.edits import lanes_of
from stillme.work.executors import Local
from stillme.work.workers import WorkerSpec

Write = Callable[..., Path]
WORK = ("edit", "judge")
LAST = "p5"
"""The last portrait."""
TWO = """use = "scripted"
name = "one"
control_pairs = { share = 0.0 }
[[judges]]
use = "scripted"
name = "two"
control_pairs = { share = 0.0 }
parameters = { otherwise = "fail" }"""


@pytest.fixture
def remote(monkeypatch: pytest.MonkeyPatch) -> None:
    """Scripted judges behave as if each asked another provider."""
    address = property(lambda judge: f"https://{judge.spec.key}.example")
    monkeypatch.setattr(Scripted, "provider", address, raising=False)


@pytest.fixture
def last_edit_waits_for_a_judge(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Edits one by one, the last not before a judge was asked; for each try of it, whether that happened."""
    judged, came = threading.Event(), list[bool]()
    begin, edit, judge = Noop.__init__, Noop.edit, Scripted.judge

    def one_by_one(self: Noop, parameters: BaseModel) -> None:
        begin(self, parameters)
        self.capabilities = replace(self.capabilities, batch=1)

    def waiting(self: Noop, requests: Sequence[Request]) -> Iterator[EditOutcome]:
        (request,) = requests
        if request.prompt.id == "O-02" and request.portraits[0].id == LAST:
            came.append(judged.wait(60))
        return edit(self, requests)

    def judging(self: Scripted, pairs: Sequence[Pair]) -> Iterator[Assessment]:
        judged.set()
        return judge(self, pairs)

    monkeypatch.setattr(Noop, "__init__", one_by_one)
    monkeypatch.setattr(Noop, "edit", waiting)
    monkeypatch.setattr(Scripted, "judge", judging)
    return came


def answers(folder: Path) -> list[tuple[str, int]]:
    with sqlite3.connect(folder / "stillme.sqlite") as ledger:
        return ledger.execute("SELECT judge, COUNT(*) FROM assessment GROUP BY judge ORDER BY judge").fetchall()


@pytest.mark.usefixtures("remote")
def test_an_edit_is_judged_before_the_last_edit_is_made(write_audit: Write, last_edit_waits_for_a_judge: list[bool]):
    folder = write_audit(judge=TWO)
    summary = run_stages(folder, WORK)
    assert last_edit_waits_for_a_judge == [True]
    assert [count for _, count in answers(folder)] == [12, 12]
    assert [tally.total for tally in summary.tallies] == [12, 12, 12]
    assert run_stages(folder, WORK).tallies[1].already == 12


def meet(monkeypatch: pytest.MonkeyPatch, plugin: Any, method: str) -> set[str]:
    """Two of these plugins can only go on when both were asked; who was."""
    barrier, original, met = threading.Barrier(2, timeout=60), getattr(plugin, method), set[str]()

    def meeting(self: Any, asked: Sequence[Any]) -> Iterator[Any]:
        if self.spec.key not in met:
            met.add(self.spec.key)
            barrier.wait()
        return original(self, asked)

    monkeypatch.setattr(plugin, method, meeting)
    return met


@pytest.mark.usefixtures("remote")
def test_two_providers_are_asked_at_the_same_time(write_audit: Write, monkeypatch: pytest.MonkeyPatch):
    met = meet(monkeypatch, Scripted, "judge")
    folder = write_audit(judge=TWO)
    run_stages(folder, WORK)
    assert len(met) == 2
    assert [count for _, count in answers(folder)] == [12, 12]


@pytest.mark.usefixtures("remote")
def test_edits_that_overflow_the_queue_are_judged_once(write_audit: Write, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(tasks.Fresh.__init__, "__kwdefaults__", {"most": 2})
    folder = write_audit(judge=TWO)
    run_stages(folder, WORK)
    assert [count for _, count in answers(folder)] == [12, 12]


@pytest.mark.usefixtures("remote")
def test_a_judge_whose_key_is_wrong_stops_alone(write_audit: Write, monkeypatch: pytest.MonkeyPatch):
    original = Scripted.judge

    def judge(self: Scripted, pairs: Sequence[Pair]) -> Iterator[Assessment]:
        if self.spec.parameters["otherwise"] != "fail":
            yield from original(self, pairs)
            return
        failed = Failed(error="401: Incorrect API key provided", retryable=True, fatal=True, status="401")
        for _ in pairs:
            yield Assessment(ratings=dict.fromkeys(self.capabilities.axes, failed))

    monkeypatch.setattr(Scripted, "judge", judge)
    folder = write_audit(judge=TWO)
    summary = run_stages(folder, ("edit", "judge", "estimate", "report"))
    text = summary.as_text()
    assert "stopped: 401: Incorrect API key provided." in text
    assert summary.report is None, "no report on half the judges without a word"
    assert summary.as_json()["ended"] == "stopped"
    done = {tally.name: tally.counts["judged"] for tally in summary.tallies}
    assert done["judge one"] == 12
    monkeypatch.setattr(Scripted, "judge", original)
    again = run_stages(folder, WORK)
    assert (again.totals.to_retry, again.tallies[2].counts["judged"]) == (0, 12)


def test_only_what_failed_is_done_on_request(write_audit: Write, monkeypatch: pytest.MonkeyPatch):
    folder = write_audit('use = "flaky"\nparameters = { failures = 1 }', extra="[executor]\nattempts = 1")
    first = run_stages(folder, ("edit",))
    assert first.totals.to_retry == 12
    retried = run_stages(folder, ("edit",), RunOptions(only_failed=True))
    assert retried.tallies[0].done == 12
    untouched = write_audit('use = "noop"')
    assert run_stages(untouched, ("edit",), RunOptions(only_failed=True, allow_changes=True)).tallies[0].done == 0


def test_a_budget_that_cannot_be_kept_is_refused_before_anything_is_spent(
    write_audit: Write, monkeypatch: pytest.MonkeyPatch
):
    unpriced = type("Unpriced", (Scripted,), {"expected_dollars": lambda _: None})
    monkeypatch.setattr("stillme.judges.given.Scripted", unpriced)
    folder = write_audit(extra="[budget]\ndollars = 5")
    with pytest.raises(Exception, match=r"price of judge 'scripted' is unknown.*--allow-unknown-cost"):
        run_stages(folder, WORK)
    assert run_stages(folder, WORK, RunOptions(allow_unknown_cost=True)).tallies[1].done == 12


def test_editors_work_side_by_side_where_the_executor_has_room(write_audit: Write, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(Local, "side_by_side", True)
    slow = "use = 'moody'\n[editors.parameters]\nseconds = 0.1"
    folder = write_audit(f"{slow}\n[[editors]]\nname = 'other'\n{slow}1", extra="[executor]\nisolate = false")
    first, second, _ = run_stages(folder, ("edit", "judge")).tallies
    assert first.done == second.done == 12
    assert second.started < (first.stopped or 0.0), "the second did not wait for the first"


def test_editors_of_different_providers_are_asked_at_the_same_time(write_audit: Write, monkeypatch: pytest.MonkeyPatch):
    moody = plugin_class("editor", "moody")
    monkeypatch.setattr(moody, "provider", property(lambda editor: f"{editor.spec.key}.example"), raising=False)
    meet(monkeypatch, moody, "edit")
    other = "use = 'moody'\n[[editors]]\nname = 'other'\nuse = 'moody'\nparameters = { seconds = 0.001 }"
    first, second, _ = run_stages(write_audit(other, extra="[executor]\nisolate = false"), WORK).tallies
    assert first.done == second.done == 12


def test_a_judge_on_this_machine_rates_edits_as_they_come_from_elsewhere(
    write_audit: Write, monkeypatch: pytest.MonkeyPatch, last_edit_waits_for_a_judge: list[bool]
):
    monkeypatch.setattr(Noop, "provider", "far.example", raising=False)
    folder = write_audit()
    run_stages(folder, WORK)
    assert last_edit_waits_for_a_judge == [True]
    assert [count for _, count in answers(folder)] == [12]


def test_an_editor_with_processes_of_its_own_is_told_its_time_limit(
    write_audit: Write, monkeypatch: pytest.MonkeyPatch
):
    told: list[float] = []
    monkeypatch.setattr(Noop, "end_calls_after", lambda _, seconds: told.append(seconds), raising=False)
    posted: list[WorkerSpec | None] = []
    worker = Local.worker

    def placed(executor: Local, spec: WorkerSpec | None, *here: Any, **limits: Any) -> Any:
        posted.append(spec)
        return worker(executor, spec, *here, **limits)

    monkeypatch.setattr(Local, "worker", placed)
    run_stages(write_audit("use = 'noop'\ntime_limit = 7"), ("edit",))
    assert told == [7.0]
    assert [spec and spec.ends_calls_after for spec in posted] == [7.0], "a worker elsewhere is told, too"


class OnDevices(Noop):
    devices: tuple[str, ...] = ()

    def __init__(self, *devices: str) -> None:
        self.devices = devices


class Elsewhere(Noop):
    provider = ""

    def __init__(self, provider: str) -> None:
        self.provider = provider


@pytest.mark.parametrize(
    ("editors", "lanes"),
    [
        ([Elsewhere("a"), Elsewhere("b"), Elsewhere("a")], [[0, 2], [1]]),
        ([OnDevices("cuda:0"), OnDevices("cuda:1"), OnDevices("cuda:0")], [[0, 2], [1]]),
        ([OnDevices("cuda:0"), OnDevices("cuda:1"), OnDevices("cuda:0", "cuda:1")], [[0, 1, 2]]),
        # What takes any device, or the processor, might take another's.
        ([OnDevices("cuda:0"), OnDevices()], [[0, 1]]),
        ([OnDevices("cuda:0"), Elsewhere("a"), Elsewhere("b")], [[0], [1], [2]]),
        ([OnDevices("cuda:0"), OnDevices("cuda:1"), OnDevices(), Elsewhere("a")], [[0, 1, 2], [3]]),
        ([], []),
    ],
)
def test_only_editors_that_share_nothing_work_side_by_side(editors: list[Noop], lanes: list[list[int]]):
    assert lanes_of(editors) == lanes
