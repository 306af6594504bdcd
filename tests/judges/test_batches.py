"""Batches: handed over, waited for and collected, with a crash between any two steps."""

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
from stillme.judges.model import ModelJudge
from stillme.pipeline import Options, Summary, run_stages
from stillme.stages.loop import Ended
from stillme.store import Store
from stillme.store.tickets import Ticket, Tickets
from tests.editors.hosted.loopback import Loopback, Says, serving
from tests.judges.conftest import answer
from tests.vlm.batch_servers import OFFICES, PostOffice
from tests.vlm.servers import Seen

every = pytest.mark.parametrize("provider", OFFICES)
PAIRS = 4


class Crash(BaseException):
    """The process dies here."""


class Run:
    """An audit whose judge works in batches at a loopback provider."""

    def __init__(self, folder: Path, office: PostOffice, server: Loopback, **settings: Any) -> None:
        self.folder, self.office, self.server = folder, office, server
        speaker = office.speaker
        given: dict[str, Any] = {
            "provider": speaker.provider,
            "model": speaker.model,
            "base_url": server.url + speaker.base,
            "timeout": 5,
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
        return len(self.office.parcels)


@pytest.fixture
def opens(tmp_path: Path) -> Iterator[Callable[..., Run]]:
    with ExitStack() as stack:

        def build(provider: str, script: Callable[[Seen], str] | None = None, **settings: Any) -> Run:
            kind, speaker = OFFICES[provider]
            office = kind(speaker, script or (lambda _: json.dumps(answer())))
            server = stack.enter_context(serving(office))
            return Run(tmp_path / "run", office, server, **settings)

        yield build


Opens = Callable[..., Run]


@every
def test_a_batch_is_handed_over_waited_for_and_collected(opens: Opens, provider: str):
    run = opens(provider)
    run.office.patience = 3
    summary = run()
    assert summary.ended is Ended.COMPLETE
    found = run.rows()
    assert (found["rows"], found["keys"], found["scores"], found["open"]) == (PAIRS, PAIRS, PAIRS * 5, 0)
    assert (run.created, len(run.office.handed_over)) == (1, PAIRS)
    assert summary.tallies[-1].counts["judged"] == PAIRS
    with Store.reading(run.folder) as store:
        effective = json.loads(store.query("SELECT effective FROM assessment LIMIT 1").fetchone()[0])
    assert effective["delivery"] == "batch"
    assert effective["images"]


@every
def test_a_batch_costs_half(opens: Opens, provider: str):
    price = {"openai": (0.25, 2.0), "google": (0.5, 3.0), "anthropic": (2.0, 10.0)}[provider]
    run = opens(provider)
    run()
    full = (3000 * price[0] + 600 * price[1]) / 1e6
    assert run.rows()["cost"] == pytest.approx(PAIRS * full / 2)


@every
def test_nothing_is_done_twice(opens: Opens, provider: str):
    run = opens(provider)
    run()
    before = run.rows()
    run()
    assert run.rows() == before
    assert run.created == 1


def test_what_was_uploaded_is_deleted_afterwards(opens: Opens):
    run = opens("openai")
    run()
    assert run.office.files == {}
    run = opens("google")
    run()
    assert [name for name in run.office.files if name in run.office.labels] == []


def test_large_work_is_split(opens: Opens):
    run = opens("openai", batch_size=3)
    run()
    assert [len(parcel.requests) for parcel in run.office.parcels] == [3, 1]
    assert run.rows()["rows"] == PAIRS


# -- crashes ----------------------------------------------------------------------------------------------------------


def crash_at(monkeypatch: pytest.MonkeyPatch, point: str) -> None:
    """Let the process die at a point, once."""
    add, note = Tickets.add, Tickets.note
    keep = Store.add_assessments

    def added(self: Tickets, ticket: Ticket) -> None:
        add(self, ticket)
        if point == "before it is sent":
            raise Crash

    def noted(self: Tickets, ticket: Ticket, event: str, detail: str = "") -> None:
        if (point, event) in (("sent, number not noted", "submitted"), ("answers saved, not noted", "collected")):
            raise Crash
        note(self, ticket, event, detail)  # pyright: ignore[reportArgumentType]
        if (point, event) == ("number noted", "submitted"):
            raise Crash

    def kept(self: Store, rows: Any) -> None:
        if point == "answers read, not saved":
            raise Crash
        keep(self, rows)

    monkeypatch.setattr(Tickets, "add", added)
    monkeypatch.setattr(Tickets, "note", noted)
    monkeypatch.setattr(Store, "add_assessments", kept)


POINTS = (
    "before it is sent",
    "sent, number not noted",
    "number noted",
    "answers read, not saved",
    "answers saved, not noted",
)


@every
@pytest.mark.parametrize("point", POINTS)
def test_a_crash_between_any_two_steps_loses_and_repeats_nothing(opens: Opens, provider: str, point: str):
    run = opens(provider)
    with pytest.MonkeyPatch.context() as patched:
        crash_at(patched, point)
        with pytest.raises(Crash):
            run()
    assert run.created == (0 if point == "before it is sent" else 1), "the crash came when it was meant to"
    summary = run()
    assert summary.ended is Ended.COMPLETE
    found = run.rows()
    assert (found["rows"], found["keys"], found["open"]) == (PAIRS, PAIRS, 0)
    assert (run.created, len(run.office.handed_over)) == (1, PAIRS), "nothing was paid for twice"


@every
def test_a_batch_whose_number_was_lost_is_found_in_the_same_run(opens: Opens, provider: str):
    run = opens(provider)
    run.office.loses_the_number = 1
    run.office.patience = 3
    assert run().ended is Ended.COMPLETE
    assert run.rows()["rows"] == PAIRS
    assert run.created == 1


def test_an_anthropic_batch_of_the_same_size_is_not_mistaken_for_ours(opens: Opens):
    run = opens("anthropic")
    run.office.patience = 0
    run.office.accept("", [(f"somebody-else-{place}", {"system": [], "messages": []}) for place in range(PAIRS)])
    with pytest.MonkeyPatch.context() as patched:
        crash_at(patched, "before it is sent")
        with pytest.raises(Crash):
            run()
    assert run().ended is Ended.COMPLETE
    assert run.rows()["rows"] == PAIRS
    assert run.created == 2


def test_a_batch_that_the_provider_lost_is_handed_over_again(opens: Opens):
    run = opens("openai")
    with pytest.MonkeyPatch.context() as patched:
        crash_at(patched, "number noted")
        with pytest.raises(Crash):
            run()
    run.office.parcels.clear()
    assert run().ended is Ended.COMPLETE
    assert run.rows()["rows"] == PAIRS


def test_switching_to_now_collects_what_is_under_way_first(opens: Opens):
    run = opens("openai")
    with pytest.MonkeyPatch.context() as patched:
        crash_at(patched, "number noted")
        with pytest.raises(Crash):
            run()
    run.write({**run.given, "delivery": "now"})
    summary = run()
    assert run.rows()["rows"] == PAIRS
    assert [asked for asked in run.server.calls() if asked.path.endswith("/responses")] == [], "nothing asked again"
    tally = summary.tallies[-1]
    assert (tally.already, tally.counts["judged"]) == (0, PAIRS)


# -- what goes wrong inside a batch -----------------------------------------------------------------------------------


@every
def test_a_request_that_failed_in_the_batch_is_asked_again_by_a_rerun(opens: Opens, provider: str):
    run = opens(provider)
    run.office.failing = lambda id_: id_.endswith("-1")
    summary = run()
    assert summary.tallies[-1].counts == {"judged": PAIRS - 1, "failed": 1}
    assert summary.to_retry == 1
    run.office.failing = lambda _: False
    assert run().to_retry == 0
    assert [len(parcel.requests) for parcel in run.office.parcels] == [PAIRS, 1]
    assert run.rows()["rows"] == PAIRS


@every
def test_a_malformed_answer_in_a_batch_is_asked_once_more_at_once(opens: Opens, provider: str):
    run = opens(provider)
    run.office.garbling = lambda id_: id_.endswith("-1")
    run()
    assert run.rows()["rows"] == PAIRS
    with Store.reading(run.folder) as store:
        raws = [raw for (raw,) in store.query("SELECT raw FROM assessment")]
    (twice,) = [raw for raw in raws if "asked again" in raw]
    first, _, second = twice.partition("\n\n--- asked again ---\n\n")
    assert (first, json.loads(second)) == ("no JSON", answer())
    assert run.created == 1


def test_a_rejected_batch_is_one_sentence_and_leaves_nothing_open(opens: Opens):
    run = opens("openai")
    run.server.breaks(Says(status=400, body={"error": {"message": "file too large"}}), at="/batches")
    with pytest.raises(StillmeError, match=r"did not take a batch of 4: .*file too large"):
        run()
    assert run.rows()["open"] == 0
    assert run().ended is Ended.COMPLETE


def test_a_provider_that_does_not_answer_ends_the_run_and_keeps_the_ticket(opens: Opens):
    run = opens("openai")
    with pytest.MonkeyPatch.context() as patched:
        crash_at(patched, "number noted")
        with pytest.raises(Crash):
            run()
    run.server.breaks(Says(status=503, body={"error": {"message": "down"}}), at="/batches/", times=20)
    with pytest.raises(StillmeError, match="run the same command"):
        run()
    assert run.rows()["open"] == 1
    run.server.faults.clear()
    assert run().ended is Ended.COMPLETE
    assert run.created == 1


def test_the_estimate_counts_before_anything_is_handed_over(opens: Opens):
    run = opens("openai", batch_size=2, price={"input": 100.0, "output": 100.0})
    run.write(run.given, dollars=0.40)  # a pair is expected at 0.18 in a batch
    summary = run()
    assert summary.ended is Ended.OVER_BUDGET
    assert [len(parcel.requests) for parcel in run.office.parcels] == [2]
    assert run.rows()["rows"] == 2, "what was handed over is still collected"


def test_a_judge_without_a_batch_service_says_so_before_the_run(tmp_path: Path):
    judge = ModelJudge(
        "x",
        ModelJudge.Parameters.model_validate(
            {"provider": "openai-chat", "model": "m", "base_url": "http://127.0.0.1:1/v1", "delivery": "batch"}
        ),
    )
    assert any("no batch service" in sentence for sentence in judge.objections([], []))


def test_a_setting_that_a_model_would_ignore_stops_the_run_before_it_costs(opens: Opens):
    run = opens("openai", temperature=0.1)
    with pytest.raises(StillmeError, match="ignores `temperature"):
        run()
    assert run.server.calls() == []
