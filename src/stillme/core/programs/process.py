"""One process that ends with us, is killed with everything that it started, and leaves its last words."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO

_SUPERVISOR = Path(__file__).with_name("supervisor.py")
_LINES, _CHARACTERS = 6, 1500
"""How much of the end of its output a failure keeps."""
MAX_OUTPUT = 2**20
"""Bytes that are read of what it wrote, from the end."""
_LAST_SECONDS = 5.0
"""From a closed output to the exit."""


class SupervisedProcess:
    """A command line that was started without a shell."""

    def __init__(
        self,
        command: Sequence[str],
        *,
        folder: Path | None = None,
        stdin: int = subprocess.DEVNULL,
        stdout: int | IO[bytes] = subprocess.PIPE,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 - kept open as long as the process runs
        lifeline, self._lifeline = os.pipe()
        try:
            # A group of its own: Ctrl-C lets the call end, and everything in it can be killed together.
            self._popen = subprocess.Popen(
                [sys.executable, "-I", "-S", str(_SUPERVISOR), str(lifeline), *command],
                cwd=folder,
                stdin=stdin,
                stdout=stdout,
                stderr=self._errors,
                pass_fds=(lifeline,),
                start_new_session=True,
                env=environment,
            )
        except (OSError, ValueError):
            os.close(self._lifeline)
            self._errors.close()
            raise
        finally:
            os.close(lifeline)
        self.stdin, self.stdout = self._popen.stdin, self._popen.stdout

    def wait(self, seconds: float | None = _LAST_SECONDS) -> int | None:
        """The exit code; None if it still runs."""
        try:
            return self._popen.wait(seconds)
        except subprocess.TimeoutExpired:
            return None

    def kill(self) -> None:
        """Kill the whole group."""
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self._popen.pid, signal.SIGKILL)

    def last_words(self) -> str:
        """The end of its standard error."""
        return end_of(self._errors).strip()

    def close(self) -> None:
        """Kill what still runs, and release everything."""
        self.kill()
        self._popen.wait()
        for stream in (self.stdin, self.stdout, self._errors):
            with suppress(OSError):  # unsent data has no reader any more
                if stream:
                    stream.close()
        with suppress(OSError):
            os.close(self._lifeline)
        self._lifeline = -1


def ended(code: int, words: str) -> str:
    """How a process ended, and its last words."""
    return f"{_ending(code)}: {shortened(words)}"


def out_of_time(seconds: float, words: str) -> str:
    """A process that was killed at its time limit, and its last words."""
    return f"not done after {seconds:g} s, and killed: {shortened(words)}"


def shortened(words: str) -> str:
    """The last lines in one."""
    lines = [line.strip() for line in words.splitlines() if line.strip()][-_LINES:]
    return " | ".join(lines)[-_CHARACTERS:] or "it wrote nothing to standard error"


def end_of(stream: IO[bytes]) -> str:
    """The end of what was written to a file."""
    length = stream.seek(0, os.SEEK_END)
    stream.seek(max(0, length - MAX_OUTPUT))
    return stream.read().decode(errors="replace")


def _ending(code: int) -> str:
    if 0 <= code <= 128:
        return f"exit code {code}"
    number = code - 128 if code > 0 else -code
    try:
        return f"killed by {signal.Signals(number).name}"
    except ValueError:
        return f"killed by signal {number}"
