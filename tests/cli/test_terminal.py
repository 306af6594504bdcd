"""What others wrote never steers the terminal; progress is a bar there and plain lines elsewhere."""

from __future__ import annotations

import json
import logging
import os
import re
import subprocess
import sys
from collections import Counter
from contextlib import suppress
from pathlib import Path

import pytest

import stillme.cli
from stillme.cli import terminal
from stillme.cli.progress import Progress, progress
from stillme.cli.tables import Tables
from stillme.findings.tables.analyses import Written
from stillme.work.tally import Ended, Tally

HOSTILE = "\x1b]0;owned\x07 \x9b2J \x7f \r \u202etxt.exe \u2066 \u2028"
OBEYED = re.compile("[\x00-\x09\x0b-\x1f\x7f-\x9f\u200e-\u202e\u2066-\u2069]")


def test_control_characters_are_not_printed_and_words_are(capsys: pytest.CaptureFixture[str]):
    terminal.echo(HOSTILE)
    terminal.echo("Zoë → 中文 👩🏽\u200d⚕️ שלום", err=True)
    printed = capsys.readouterr()
    assert not OBEYED.search(printed.out)
    assert "txt.exe" in printed.out
    assert printed.err == "Zoë → 中文 👩🏽\u200d⚕️ שלום\n"


def test_json_reads_back_what_was_said():
    shown = terminal.json_text({"words": HOSTILE, "name": "Zoë"})
    assert not OBEYED.search(shown)
    assert "Zoë" in shown
    assert json.loads(shown) == {"words": HOSTILE, "name": "Zoë"}


def test_log_lines_are_cleaned(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch):
    logger = logging.getLogger("stillme")
    monkeypatch.setattr(logger, "handlers", [])
    monkeypatch.setattr(logger, "propagate", logger.propagate)
    terminal.configure_logs(0)
    logger.warning("the server said %s", HOSTILE)
    printed = capsys.readouterr().err
    assert "the server said" in printed
    assert not OBEYED.search(printed)


def test_every_command_prints_through_the_same_door():
    folder = Path(stillme.cli.__file__).parent
    printing = re.compile(r"click\.s?echo\b|(?<![\w.])print\(|std(?:out|err)\.write")
    files = [file.name for file in sorted(folder.glob("*.py")) if printing.search(file.read_text("utf-8"))]
    assert files == ["terminal.py"]


def test_output_that_nobody_reads_is_no_verdict():
    """Click ends with 1 there, which says that a check failed; `| head` must not fail a gate, nor pass one."""
    command = [sys.executable, "-m", "stillme", "list", "prompts", "diagnostic"]
    reading, writing = os.pipe()
    os.close(reading)
    ended = subprocess.run(command, stdout=writing, stderr=subprocess.PIPE)
    os.close(writing)
    assert (ended.returncode, ended.stderr) == (141, b"")


Captured = pytest.CaptureFixture[str]


def stage(name: str, done: int, **more: int) -> Tally:
    return Tally(name=name, total=100, counts=Counter(edited=done, **more), cost=1.5)


@pytest.fixture
def shown_in_a_terminal(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("TTY_COMPATIBLE", "1")
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "120")


def plain(text: str) -> str:
    return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", text)


def test_a_stage_tells_rate_time_left_cost_and_failures(shown_in_a_terminal: None, capsys: Captured):
    shown = Progress(bar=True)
    shown(stage("edit ours", 40, failed=3))
    shown.end()
    drawn = plain(capsys.readouterr().err)
    assert re.search(r"edit ours .*43/100  [\d,.]+/s  0:00 left  \$1\.50  3 failed", drawn), drawn


def test_an_interrupted_command_shows_the_cursor_again(
    shown_in_a_terminal: None, monkeypatch: pytest.MonkeyPatch, capsys: Captured
):
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    with suppress(KeyboardInterrupt), progress() as shown:
        shown(stage("edit ours", 40))
        raise KeyboardInterrupt
    drawn = capsys.readouterr().err
    assert drawn.rfind("\x1b[?25h") > drawn.rfind("\x1b[?25l") >= 0, "as after SIGTERM, which raises the same"


def test_stages_that_run_together_have_a_bar_each(shown_in_a_terminal: None, capsys: Captured):
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


def test_a_name_does_not_steer_the_terminal(shown_in_a_terminal: None, capsys: Captured):
    shown = Progress(bar=True)
    shown(stage("edit \x1b]0;owned\x07 [red]", 40))
    shown.end()
    drawn = capsys.readouterr().err
    assert "\x1b]0;" not in drawn
    assert "[red]" in drawn


def test_results_go_to_standard_output_while_a_bar_is_drawn(shown_in_a_terminal: None, capsys: Captured):
    shown = Progress(bar=True)
    tables = Tables(shown, to_errors=False)
    tables.starts("contrasts", 1, 22)
    tables.ends("contrasts", Written(path=Path("contrasts.csv"), rows=5850))
    shown.end()
    out, err = capsys.readouterr()
    assert out == "contrasts        5,850 rows  contrasts.csv\n"
    assert "contrasts" in plain(err)
