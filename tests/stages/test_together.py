"""Judges that wait for a provider work while edits are made, and beside each other."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

from stillme.editors.noop import Noop
from stillme.judges.scripted import Scripted
from stillme.pipeline import Options, run_stages
from stillme.stages import tasks
from stillme.stages.executors import Local
from stillme.types import Assessment, EditOutcome, Failed, Pair, Request

Write = Callable[..., Path]
WORK = ("edit", "judge")
TWO = """use = "scripted"
name = "one"
sentinel = { share = 0.0 }
[[judges]]
use = "scripted"
name = "two"
sentinel = { share = 0.0 }
parameters = { otherwise = "fail" }"""


@pytest.fixture
def remote(monkeypatch: pytest.MonkeyPatch) -> None:
    """Scripted judges behave as if each asked another provider."""
    address = property(lambda judge: f"https://{judge.spec.key}.example")
    monkeypatch.setattr(Scripted, "provider", address, raising=False)


def answers(folder: Path) -> list[tuple[str, int]]:
    with sqlite3.connect(folder / "stillme.sqlite") as ledger:
        return ledger.execute("SELECT judge, COUNT(*) FROM assessment GROUP BY judge ORDER BY judge").fetchall()


@pytest.mark.usefixtures("remote")
def test_an_edit_is_judged_before_the_last_edit_is_made(write_audit: Write, monkeypatch: pytest.MonkeyPatch):
    judged, edit = threading.Event(), Noop.edit
    original = Scripted.judge

    def judge(self: Scripted, pairs: Sequence[Pair]) -> Iterator[Assessment]:
        judged.set()
        return original(self, pairs)

    def waits_for_the_judge(self: Noop, requests: Sequence[Request]) -> Iterator[EditOutcome]:
        last = requests[-1].prompt.id == "V-01" and requests[-1].portraits[0].id.endswith("5")
        assert not last or judged.wait(20), "no judge came while edits were made"
        return edit(self, requests)

    monkeypatch.setattr(Scripted, "judge", judge)
    monkeypatch.setattr(Noop, "edit", waits_for_the_judge)
    folder = write_audit(judge=TWO)
    summary = run_stages(folder, WORK, Options())
    assert [count for _, count in answers(folder)] == [12, 12]
    assert [tally.total for tally in summary.tallies] == [12, 12, 12]
    assert run_stages(folder, WORK, Options()).tallies[1].already == 12


@pytest.mark.usefixtures("remote")
def test_two_providers_are_asked_at_the_same_time(write_audit: Write, monkeypatch: pytest.MonkeyPatch):
    barrier, original = threading.Barrier(2, timeout=20), Scripted.judge
    met: set[str] = set()

    def meeting(self: Scripted, pairs: Sequence[Pair]) -> Iterator[Assessment]:
        if self.spec.key not in met:
            met.add(self.spec.key)
            barrier.wait()
        return original(self, pairs)

    monkeypatch.setattr(Scripted, "judge", meeting)
    folder = write_audit(judge=TWO)
    run_stages(folder, WORK, Options())
    assert len(met) == 2
    assert [count for _, count in answers(folder)] == [12, 12]


@pytest.mark.usefixtures("remote")
def test_edits_that_overflow_the_queue_are_judged_once(write_audit: Write, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(tasks.Fresh.__init__, "__kwdefaults__", {"most": 2})
    folder = write_audit(judge=TWO)
    run_stages(folder, WORK, Options())
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
    summary = run_stages(folder, ("edit", "judge", "estimate", "report"), Options())
    text = summary.as_text()
    assert "stopped: 401: Incorrect API key provided." in text
    assert summary.report is None, "no report on half the judges without a word"
    assert summary.as_json()["ended"] == "stopped"
    done = {tally.name: tally.counts["judged"] for tally in summary.tallies}
    assert done["judge one"] == 12
    monkeypatch.setattr(Scripted, "judge", original)
    again = run_stages(folder, WORK, Options())
    assert (again.to_retry, again.tallies[2].counts["judged"]) == (0, 12)


def test_only_what_failed_is_done_on_request(write_audit: Write, monkeypatch: pytest.MonkeyPatch):
    folder = write_audit('use = "flaky"\nparameters = { failures = 1 }', extra="[executor]\nattempts = 1")
    first = run_stages(folder, ("edit",), Options())
    assert first.to_retry == 12
    retried = run_stages(folder, ("edit",), Options(only_failed=True))
    assert retried.tallies[0].done == 12
    untouched = write_audit('use = "noop"')
    assert run_stages(untouched, ("edit",), Options(only_failed=True, accept_changes=True)).tallies[0].done == 0


def test_a_budget_that_cannot_be_kept_is_refused_before_anything_is_spent(
    write_audit: Write, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(Scripted, "expected_dollars", lambda _: None, raising=False)
    folder = write_audit(extra="[budget]\ndollars = 5")
    with pytest.raises(Exception, match=r"price of judge 'scripted' is unknown.*--unknown-cost-ok"):
        run_stages(folder, WORK, Options())
    assert run_stages(folder, WORK, Options(unknown_cost_ok=True)).tallies[1].done == 12


def test_editors_work_side_by_side_where_the_executor_has_room(write_audit: Write, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(Local, "side_by_side", True)
    slow = "use = 'moody'\n[editors.parameters]\nseconds = 0.1"
    folder = write_audit(f"{slow}\n[[editors]]\nname = 'other'\n{slow}1", extra="[executor]\nisolate = false")
    first, second, _ = run_stages(folder, ("edit", "judge"), Options()).tallies
    assert first.done == second.done == 12
    assert second.started < (first.stopped or 0.0), "the second did not wait for the first"
