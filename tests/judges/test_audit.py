"""A whole audit with a model judge: epochs, both orders, waits, refusals, money."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tomli_w
from PIL import Image

from stillme.errors import StillmeError
from stillme.pipeline import Options, Summary, run_stages
from stillme.stages.loop import Ended
from stillme.store import Store
from tests.editors.hosted.loopback import Loopback, Says, serving
from tests.judges.conftest import answer
from tests.vlm.servers import CHAT, GEMINI, RESPONSES, Scripted, Speaker

EDITS = 2


class Run:
    """An audit of two edits at a loopback provider."""

    def __init__(self, folder: Path, speaker: Speaker, server: Loopback, settings: dict[str, Any], more: Any) -> None:
        self.folder, self.server = folder, server
        portraits = folder / "portraits"
        portraits.mkdir(parents=True)
        for index in range(EDITS):
            pixels = np.random.default_rng(index).integers(0, 255, (64, 64, 3), dtype=np.uint8)
            Image.fromarray(pixels).save(portraits / f"p{index}.png")
        rows = ["file,group,race,gender,age", "p0.png,a,x,y,30s", "p1.png,b,z,y,30s"]
        (portraits / "portraits.csv").write_text("\n".join(rows))
        parameters = {"provider": speaker.provider, "model": speaker.model, "base_url": server.url + speaker.base}
        audit = {
            "portraits": {"source": "./portraits"},
            "prompts": {"only": ["O-01"]},
            "editors": [{"use": "noop"}],
            "judges": [{"use": "vlm", "parameters": {**parameters, "timeout": 5, **settings}, **more.pop("judge", {})}],
            **more,
        }
        (folder / "audit.toml").write_text(tomli_w.dumps(audit))

    def __call__(self) -> Summary:
        return run_stages(self.folder, ("edit", "judge"), Options())

    def query(self, sql: str) -> list[Any]:
        with Store.reading(self.folder) as store:
            return list(store.query(sql))


@pytest.fixture
def opens(tmp_path: Path) -> Iterator[Callable[..., Run]]:
    with ExitStack() as stack:

        def build(speaker: Speaker, *answers: Any, more: Any = None, **settings: Any) -> Run:
            server = stack.enter_context(serving(speaker.behave(Scripted(list(answers or [answer()])))))
            return Run(tmp_path / "run", speaker, server, settings, dict(more or {}))

        yield build


Opens = Callable[..., Run]


def test_epochs_and_both_orders_are_asked_and_kept_apart(opens: Opens):
    run = opens(CHAT, order="both", more={"judge": {"epochs": 3}})
    run()
    assert run.query("SELECT COUNT(*), COUNT(DISTINCT key), COUNT(DISTINCT epoch) FROM assessment") == [(12, 12, 6)]
    assert len(run.server.calls()) == EDITS * 3 * 2


def test_a_busy_provider_is_given_the_pause_that_it_asks_for(opens: Opens):
    run = opens(GEMINI)
    busy = Says(status=429, body={"error": {"message": "slow down"}}, headers={"retry-after-ms": "100"})
    run.server.breaks(busy, times=2)
    summary = run()
    assert summary.tallies[-1].counts == {"judged": EDITS}
    assert summary.tallies[-1].retried == 2
    assert run.query("SELECT SUM(attempts) FROM assessment WHERE final = 1") == [(EDITS + 2,)]


def test_a_refusal_is_final_and_no_failure(opens: Opens):
    run = opens(RESPONSES)
    run.server.breaks(RESPONSES.refuse("I will not rate people."))
    summary = run()
    assert summary.to_retry == 0
    assert dict(run.query("SELECT outcome, COUNT(*) FROM judgement GROUP BY outcome")) == {"abstained": 5, "rated": 5}
    run()
    assert len(run.server.calls()) == EDITS


def test_twice_malformed_fails_for_good_with_its_raw_text(opens: Opens):
    run = opens(CHAT, "not JSON")
    summary = run()
    assert summary.tallies[-1].counts == {"failed": EDITS}
    assert summary.to_retry == 0
    assert run.query("SELECT DISTINCT raw FROM assessment") == [("not JSON\n\n--- asked again ---\n\nnot JSON",)]
    assert run.query("SELECT COUNT(*) FROM judgement WHERE score IS NOT NULL") == [(0,)]


def test_the_budget_stops_cleanly(opens: Opens):
    price = {"input": 100.0, "output": 100.0}  # 0.36 an answer
    run = opens(CHAT, price=price, concurrency=1, more={"budget": {"dollars": 0.3}, "judge": {"epochs": 10}})
    summary = run()
    assert summary.ended is Ended.OVER_BUDGET
    ((count, cost),) = run.query("SELECT COUNT(*), SUM(cost) FROM assessment")
    assert 1 <= count <= 3
    assert summary.cost == pytest.approx(cost) == pytest.approx(0.36 * count)


def test_labels_reach_the_judge_only_on_request(opens: Opens):
    run = opens(CHAT, disclosure="paper")
    run()
    assert all("Estimated age=30s" in CHAT.see(asked.json).text for asked in run.server.calls())


def test_a_setting_that_would_be_ignored_stops_the_run(opens: Opens):
    run = opens(RESPONSES, temperature=0.1)
    with pytest.raises(StillmeError, match="ignores `temperature"):
        run()
    assert run.server.calls() == []


def test_what_was_sent_and_who_answered_stands_in_the_ledger(opens: Opens):
    run = opens(RESPONSES, effort="low")
    run()
    ((effective,),) = run.query("SELECT effective FROM assessment LIMIT 1")
    told = json.loads(effective)
    assert told["sent"]["effort"] == "low"
    assert told["model"] == "gpt-5-mini-2025-08-07"
    assert told["tokens"] == {"input": 3000, "output": 600, "thoughts": 200}
