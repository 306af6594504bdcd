"""Every try is kept, not only the last."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path

import pytest

from stillme.api.pipeline import run_stages
from stillme.cli.terminal import configure_logs
from stillme.core.redaction import redacted
from stillme.runs import RecordedRun
from stillme.runs.store import Store
from stillme.runs.store.exported import ATTEMPTS, rows_of, tables_in

Write = Callable[..., Path]
TWICE = 'use = "flaky"\nparameters = { failures = 2, cost = 0.5 }'


def test_each_failed_try_is_kept_for_good_with_its_error_and_cost_also_where_the_next_succeeded(write_audit: Write):
    folder = write_audit(TWICE, prompts='["O-01"]')
    run_stages(folder, ("edit",))
    with RecordedRun.open(folder) as run:
        (row, *_) = run.rows()
        tries = list(run.store.attempts.of(row.request.key))
        assert row.edit.outcome == "edited"
        assert [attempt.number for attempt in tries] == [1, 2]
        assert {attempt.error for attempt in tries} == {"503 from nowhere"}
        assert {attempt.cost for attempt in tries} == {0.5}
        assert run.totals().cost == pytest.approx(6 * 1.5), "the row has the cost of all tries"
    with Store.writing(folder) as store:
        assert ATTEMPTS in tables_in(store)
        assert len(list(rows_of(store, ATTEMPTS))) == 12
        with pytest.raises(Exception, match="append-only"):
            store.query("DELETE FROM attempt")


def test_a_judge_that_raises_leaves_its_reason_in_the_summary(write_audit: Write):
    # Fewer failures in a row than the stage would pause for.
    judge = 'use = "python:./bad.py:rate"\nparameters = { axes = ["skin_tone"] }'
    folder = write_audit(judge=judge, prompts='["O-01"]', extra="[executor]\nattempts = 1")
    (folder / "bad.py").write_text("def rate(source, edited):\n    raise OSError('the model is gone')\n")
    summary = run_stages(folder, ("edit", "judge"))
    assert "judge failed 6×: OSError: the model is gone" in summary.as_text()
    assert summary.as_json()["failures"] == [{"stage": "judge", "reason": "OSError: the model is gone", "count": 6}]


def test_the_log_says_what_failed_and_never_a_key(
    write_audit: Write, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.setenv("SOME_API_KEY", "sk-very-secret-123")
    assert redacted("asked with sk-very-secret-123") == "asked with …"
    assert "abc" not in redacted("GET /v1?key=abcdefg Authorization: Bearer abc.def1234 https://me:abc@host/")
    logger = logging.getLogger("stillme")
    monkeypatch.setattr(logger, "handlers", [])
    monkeypatch.setattr(logger, "propagate", True)
    monkeypatch.setenv("STILLME_LOG", "info")
    configure_logs(0)
    run_stages(write_audit(TWICE, prompts='["O-01"]'), ("edit",))
    assert "attempt 1 failed: 503 from nowhere" in capsys.readouterr().err
    logger.setLevel(logging.NOTSET)
