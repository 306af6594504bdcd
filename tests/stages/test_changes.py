from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from stillme.api.pipeline import RunOptions, run_stages
from stillme.core.errors import AuditChanged
from stillme.judges.given import Scripted

Write = Callable[..., Path]
PLANTED = 'use = "scripted"\nparameters = {{ share = {} }}'


def run(folder: Path, *, accept: bool = False) -> tuple[list[str], dict[str, int]]:
    said: list[str] = []
    summary = run_stages(folder, ("edit", "judge"), RunOptions(say=said.append, allow_changes=accept))
    return said, dict(summary.tallies[0].counts)


def test_an_unchanged_audit_says_nothing(write_audit: Write):
    run(write_audit())
    assert run(write_audit()) == ([], {})


def test_more_prompts_are_added_to_what_is_there(write_audit: Write):
    run(write_audit(prompts='["O-01"]'))
    said, counts = run(write_audit(prompts='["O-01", "O-02"]'))
    assert counts == {"edited": 6}
    assert "6 edits kept, 6 to make" in said[0]
    assert "prompts.only[1]: absent → O-02" in said[0]


def test_work_that_would_be_redone_must_be_agreed_to(write_audit: Write):
    run(write_audit('use = "flaky"\nparameters = { failures = 0 }'))
    changed = write_audit('use = "flaky"\nparameters = { failures = 1 }')
    with pytest.raises(AuditChanged) as caught:
        run(changed)
    assert "editors[0].parameters.failures: 0 → 1" in str(caught.value)
    assert "0 edits kept, 12 to make." in str(caught.value)
    assert "12 edits of the old configuration stay in the ledger" in str(caught.value)
    assert "--allow-changes" in str(caught.value)
    _, counts = run(changed, accept=True)
    assert counts == {"edited": 12}


def test_another_setting_of_a_judge_must_be_agreed_to(write_audit: Write):
    run(write_audit(judge=PLANTED.format(0)))
    with pytest.raises(AuditChanged, match="The judge 'scripted' would rate all edits again"):
        run(write_audit(judge=PLANTED.format(0.5)))


def test_a_judge_with_another_version_is_named(write_audit: Write, monkeypatch: pytest.MonkeyPatch):
    run(write_audit(judge=PLANTED.format(0)))
    original = Scripted.__init__

    def upgraded(self: Scripted, parameters: Any) -> None:
        original(self, parameters)
        object.__setattr__(self.spec, "version", "2")

    monkeypatch.setattr(Scripted, "__init__", upgraded)
    with pytest.raises(AuditChanged, match="judge 'scripted' version changed: 1 → 2"):
        run(write_audit(judge=PLANTED.format(0)))
