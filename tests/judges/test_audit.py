"""A whole audit with a model judge: epochs, both orders, rate limits, refusals, cost."""

from __future__ import annotations

import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import tomli_w

from stillme.api.pipeline import RunOptions, RunResult, run_stages
from stillme.core.errors import StillmeError
from stillme.runs.store import Store
from stillme.work.tally import Ended
from tests.editors.hosted.loopback import Loopback, Says
from tests.judges.conftest import answer
from tests.pictures import noise
from tests.vlm.servers import CHAT, GEMINI, RESPONSES, Scripted, WireFormat

EDITS = 2


class Run:
    """An audit of two edits with a loopback provider."""

    def __init__(self, folder: Path, wire: WireFormat, server: Loopback, settings: dict[str, Any], more: Any) -> None:
        self.folder, self.server = folder, server
        portraits = folder / "portraits"
        portraits.mkdir(parents=True)
        for index in range(EDITS):
            noise(portraits / f"p{index}.png", seed=index)
        rows = ["file,group,race,gender,age", "p0.png,a,x,y,30s", "p1.png,b,z,y,30s"]
        (portraits / "portraits.csv").write_text("\n".join(rows))
        audit = {
            "portraits": {"source": "./portraits"},
            "prompts": {"only": ["O-01"]},
            "editors": [{"use": "noop"}],
            "judges": [{"use": "vlm", "parameters": wire.settings(server.url, **settings), **more.pop("judge", {})}],
            **more,
        }
        (folder / "audit.toml").write_text(tomli_w.dumps(audit))

    def __call__(self) -> RunResult:
        return run_stages(self.folder, ("edit", "judge"))

    def query(self, sql: str) -> list[Any]:
        with Store.reading(self.folder) as store:
            return list(store.query(sql))


@pytest.fixture
def open_run(tmp_path: Path, loopback: Callable[..., Loopback]) -> Callable[..., Run]:
    def build(wire: WireFormat, *answers: Any, more: Any = None, **settings: Any) -> Run:
        server = loopback(wire.handler(Scripted(list(answers or [answer()]))))
        return Run(tmp_path / "run", wire, server, settings, dict(more or {}))

    return build


OpenRun = Callable[..., Run]


def test_epochs_and_both_orders_are_asked_and_kept_apart(open_run: OpenRun):
    run = open_run(CHAT, order="both", more={"judge": {"epochs": 3}})
    run()
    assert run.query("SELECT COUNT(*), COUNT(DISTINCT key), COUNT(DISTINCT epoch) FROM assessment") == [(12, 12, 6)]
    assert len(run.server.calls()) == EDITS * 3 * 2


@pytest.mark.parametrize("prompt", ["O-01", "V-05"])
def test_an_axis_that_no_prompt_asks_is_in_no_table_and_not_in_the_report(open_run: OpenRun, prompt: str):
    run = open_run(CHAT, answer(age_accuracy=3) if prompt == "V-05" else answer(), more={"prompts": {"only": [prompt]}})
    run_stages(run.folder, ("edit", "judge", "estimate", "report"))
    estimates = (run.folder / "tables" / "estimates.csv").read_text("utf-8")
    page = (run.folder / "report.html").read_text("utf-8")
    assert "skin_tone" in estimates
    assert ("age_accuracy" in estimates) == (prompt == "V-05")
    assert "role_target" not in estimates + page
    assert 'id="roles"' not in page


def test_a_rate_limit_is_waited_out(open_run: OpenRun):
    run = open_run(GEMINI)
    busy = Says(status=429, body={"error": {"message": "slow down"}}, headers={"retry-after-ms": "100"})
    run.server.breaks(busy, times=2)
    summary = run()
    assert summary.tallies[-1].counts == {"judged": EDITS}
    assert (summary.tallies[-1].throttled, summary.tallies[-1].retried) == (2, 0)
    assert run.query("SELECT SUM(attempts) FROM assessment WHERE final = 1") == [(EDITS,)]


def test_a_refusal_is_final_and_not_a_failure(open_run: OpenRun):
    run = open_run(RESPONSES)
    run.server.breaks(RESPONSES.refusal("I will not rate people."))
    summary = run()
    assert summary.totals.to_retry == 0
    assert dict(run.query("SELECT outcome, COUNT(*) FROM judgement GROUP BY outcome")) == {"abstained": 5, "rated": 5}
    run()
    assert len(run.server.calls()) == EDITS


