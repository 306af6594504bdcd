"""Progress is a bar on a terminal and plain lines elsewhere; results on standard output stay whole."""

from __future__ import annotations

import re
from collections import Counter
from contextlib import suppress
from pathlib import Path

import pytest

from stillme.cli.progress import Progress, progress
from stillme.cli.tables import Tables
from stillme.findings.tables.analyses import Written
from stillme.work.tally import Ended, Tally

Captured = pytest.CaptureFixture[str]


def stage(name: str, done: int, **more: int) -> Tally:
    return Tally(name=name, total=100, counts=Counter(edited=done, **more), cost=1.5)


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("TTY_COMPATIBLE", "1")
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "120")


def plain(text: str) -> str:
    return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", text)


def test_a_stage_tells_rate_time_left_cost_and_failures(terminal: None, capsys: Captured):
    shown = Progress(bar=True)
    shown(stage("edit ours", 40, failed=3))
    shown.end()
    drawn = plain(capsys.readouterr().err)
    assert re.search(r"edit ours .*43/100  [\d,.]+/s  0:00 left  \$1\.50  3 failed", drawn), drawn


def test_an_interrupted_command_shows_the_cursor_again(
    terminal: None, monkeypatch: pytest.MonkeyPatch, capsys: Captured
):
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    with suppress(KeyboardInterrupt), progress() as shown:
        shown(stage("edit ours", 40))
        raise KeyboardInterrupt
    drawn = capsys.readouterr().err
    assert drawn.rfind("\x1b[?25h") > drawn.rfind("\x1b[?25l") >= 0, "as after SIGTERM, which raises the same"


def test_stages_that_run_together_have_a_bar_each(terminal: None, capsys: Captured):
    shown = Progress(bar=True)
    for tally in (stage("edit ours", 40), stage("judge qwen", 20)):
        shown(tally)
    shown.end()
    drawn = plain(capsys.readouterr().err).splitlines()
    assert drawn[-2].startswith("edit ours: 40/100")
    assert drawn[-1].startswith("judge qwen: 20/100")


def test_without_a_terminal_progress_is_plain_lines(capsys: Captured):
    with progress() as shown:
        shown(stage("edit ours", 40))
        done = stage("edit ours", 100)
        done.end(Ended.COMPLETE)
        shown(done)
        shown(done)
    lines = capsys.readouterr().err.splitlines()
    assert [line.split("  ")[0] for line in lines] == ["edit ours: 40/100", "edit ours: 100/100"]
    assert "\x1b" not in "".join(lines)


def test_a_name_does_not_steer_the_terminal(terminal: None, capsys: Captured):
    shown = Progress(bar=True)
    shown(stage("edit \x1b]0;owned\x07 [red]", 40))
    shown.end()
    drawn = capsys.readouterr().err
    assert "\x1b]0;" not in drawn
    assert "[red]" in drawn


def test_results_go_to_standard_output_while_a_bar_is_drawn(terminal: None, capsys: Captured):
    shown = Progress(bar=True)
    tables = Tables(shown, to_errors=False)
    tables.starts("contrasts", 1, 22)
    tables.ends("contrasts", Written(path=Path("contrasts.csv"), rows=5850))
    shown.end()
    out, err = capsys.readouterr()
    assert out == "contrasts        5,850 rows  contrasts.csv\n"
    assert "contrasts" in plain(err)
