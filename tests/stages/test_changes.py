"""What a second run keeps, makes again when that was agreed to, and takes over from another run."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from stillme.api.pipeline import RunOptions, run_stages
from stillme.core.errors import AuditChanged, InvalidAudit, StillmeError
from stillme.judges.given import Scripted
from stillme.runs import RecordedRun
from stillme.runs.store import Store
from tests.records import small_audit

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


STAGES = ("edit", "judge", "estimate")


def write(folder: Path, portraits: Path, **sections: object) -> Path:
    source, estimates = {"source": str(portraits)}, {"factors": ["group"]}
    return small_audit(folder, prompts=("O-01", "O-02"), portraits=source, estimates=estimates, **sections)


def mitigation(tmp_path: Path, portraits: Path) -> Path:
    reuse = {"sample": {"size": 4}, "reuse": {"runs": ["../diagnosis"]}}
    return write(tmp_path / "mitigation", portraits, arms=["baseline", "noop"], **reuse)


def rows(folder: Path) -> int:
    with RecordedRun.open(folder) as run:
        return len(run.results.edits)


def test_baselines_are_taken_from_the_first_experiment_which_keeps_all_of_its_rows(tmp_path: Path, portraits: Path):
    first = write(tmp_path / "diagnosis", portraits)
    run_stages(first, STAGES)
    second, said = mitigation(tmp_path, portraits), list[str]()
    summary = run_stages(second, STAGES, RunOptions(say=said.append))
    edit, judge = summary.tallies
    noops = edit.counts["edited"]
    assert (edit.already, edit.total) == (4, 4 + noops)
    assert (judge.already, judge.counts["judged"]) == (4, noops)
    assert "Taken from ../diagnosis: 4 edits, 4 judgements, 0 descriptions." in said
    assert (rows(first), rows(second)) == (12, 4 + noops)
    with RecordedRun.open(first) as one, RecordedRun.open(second) as other:
        assert {row.request.key for row in other.rows() if row.request.arm == "baseline"} <= {
            row.request.key for row in one.rows()
        }
        assert all(other.picture(row.image).is_file() for row in other.rows())
    said.clear()
    run_stages(second, STAGES, RunOptions(say=said.append))
    assert not [note for note in said if note.startswith("Taken")], "what was taken over is not taken again"


def test_descriptions_are_taken_over_and_with_them_the_edits_that_need_them(tmp_path: Path):
    """An extractor is asked once for two audits."""
    common = {"arms": ["feature"], "prompts": ["O-01"], "limit": 1, "estimates": {"factors": []}}
    for name, reuse in (("one", {}), ("two", {"reuse": {"runs": ["../one"]}})):
        small_audit(tmp_path / name, **common, **reuse)
    run_stages(tmp_path / "one", ("edit",))
    said = list[str]()
    run_stages(tmp_path / "two", ("edit",), RunOptions(say=said.append))
    assert "Taken from ../one: 1 edits, 0 judgements, 1 descriptions." in said
    with Store.reading(tmp_path / "two") as store:
        assert store.totals().cost == 0


def test_a_run_that_is_not_there_is_named(tmp_path: Path, portraits: Path):
    second = mitigation(tmp_path, portraits)
    with pytest.raises(InvalidAudit, match=r"reuse.runs\[0\]: '../diagnosis' is not a folder"):
        run_stages(second, STAGES)
    (tmp_path / "diagnosis").mkdir()
    with pytest.raises(StillmeError, match=r"diagnosis of \[reuse\] has no run yet"):
        run_stages(second, STAGES)