def test_two_malformed_answers_fail_and_keep_their_text(open_run: OpenRun):
    run = open_run(CHAT, "not JSON")
    summary = run()
    assert summary.tallies[-1].counts == {"failed": EDITS}
    assert summary.totals.to_retry == EDITS, "by a later run; this one asked twice"
    assert len(run.server.calls()) == 2 * EDITS
    assert run.query("SELECT DISTINCT raw FROM assessment") == [("not JSON\n\n--- asked again ---\n\nnot JSON",)]
    assert run.query("SELECT COUNT(*) FROM judgement WHERE score IS NOT NULL") == [(0,)]


def test_the_budget_stops_cleanly(open_run: OpenRun):
    price = {"input": 100.0, "output": 100.0}  # 0.36 an answer
    run = open_run(CHAT, price=price, concurrency=1, more={"budget": {"dollars": 1.0}, "judge": {"epochs": 10}})
    summary = run()
    assert summary.ended is Ended.OVER_BUDGET
    ((count, cost),) = run.query("SELECT COUNT(*), SUM(cost) FROM assessment")
    assert count == 2, "a third would exceed it"
    assert summary.totals.cost == pytest.approx(cost) == pytest.approx(0.36 * count)


def test_more_room_and_another_server_are_reported_and_nothing_is_rated_again(open_run: OpenRun):
    run = open_run(CHAT)
    run()
    file = run.folder / "audit.toml"
    moved = file.read_text().replace(run.server.url, "http://127.0.0.1:1").replace("timeout = 60", "max_tokens = 9000")
    file.write_text(moved)
    said: list[str] = []
    summary = run_stages(run.folder, ("edit", "judge"), RunOptions(say=said.append))
    assert summary.ended is Ended.COMPLETE
    assert summary.tallies[-1].already == EDITS
    assert len(run.server.calls()) == EDITS
    assert any("judges[0].parameters.max_tokens: 8192 → 9000" in line for line in said)
    assert any("judges[0].parameters.base_url: http://127.0.0.1" in line for line in said)
    assert not any("rate all edits again" in line for line in said)


def test_one_model_at_two_servers_is_one_judge(open_run: OpenRun):
    run = open_run(CHAT)
    audit = tomllib.loads((run.folder / "audit.toml").read_text())
    (judge,) = audit["judges"]
    elsewhere = {**judge["parameters"], "base_url": "http://127.0.0.1:1/v1"}
    audit["judges"] = [judge, {**judge, "name": "other", "parameters": elsewhere}]
    (run.folder / "audit.toml").write_text(tomli_w.dumps(audit))
    with pytest.raises(StillmeError, match=r"'other' is the same judge as 'vlm'.*base_url"):
        run()


def test_labels_reach_the_judge_only_on_request(open_run: OpenRun):
    run = open_run(CHAT, disclosure="paper")
    run()
    texts = [CHAT.parse(asked.json).text for asked in run.server.calls()]
    assert "SOURCE INFO: Race=x, Gender=y,\nEstimated age=30s" in texts[0]
    assert "SOURCE INFO: Race=z, Gender=y,\nEstimated age=30s" in texts[1]


def test_a_judge_of_the_audit_also_reads_single_pictures_blind(open_run: OpenRun):
    reading = {"observations": "a face", "race": "x", "gender": "feminine", "age": 30}
    more = {"readings": {"judges": ["vlm"], "attribute": "race"}}
    price = {"input": 1.0, "output": 1.0}
    run = open_run(CHAT, answer(), answer(), reading, more=more, disclosure="paper", price=price)
    summary = run()
    assert [(tally.name, dict(tally.counts)) for tally in summary.tallies][1:] == [
        ("judge vlm", {"judged": 2}),
        ("read vlm", {"read": 6}),
    ]
    asked = [CHAT.parse(call.json) for call in run.server.calls()]
    assert [len(question.images) for question in asked] == [2, 2, 1, 1, 1, 1, 1, 1]
    assert not any("Race=" in question.system + question.text for question in asked[2:])
    assert run.query(
        "SELECT COUNT(*) FROM assessment a JOIN spec s ON s.key = a.judge WHERE s.version LIKE '%reading%'"
    ) == [(6,)]
    assert run.query("SELECT COUNT(*) FROM assessment WHERE cost > 0") == [(8,)]
    assert summary.totals.cost == pytest.approx(run.query("SELECT SUM(cost) FROM assessment")[0][0])
    assert len(run().tallies) == 3
    assert len(run.server.calls()) == 8


def test_a_judge_cannot_be_told_to_read_in_its_own_section(open_run: OpenRun):
    with pytest.raises(StillmeError, match=r"reads: is not yours to set; name 'vlm' in \[readings\]"):
        open_run(CHAT, reads=["x", "z"])()
