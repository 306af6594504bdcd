"""Whole audits with a hosted editor and with a folder of outputs, from audit.toml to the ledger."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from stillme.api.pipeline import run_stages
from stillme.core.types import Edited
from stillme.editors.known import Noop
from stillme.runs.run import RecordedRun
from stillme.runs.status import status_of
from stillme.runs.store import Store
from tests.editors.hosted.loopback import Says, serving
from tests.editors.hosted.providers import GEMINI, OPENAI, gemini_says
from tests.editors.hosted.test_answers import openai_error


def outcomes(folder: Path) -> list[tuple[str, str]]:
    with Store.reading(folder) as store:
        return list(store.query("SELECT outcome, message FROM edit ORDER BY id"))


def test_refusals_are_kept_and_outages_are_retried(write_audit: Callable[..., Path]):
    with serving(OPENAI.behave) as server:
        folder = write_audit(f'use = "openai"\n[editors.parameters]\nbase_url = "{server.url}/v1"')
        server.breaks(openai_error("moderation_blocked"))
        server.breaks(Says(status=429, body={}, headers={"Retry-After": "0"}), times=2)
        server.breaks(Says(status=500, body=b"down", headers={"Retry-After": "0"}))
        first = run_stages(folder, ("edit",)).tallies[0]
        assert first.counts == {"edited": 11, "refused": 1}
        assert (first.retried, first.throttled) == (1, 2)
        assert first.cost == pytest.approx(11 * 0.0321)
        asked = len(server.asked)
        run_stages(folder, ("edit",))
        assert len(server.asked) == asked, "what has a row is not paid for again"


def test_answers_in_words_are_counted_apart_and_judged_by_nobody(write_audit: Callable[..., Path]):
    with serving(GEMINI.behave) as server:
        folder = write_audit(
            f'use = "gemini"\n[editors.parameters]\nbase_url = "{server.url}"', extra="[executor]\nattempts = 1"
        )
        for question in ("Navy or black?", "Which hat?", "Who is it?"):
            server.breaks(gemini_says([{"text": question}]))
        server.breaks(Says(status=422, body={"error": {"code": 422, "message": "no", "status": "X"}}))
        tally = run_stages(folder, ("edit", "judge")).tallies
    assert tally[0].counts == {"edited": 8, "answered in words": 3, "failed": 1}
    status = status_of(RecordedRun.open(folder))
    (counts,) = status.counts.editors.values()
    assert (counts["done"], counts["answered in words"], counts["to retry"]) == (8, 3, 1)
    assert {judge["total"] for judge in status.counts.judges.values()} == {8}
    assert status.totals.to_retry == 4, "the next run asks again"
    words, other = status.failures
    assert (words.count, other.count) == (3, 1)
    assert words.reason.startswith("gemini: answered in words: ")


def test_a_failure_whose_cost_is_unknown_is_not_shown_as_free(
    write_audit: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("tests.editors.hosted.providers.scaled", lambda picture, size: picture[:-40])
    with serving(OPENAI.behave) as server:
        folder = write_audit(
            f'use = "openai"\n[editors.parameters]\nbase_url = "{server.url}/v1"\nmodel = "unlisted"',
            extra="[executor]\nattempts = 1",
        )
        run_stages(folder, ("edit",))
    totals = status_of(RecordedRun.open(folder)).totals
    assert (totals.cost, totals.unpriced, totals.cost_text) == (0.0, totals.to_retry, "unknown")


def test_a_picture_that_nobody_can_read_is_a_failure_of_any_editor(
    write_audit: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
):
    broken = Edited(image=b"no picture", cost=0.5)
    monkeypatch.setattr(Noop, "edit", lambda editor, requests: iter([broken] * len(requests)))
    folder = write_audit(extra="[executor]\nattempts = 1")
    tally = run_stages(folder, ("edit",)).tallies[0]
    assert tally.counts == {"failed": 12}
    assert tally.cost == pytest.approx(12 * 0.5)
    assert {message for _, message in outcomes(folder)} == {
        "the returned file is not a picture in a format that Pillow reads."
    }
