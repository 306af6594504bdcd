"""Batches: submitted, awaited and collected, with a crash between any two steps."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tomli_w
from PIL import Image

from stillme.errors import StillmeError
from stillme.judges.model import ModelJudge
from stillme.pipeline import Options, Summary, run_stages
from stillme.stages.tally import Ended
from stillme.store import Store
from stillme.store.tickets import Ticket, Tickets
from stillme.vlm.batch_apis import GeminiBatchApi, OpenAIBatchApi
from tests.editors.hosted.loopback import Loopback, Says, serving
from tests.judges.conftest import KEY, answer
from tests.vlm.batch_servers import BATCH_SERVERS, BatchServer
from tests.vlm.servers import ModelInput

every_provider = pytest.mark.parametrize("provider", BATCH_SERVERS)
PAIRS = 4


class Crash(BaseException):
    """The process dies here."""


class Run:
    """An audit whose judge uses the batch API of a loopback provider."""

    def __init__(self, folder: Path, batch_server: BatchServer, server: Loopback, **settings: Any) -> None:
        self.folder, self.batch_server, self.server = folder, batch_server, server
        wire = batch_server.wire
        given: dict[str, Any] = {
            "provider": wire.provider,
            "model": wire.model,
            "base_url": server.url + wire.base,
            "timeout": 60,
            "delivery": "batch",
            "poll_seconds": 0.05,
            **settings,
        }
        self.write(given)

    def write(self, given: dict[str, Any], **budget: float) -> None:
        self.given = given
        portraits = self.folder / "portraits"
        portraits.mkdir(parents=True, exist_ok=True)
        for index in range(2):
            pixels = np.random.default_rng(index).integers(0, 255, (64, 64, 3), dtype=np.uint8)
            Image.fromarray(pixels).save(portraits / f"p{index}.png")
        (portraits / "portraits.csv").write_text("file,group\np0.png,a\np1.png,b\n")
        audit = {
            "portraits": {"source": "./portraits"},
            "prompts": {"only": ["O-01", "O-02"]},
            "editors": [{"use": "noop"}],
            "judges": [{"use": "vlm", "name": "judge", "parameters": given}],
            "budget": budget,
        }
        (self.folder / "audit.toml").write_text(tomli_w.dumps(audit))

    def __call__(self) -> Summary:
        return run_stages(self.folder, ("edit", "judge"), Options(accept_changes=True))

    def rows(self) -> dict[str, Any]:
        with Store.reading(self.folder) as store:
            count, keys, cost = store.query(
                "SELECT COUNT(*), COUNT(DISTINCT key), TOTAL(cost) FROM assessment WHERE final = 1"
            ).fetchone()
            scores = store.query("SELECT COUNT(*) FROM judgement WHERE outcome = 'rated'").fetchone()[0]
            return {"rows": count, "keys": keys, "cost": cost, "scores": scores, "open": len(store.tickets.open())}

    @property
    def created(self) -> int:
        return len(self.batch_server.batches)


@pytest.fixture
def open_run(tmp_path: Path) -> Iterator[Callable[..., Run]]:
    with ExitStack() as stack:

        def build(provider: str, script: Callable[[ModelInput], str] | None = None, **settings: Any) -> Run:
            kind, wire = BATCH_SERVERS[provider]
            batch_server = kind(wire, script or (lambda _: json.dumps(answer())))
            server = stack.enter_context(serving(batch_server))
            return Run(tmp_path / "run", batch_server, server, **settings)

        yield build


OpenRun = Callable[..., Run]


@every_provider
def test_a_batch_is_submitted_awaited_and_collected(open_run: OpenRun, provider: str):
    run = open_run(provider)
    run.batch_server.polls_until_ended = 3
    summary = run()
    assert summary.ended is Ended.COMPLETE
    rows = run.rows()
    assert (rows["rows"], rows["keys"], rows["scores"], rows["open"]) == (PAIRS, PAIRS, PAIRS * 5, 0)
    assert (run.created, len(run.batch_server.submitted)) == (1, PAIRS)
    assert summary.tallies[-1].counts["judged"] == PAIRS
    with Store.reading(run.folder) as store:
        effective = json.loads(store.query("SELECT effective FROM assessment LIMIT 1").fetchone()[0])
    assert effective["delivery"] == "batch"
    assert effective["images"]


@every_provider
def test_a_batch_costs_half(open_run: OpenRun, provider: str):
    price = {"openai": (0.25, 2.0), "google": (0.5, 3.0), "anthropic": (2.0, 10.0)}[provider]
    run = open_run(provider)
    run()
    full = (3000 * price[0] + 600 * price[1]) / 1e6
    assert run.rows()["cost"] == pytest.approx(PAIRS * full / 2)


@every_provider
def test_nothing_is_done_twice(open_run: OpenRun, provider: str):
    run = open_run(provider)
    run()
    before = run.rows()
    run()
    assert run.rows() == before
    assert run.created == 1


def test_uploads_are_deleted_afterwards(open_run: OpenRun):
    run = open_run("openai")
    run()
    assert run.batch_server.files == {}
    run = open_run("google")
    run()
    assert [name for name in run.batch_server.files if name in run.batch_server.labels] == []


@pytest.mark.parametrize("provider", ["openai", "google"])
def test_uploads_of_a_rejected_batch_are_deleted(open_run: OpenRun, provider: str):
    run = open_run(provider)
    at = "/batches" if provider == "openai" else ":batchGenerateContent"
    run.server.breaks(Says(status=400, body={"error": {"message": "no", "code": 400}}), at=at)
    with pytest.raises(StillmeError, match="rejected a batch"):
        run()
    assert len([asked for asked in run.server.asked if asked.method == "DELETE"]) == 1
    assert run.batch_server.labels.keys() & run.batch_server.files.keys() == set()


@pytest.mark.parametrize("provider", ["openai", "google"])
def test_uploads_of_a_batch_that_was_never_created_are_deleted_by_the_next_run(open_run: OpenRun, provider: str):
    run = open_run(provider)
    api = {"openai": OpenAIBatchApi, "google": GeminiBatchApi}[provider]
    submit = api.submit

    async def dies_after_the_upload(self: Any, client: Any, ticket: str, requests: Any) -> str:
        at = "/batches" if provider == "openai" else ":batchGenerateContent"
        run.server.breaks(Says(status=400, body={"error": {"message": "no", "code": 400}}), at=at)
        with suppress(Exception):
            await submit(self, client, ticket, requests)
        raise Crash

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(api, "submit", dies_after_the_upload)
        with pytest.raises(Crash):
            run()
    assert run.batch_server.labels.keys() & run.batch_server.files.keys(), "the crash came after the upload"
    assert run().ended is Ended.COMPLETE
    assert run.batch_server.labels.keys() & run.batch_server.files.keys() == set()


def test_uploads_that_cannot_be_deleted_are_named_and_do_not_end_the_run(
    open_run: OpenRun, caplog: pytest.LogCaptureFixture
):
    run = open_run("openai")
    run.server.breaks(Says(status=500, body={"error": {"message": f"no, {KEY}"}}), at="/files/file_0", times=1)
    assert run().ended is Ended.COMPLETE
    assert run.rows()["rows"] == PAIRS
    (record,) = [record for record in caplog.records if "not deleted" in record.message]
    assert "batch_0" in record.message
    assert KEY not in record.message


def test_a_key_is_not_in_the_sentence_about_a_rejected_batch_nor_in_the_ledger(open_run: OpenRun):
    run = open_run("openai")
    message = "x" * 590 + KEY  # across the place where it is cut
    run.server.breaks(Says(status=401, body={"error": {"message": message}}), at="/files")
    with pytest.raises(StillmeError) as raised:
        run()
    assert KEY[:8] not in str(raised.value)
    with Store.reading(run.folder) as store:
        ((detail,),) = store.query("SELECT detail FROM ticket_event")
    assert "xxx" in detail
    assert KEY[:8] not in detail


def test_many_questions_are_split_into_batches(open_run: OpenRun):
    run = open_run("openai", batch_size=3)
    run()
    assert [len(batch.requests) for batch in run.batch_server.batches] == [3, 1]
    assert run.rows()["rows"] == PAIRS


# -- crashes ----------------------------------------------------------------------------------------------------------


def crash_at(monkeypatch: pytest.MonkeyPatch, point: str) -> None:
    """Let the process die at a point, once."""
    add, add_event = Tickets.add, Tickets.add_event
    save = Store.add_assessments

    def added(self: Tickets, ticket: Ticket) -> None:
        add(self, ticket)
        if point == "before it is sent":
            raise Crash

    def event_added(self: Tickets, ticket: Ticket, event: str, detail: str = "") -> None:
        if (point, event) in (("sent, ID not recorded", "submitted"), ("answers saved, not recorded", "collected")):
            raise Crash
        add_event(self, ticket, event, detail)  # pyright: ignore[reportArgumentType]
        if (point, event) == ("ID recorded", "submitted"):
            raise Crash

    def saved(self: Store, rows: Any) -> None:
        if point == "answers read, not saved":
            raise Crash
        save(self, rows)

    monkeypatch.setattr(Tickets, "add", added)
    monkeypatch.setattr(Tickets, "add_event", event_added)
    monkeypatch.setattr(Store, "add_assessments", saved)


POINTS = (
    "before it is sent",
    "sent, ID not recorded",
    "ID recorded",
    "answers read, not saved",
    "answers saved, not recorded",
)


@every_provider
@pytest.mark.parametrize("point", POINTS)
def test_a_crash_between_any_two_steps_loses_and_repeats_nothing(open_run: OpenRun, provider: str, point: str):
    run = open_run(provider)
    with pytest.MonkeyPatch.context() as patched:
        crash_at(patched, point)
        with pytest.raises(Crash):
            run()
    assert run.created == (0 if point == "before it is sent" else 1), "the crash came when it was meant to"
    summary = run()
    assert summary.ended is Ended.COMPLETE
    rows = run.rows()
    assert (rows["rows"], rows["keys"], rows["open"]) == (PAIRS, PAIRS, 0)
    assert (run.created, len(run.batch_server.submitted)) == (1, PAIRS), "nothing was paid for twice"


@every_provider
def test_a_batch_whose_id_was_lost_is_found_in_the_same_run(open_run: OpenRun, provider: str):
    run = open_run(provider)
    run.batch_server.lost_ids = 1
    run.batch_server.polls_until_ended = 3
    assert run().ended is Ended.COMPLETE
    assert run.rows()["rows"] == PAIRS
    assert run.created == 1


def test_an_anthropic_batch_of_the_same_size_is_not_mistaken_for_ours(open_run: OpenRun):
    run = open_run("anthropic")
    run.batch_server.polls_until_ended = 0
    run.batch_server.accept("", [(f"somebody-else-{place}", {"system": [], "messages": []}) for place in range(PAIRS)])
    with pytest.MonkeyPatch.context() as patched:
        crash_at(patched, "before it is sent")
        with pytest.raises(Crash):
            run()
    assert run().ended is Ended.COMPLETE
    assert run.rows()["rows"] == PAIRS
    assert run.created == 2


def test_a_batch_that_the_provider_lost_is_submitted_again(open_run: OpenRun):
    run = open_run("openai")
    with pytest.MonkeyPatch.context() as patched:
        crash_at(patched, "ID recorded")
        with pytest.raises(Crash):
            run()
    run.batch_server.batches.clear()
    assert run().ended is Ended.COMPLETE
    assert run.rows()["rows"] == PAIRS


def test_switching_to_now_collects_open_batches_first(open_run: OpenRun):
    run = open_run("openai")
    with pytest.MonkeyPatch.context() as patched:
        crash_at(patched, "ID recorded")
        with pytest.raises(Crash):
            run()
    run.write({**run.given, "delivery": "now"})
    summary = run()
    assert run.rows()["rows"] == PAIRS
    assert [asked for asked in run.server.calls() if asked.path.endswith("/responses")] == [], "nothing asked again"
    tally = summary.tallies[-1]
    assert (tally.already, tally.counts["judged"]) == (0, PAIRS)


# -- what goes wrong inside a batch -----------------------------------------------------------------------------------


@every_provider
def test_a_request_that_failed_in_the_batch_is_asked_again_by_a_rerun(open_run: OpenRun, provider: str):
    run = open_run(provider)
    run.batch_server.fails = lambda id_: id_.endswith("-1")
    summary = run()
    assert summary.tallies[-1].counts == {"judged": PAIRS - 1, "failed": 1}
    assert summary.to_retry == 1
    run.batch_server.fails = lambda _: False
    assert run().to_retry == 0
    assert [len(batch.requests) for batch in run.batch_server.batches] == [PAIRS, 1]
    assert run.rows()["rows"] == PAIRS


@every_provider
def test_a_malformed_answer_in_a_batch_is_asked_again_immediately(open_run: OpenRun, provider: str):
    run = open_run(provider)
    run.batch_server.garbles = lambda id_: id_.endswith("-1")
    run()
    assert run.rows()["rows"] == PAIRS
    with Store.reading(run.folder) as store:
        raws = [raw for (raw,) in store.query("SELECT raw FROM assessment")]
    (twice,) = [raw for raw in raws if "asked again" in raw]
    first, _, second = twice.partition("\n\n--- asked again ---\n\n")
    assert (first, json.loads(second)) == ("no JSON", answer())
    assert run.created == 1


def test_a_rejected_batch_is_one_sentence_and_leaves_no_ticket_open(open_run: OpenRun):
    run = open_run("openai")
    run.server.breaks(Says(status=400, body={"error": {"message": "file too large"}}), at="/batches")
    with pytest.raises(StillmeError, match=r"rejected a batch of 4: .*file too large"):
        run()
    assert run.rows()["open"] == 0
    assert run().ended is Ended.COMPLETE


def test_a_provider_that_does_not_answer_ends_the_run_and_keeps_the_ticket(open_run: OpenRun):
    run = open_run("openai")
    with pytest.MonkeyPatch.context() as patched:
        crash_at(patched, "ID recorded")
        with pytest.raises(Crash):
            run()
    run.server.breaks(Says(status=503, body={"error": {"message": "down"}}), at="/batches/", times=20)
    with pytest.raises(StillmeError, match="run the same command"):
        run()
    assert run.rows()["open"] == 1
    run.server.faults.clear()
    assert run().ended is Ended.COMPLETE
    assert run.created == 1


def test_the_expected_cost_counts_before_anything_is_submitted(open_run: OpenRun):
    run = open_run("openai", batch_size=2, price={"input": 100.0, "output": 100.0})
    run.write(run.given, dollars=0.40)  # a pair is expected at 0.18 in a batch
    summary = run()
    assert summary.ended is Ended.OVER_BUDGET
    assert [len(batch.requests) for batch in run.batch_server.batches] == [2]
    assert run.rows()["rows"] == 2, "what was submitted is still collected"


def test_a_judge_without_a_batch_api_says_so_before_the_run(tmp_path: Path):
    judge = ModelJudge(
        "x",
        ModelJudge.Parameters.model_validate(
            {"provider": "openai-chat", "model": "m", "base_url": "http://127.0.0.1:1/v1", "delivery": "batch"}
        ),
    )
    assert any("no batch API" in sentence for sentence in judge.problems([], []))


def test_a_setting_that_a_model_would_ignore_stops_the_run_before_it_costs(open_run: OpenRun):
    run = open_run("openai", temperature=0.1)
    with pytest.raises(StillmeError, match="ignores `temperature"):
        run()
    assert run.server.calls() == []
