"""The command line in a process of its own, forked from one that has imported stillme: a start takes no second.

The process is as real as any other: it has its own id and group, `kill -9` ends it, and nothing of the tests is in it.
"""

from __future__ import annotations

import atexit
import multiprocessing
import os
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import weakref
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import psutil

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
        "stillme.editors.own",
        "stillme.findings.evidence.sealing",
        "stillme.findings.evidence.sealing",
        "stillme.findings.gate",
        "stillme.judges.given",
        "stillme.judges.given",
        "stillme.api.pipeline",
        "stillme.curation.app",
        "stillme.curation.making",
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
        merged: bool = False,
    ) -> None:
        """Start it; `before` is called in the new process, and must be known to others by its name.

        `merged` has both outputs in one, as a terminal shows them.
        """
        outputs = Path(tempfile.mkdtemp(prefix="stillme-output-"))
        weakref.finalize(self, shutil.rmtree, outputs, ignore_errors=True)
        self._files = (outputs / "stdout", outputs / ("stdout" if merged else "stderr"))
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

    def said(self) -> str:
        """What it has printed so far, errors last."""
        return "".join(file.read_text("utf-8") for file in dict.fromkeys(self._files) if file.exists())

    def wait_until(self, happened: Callable[[], object], seconds: float = 120) -> None:
        """Wait for something that it does before it ends; on a busy machine that takes its time."""
        end = time.monotonic() + seconds
        while not happened():
            assert self.poll() is None, f"it ended before: {self.said()}"
            assert time.monotonic() < end, f"it never happened: {self.said()}"
            time.sleep(0.02)

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
    seconds: float = 300,
    environment: Mapping[str, str] | None = None,
    cwd: Path | None = None,
    before: Callable[[], object] | None = None,
    merged: bool = False,
) -> subprocess.CompletedProcess[str]:
    """Run a command to its end."""
    run = Started(*words, environment=environment, cwd=cwd, before=before, merged=merged)
    try:
        stdout, stderr = run.communicate(seconds)
    except subprocess.TimeoutExpired:
        run.kill()
        raise
    return subprocess.CompletedProcess(["stillme", *map(str, words)], run.wait(), stdout, stderr)


def ran(*words: object, code: int = 0, **how: Any) -> subprocess.CompletedProcess[str]:
    """A command that must end with this code."""
    done = stillme(*words, **how)
    assert done.returncode == code, (words, done.stdout, done.stderr)
    return done


def installed(*folders: Path) -> dict[str, str]:
    """The environment of a user who has installed stillme, and what is in `folders`: without the tests' plugins."""
    return os.environ | {
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        "PYTHONPATH": os.pathsep.join(map(str, (*folders, Path(__import__("stillme").__file__).parent.parent))),
    }


def typed(
    line: str, *, cwd: Path, environment: Mapping[str, str], before: Callable[[], object] | None = None
) -> subprocess.CompletedProcess[str]:
    """Type a line into a shell, which is only asked where there is more in it than `stillme` and its words."""
    words = shlex.split(line, comments=True)
    if words[0] == "stillme" and not set(line.partition("#")[0]) & set("|<>&;$"):
        return stillme(*words[1:], seconds=400, environment=environment, cwd=cwd, before=before, merged=True)
    shell = ["bash", "-c", line]
    outputs: Any = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
    return subprocess.run(shell, cwd=cwd, env=dict(environment), text=True, timeout=400, check=False, **outputs)


def all_end(numbers: Iterable[int], seconds: float = 10) -> bool:
    """Whether these processes, of whichever parent, end in time."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if not any(psutil.pid_exists(n) and psutil.Process(n).status() != psutil.STATUS_ZOMBIE for n in numbers):
            return True
        time.sleep(0.02)
    return False


def _run(
    words: list[str],
    environment: dict[str, str],
    folder: str,
    stdout: str,
    stderr: str,
    before: Callable[[], object] | None,
) -> None:
    os.setsid()
    # An interpreter that starts with this environment would look in these folders first.
    before_it = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    sys.path[:] = [path for path in sys.path if path not in before_it]
    sys.path[:0] = filter(None, environment.get("PYTHONPATH", "").split(os.pathsep))
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
