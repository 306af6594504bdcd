"""A second experiment takes over what the first has done, and the first stays whole."""

from __future__ import annotations

from pathlib import Path

import pytest

from stillme.api.pipeline import RunOptions, run_stages
from stillme.core.errors import InvalidAudit, StillmeError
from stillme.runs import RecordedRun
from stillme.runs.store import Store
from tests.records import small_audit

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
