"""The command line in a process of its own, forked from one that has imported stillme: a start takes no second.

The process is as real as any other: it has its own id and group, `kill -9` ends it, and nothing of the tests is in it.
"""

from __future__ import annotations

import atexit
import multiprocessing
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import weakref
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

_FORKS = multiprocessing.get_context("forkserver")
_FORKS.set_forkserver_preload(
    [
        "tests.processes",
        "scipy.special",
        "s3fs",
        "stillme.api.python",
        "stillme.cli.stages",
        "stillme.cli.look",
        "stillme.api.doctor",
        "stillme.editors.function",
        "stillme.findings.evidence.sealing",
        "stillme.findings.evidence.verifying",
        "stillme.findings.gate",
        "stillme.judges.people",
        "stillme.judges.scripted",
        "stillme.api.pipeline",
        "stillme.report.writing",
        "stillme.runs.status",
        "stillme.study.closing",
        "stillme.study.drawing",
    ]
)


class Started:
    """A `stillme` that was started: as much of `subprocess.Popen` as tests need."""

    def __init__(
        self,
        *words: object,
        environment: Mapping[str, str] | None = None,
        cwd: Path | None = None,
        before: Callable[[], object] | None = None,
    ) -> None:
        """Start it; `before` is called in the new process, and must be known to others by its name."""
        outputs = Path(tempfile.mkdtemp(prefix="stillme-output-"))
        weakref.finalize(self, shutil.rmtree, outputs, ignore_errors=True)
        self._files = (outputs / "stdout", outputs / "stderr")
        everything = {**os.environ, **(environment or {})}
        arguments = ([*map(str, words)], everything, str(cwd or Path.cwd()), *map(str, self._files), before)
        self._process = _FORKS.Process(target=_run, args=arguments)
        self._process.start()
        assert self._process.pid is not None
        self.pid = self._process.pid

    @property
    def returncode(self) -> int | None:
        """How it ended; the number of the signal below 0, None while it runs."""
        return self._process.exitcode

    def poll(self) -> int | None:
        """How it ended, if it has."""
        return self._process.exitcode

    def wait(self, timeout: float | None = None) -> int:
        """Wait for its end, and say how it ended."""
        self._process.join(timeout)
        if self._process.exitcode is None:
            raise subprocess.TimeoutExpired("stillme", timeout or 0.0)
        return self._process.exitcode

    def communicate(self, timeout: float | None = None) -> tuple[str, str]:
        """What it printed, when it has ended."""
        self.wait(timeout)
        return self._files[0].read_text("utf-8"), self._files[1].read_text("utf-8")

    def send_signal(self, number: int) -> None:
        """Send a signal to it alone."""
        os.kill(self.pid, number)

    def kill(self) -> None:
        """Kill -9 it and all that it started; nothing happens if it has ended."""
        if self._process.exitcode is None:
            try:
                os.killpg(self.pid, signal.SIGKILL)
            except ProcessLookupError:
                # It has not made its own group yet.
                os.kill(self.pid, signal.SIGKILL)


def stillme(
    *words: object,
    seconds: float = 120,
    environment: Mapping[str, str] | None = None,
    cwd: Path | None = None,
    before: Callable[[], object] | None = None,
) -> subprocess.CompletedProcess[str]:
    """Run a command to its end."""
    run = Started(*words, environment=environment, cwd=cwd, before=before)
    try:
        stdout, stderr = run.communicate(seconds)
    except subprocess.TimeoutExpired:
        run.kill()
        raise
    return subprocess.CompletedProcess(["stillme", *map(str, words)], run.wait(), stdout, stderr)


def _run(
    words: list[str],
    environment: dict[str, str],
    folder: str,
    stdout: str,
    stderr: str,
    before: Callable[[], object] | None,
) -> None:
    os.setsid()
    os.environ.clear()
    os.environ.update(environment)
    os.chdir(folder)
    tempfile.tempdir = None
    for number, file in ((1, stdout), (2, stderr)):
        opened = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        os.dup2(opened, number)
        os.close(opened)
    main: Any = __import__("stillme.cli", fromlist=["main"]).main
    sys.argv = ["stillme", *words]
    if before:
        before()
    try:
        main()
    finally:
        # A forked process ends without them, and an interpreter does not.
        atexit._run_exitfuncs()
