"""Pairs of known truth at a provider: it cannot tell them from real ones."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import tomli_w

from stillme.api.pipeline import Ended, run_stages
from stillme.findings.evidence import opened_bundle, seal, verify
from stillme.findings.plan import plan_audit
from stillme.runs import RecordedRun
from stillme.runs.control_pairs import asking
from stillme.runs.store import Store
from stillme.runs.store.exported import JUDGEMENTS, rows_of
from tests.editors.hosted.loopback import Asked, Loopback
from tests.judges.conftest import answer
from tests.vlm.servers import CHAT, ModelInput

QUESTIONS = 25
PROMPTS = ["O-01", "O-02", "O-03", "O-04", "V-05"]


def told(asked: ModelInput) -> str:
    """An answer to either form."""
    return json.dumps(answer(age_accuracy=3) if "age_accuracy" in asked.system else answer())


def write(folder: Path, portraits: Path, parameters: dict[str, Any], share: float) -> Path:
    folder.mkdir(exist_ok=True)
    audit = {
        "portraits": {"source": str(portraits)},
        "prompts": {"only": PROMPTS},
        "editors": [{"use": "noop"}],
        "judges": [{"use": "vlm", "name": "judge", "control_pairs": {"share": share}, "parameters": parameters}],
        "estimates": {"factors": ["group"]},
    }
    (folder / "audit.toml").write_text(tomli_w.dumps(audit))
    return folder


def judged(folder: Path) -> Ended:
    return run_stages(folder, ("edit", "judge")).ended


@pytest.fixture
def serve(loopback: Callable[..., Loopback]) -> Callable[[], Loopback]:
    return lambda: loopback(CHAT.handler(told))


def parameters(server: Loopback, **more: Any) -> dict[str, Any]:
    return CHAT.settings(server.url, **{"timeout": 5, "concurrency": 2, **more})


def form(asked: Asked) -> tuple[str, ...]:
    """Everything in a request but the pictures, the instruction, and the length that follows from them."""
    body = re.sub(r"data:image/jpeg;base64,[A-Za-z0-9+/=]+", "PICTURE", asked.content.decode())
    body = re.sub(r"EDIT INSTRUCTION: .*?\\n", "INSTRUCTION", body)
    headers = [f"{name}: {value}" for name, value in asked.headers.items() if name.lower() != "content-length"]
    return asked.path, body, *headers


@pytest.mark.parametrize("disclosure", ["blind", "paper"])
def test_a_server_cannot_tell_them_apart(
    tmp_path: Path, portraits: Path, serve: Callable[[], Loopback], disclosure: str
):
    server = serve()
    for name, share in (("plain", 0.0), ("watched", 0.4)):
        folder = write(tmp_path / name, portraits, parameters(server, disclosure=disclosure), share)
        assert judged(folder) is Ended.COMPLETE
    calls = server.calls()
    real, watched = calls[:QUESTIONS], calls[QUESTIONS:]
    known = {asked.content for asked in real}
    hidden = [asked for asked in watched if asked.content not in known]
    with Store.reading(tmp_path / "watched") as store:
        assert len(hidden) == len(list(store.query("SELECT 1 FROM control_pair WHERE final = 1"))) >= 8
    assert len(watched) == QUESTIONS + len(hidden)
    assert {form(asked) for asked in hidden} <= {form(asked) for asked in real}
    assert all("PICTURE" in form(asked)[1] and "INSTRUCTION" in form(asked)[1] for asked in hidden)
    assert not any(word in asked.content.lower() for asked in hidden for word in (b"control", b"calibration", b"webp"))
    sizes = [{len(picture) for picture in CHAT.parse(asked.json).images} for asked in hidden]
    assert all(len(pair) == 2 for pair in sizes), "two pictures of different bytes"


def test_a_bundle_holds_and_recomputes_the_same_numbers(tmp_path: Path, portraits: Path, serve: Callable[[], Loopback]):
    server, rows = serve(), []
    for name, share in (("plain", 0.0), ("watched", 0.4)):
        folder = write(tmp_path / name, portraits, parameters(server), share)
        run_stages(folder, ("edit", "judge", "estimate", "report"))
        with RecordedRun.open(folder) as run:
            seal(run, tmp_path / f"{name}.zip")
        verification = verify(tmp_path / f"{name}.zip")
        assert verification.consistent, verification.differences
        with opened_bundle(tmp_path / f"{name}.zip") as run:
            rows.append(
                sorted((row["assessment"], row["axis"], row["score"]) for row in rows_of(run.store, JUDGEMENTS))
            )
    assert rows[0] == rows[1]
    assert (tmp_path / "plain/tables/estimates.csv").read_bytes() == (
        tmp_path / "watched/tables/estimates.csv"
    ).read_bytes()


def test_a_plan_prices_them_on_a_line_of_their_own(tmp_path: Path, portraits: Path, serve: Callable[[], Loopback]):
    given = parameters(serve(), price={"input": 1.0, "output": 1.0})
    plain = plan_audit(write(tmp_path / "plain", portraits, given, 0.0))
    planned = plan_audit(write(tmp_path / "watched", portraits, given, 0.4))
    (line,) = [line for line in planned.as_text().splitlines() if "(control pairs)" in line]
    assert " 10 " in line
    assert "control pairs" not in plain.as_text()
    (bill,) = planned.as_json()["control_pairs"]
    assert (bill["calls"], planned.bills.questions) == (10, QUESTIONS)
    assert planned.bills.dollars == pytest.approx(plain.bills.dollars + bill["dollars"])
    assert bill["dollars"] > 0


def test_they_stand_where_the_ledger_says_also_among_fast_answers(
    tmp_path: Path, portraits: Path, serve: Callable[[], Loopback], monkeypatch: pytest.MonkeyPatch
):
    made = asking._changed

    def slowly(*given: Any) -> Any:
        time.sleep(0.1)
        return made(*given)

    monkeypatch.setattr(asking, "_changed", slowly)
    server, at_once = serve(), 16
    plain = write(tmp_path / "plain", portraits, parameters(server), 0.0)
    watched = write(tmp_path / "watched", portraits, parameters(server, concurrency=at_once), 0.2)
    for folder in (plain, watched):
        text = (folder / "audit.toml").read_text()
        (folder / "audit.toml").write_text(re.sub(r"(?s)\[prompts\]\nonly = \[.*?\]\n", "", text))
    assert judged(plain) is Ended.COMPLETE
    known = {asked.content for asked in server.calls()}
    before = len(server.calls())
    assert judged(watched) is Ended.COMPLETE
    calls = server.calls()[before:]
    places = [
        sum(other.content in known for other in calls[:place])
        for place, asked in enumerate(calls)
        if asked.content not in known
    ]
    with Store.reading(watched) as store:
        recorded = sorted(row for (row,) in store.query("SELECT answered_before FROM control_pair WHERE final = 1"))
    assert len(places) == len(recorded) >= 16
    assert all(abs(at - said) <= at_once for at, said in zip(sorted(places), recorded, strict=True)), (places, recorded)
    assert any(asked.content in known for asked in calls[-6:]), "they are not the last"
