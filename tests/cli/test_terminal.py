"""What others wrote never steers the terminal."""

from __future__ import annotations

import json
import logging
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import stillme.cli
from stillme.cli import terminal

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
