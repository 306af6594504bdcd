"""A limited run: the first requests of each editor, judged and shown, and nothing else."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from stillme.api.pipeline import RunOptions, run_stages
from tests.command_lines import ran


def test_one_request_of_each_editor_is_made_judged_and_shown(write_audit: Callable[..., Path]):
    folder = write_audit()
    stages = ("edit", "judge", "estimate", "report")
    summary = run_stages(folder, stages, RunOptions(limit=1))
    assert summary.tallies[0].counts == {"edited": 1}
    assert all(sum(tally.counts.values()) == 1 for tally in summary.tallies[1:])
    edit, *answers = summary.samples
    assert "pixels" in edit
    assert answers
    assert summary.report is None
    again = run_stages(folder, stages, RunOptions(limit=1))
    assert not any(tally.counts for tally in again.tallies), "the same request again"
    assert again.samples == summary.samples
    whole = run_stages(folder, stages)
    assert whole.tallies[0].counts == {"edited": 11}
    assert whole.report is not None


def test_the_command_line_shows_it(write_audit: Callable[..., Path]):
    shown = ran("run", write_audit(), "--limit", 1)
    assert "pixels" in shown.output
    assert "stillme run" in shown.output
