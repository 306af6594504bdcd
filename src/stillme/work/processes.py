"""A worker in a process of its own: a call that takes its process down takes nothing else with it.

Both sides speak in pickled frames, which are here: run as a program, `worker_process` is `__main__`, and its classes
could not be unpickled elsewhere.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import pickle
import queue
import struct
import subprocess
import sys
import threading
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import IO, Any

from stillme.core.errors import StillmeError
from stillme.core.programs.process import SupervisedProcess, ended
from stillme.core.types import Failed
from stillme.work.workers import WorkerSpec

DEATHS = 2
"""How often a call may end its worker when it is alone there, before it is given up in this run."""
_START_SECONDS = 300.0
_LAST_SECONDS = 5.0
"""From the end of its input to its exit."""

_HEADER = struct.Struct(">Q")


@dataclass(frozen=True, slots=True)
class TaskBatch:
    """Tasks with a number by which their results are recognised."""

    number: int
    tasks: Sequence[Any]


@dataclass(frozen=True, slots=True)
class Ready:
    """The worker is built; or why it could not be."""

    problem: str = ""


@dataclass(frozen=True, slots=True)
class TaskResults:
    """What became of a batch."""

    number: int
    results: Sequence[Any]
    problem: str = ""
    """Why there are none."""


def write(stream: IO[bytes], frame: object) -> None:
    """Send one frame."""
    data = pickle.dumps(frame)
    stream.write(_HEADER.pack(len(data)) + data)
    stream.flush()


def read(stream: IO[bytes]) -> Any:
    """The next frame; None when the other side is gone."""
    header = stream.read(_HEADER.size)
    if len(header) < _HEADER.size:
        return None
    (size,) = _HEADER.unpack(header)
    data = stream.read(size)
    return pickle.loads(data) if len(data) == size else None


class WorkerDied(Exception):
    """The process ended while it was asked."""


class Isolation:
    """Finds the call that took a worker down.

    When a worker dies, everything under way in it is suspect. Suspects are tried again one at a time, each alone: the
    innocent succeed, and the guilty are known.
    """

    def __init__(
        self,
        ask: Callable[..., list[Any]],
        failed: Callable[[Failed], Any],
        *,
        first_death_counts: bool,
        deaths: int = DEATHS,
    ) -> None:
        """`ask(tasks, alone=…)` raises `WorkerDied`; the first death counts where one call is made at a time."""
        self._ask, self._failed, self._deaths = ask, failed, deaths
        self._first_death_counts = first_death_counts

    def perform(self, tasks: Sequence[Any]) -> list[Any]:
        """One result per task; a task that ends its worker has failed."""
        try:
            return self._ask(tasks, alone=False)
        except WorkerDied as died:
            if len(tasks) == 1 and self._first_death_counts:
                return [self._perform_alone(tasks[0], deaths=1, reason=str(died))]
        return [self._perform_alone(task) for task in tasks]

    def _perform_alone(self, task: Any, deaths: int = 0, reason: str = "its worker ended") -> Any:
        while deaths < self._deaths:
            try:
                return self._ask([task], alone=True)[0]
            except WorkerDied as died:
                deaths, reason = deaths + 1, str(died)
        error = f"this request ends its worker: {reason} ({deaths} times)"
        return self._failed(Failed(error=error, retryable=False, status="worker ended"))


def out_of_time(seconds: float) -> Failed:
    """A call took too long."""
    return Failed(error=f"no answer within {seconds:g} s, its time limit", retryable=True, status="time limit")


class ProcessWorker:
    """Performs batches in one process, as many at once as allowed."""

    ends_calls = True
    ready = True

    def __init__(self, spec: WorkerSpec, failed: Callable[[Failed], Any], *, concurrency: int, seconds: float) -> None:
        self._worker_spec, self.failed, self._seconds = spec, failed, seconds
        self.calls = concurrency
        self.perform = Isolation(self._ask, failed, first_death_counts=concurrency == 1).perform
        self._alone = _Alone()
        self._starting = threading.Lock()
        self._process: _Process | None = None
        self._closed = False

    def close(self) -> None:
        """End the process."""
        with self._starting:
            self._closed = True
            if self._process:
                self._process.end(_LAST_SECONDS)

    def _ask(self, tasks: Sequence[Any], *, alone: bool) -> list[Any]:
        with self._alone.without_others() if alone else self._alone.among_others():
            process = self._running()
            try:
                results = process.ask(tasks, self._seconds)
            except TimeoutError:
                process.end()
                return [self.failed(out_of_time(self._seconds))] * len(tasks)
        if results.problem:
            return [self.failed(Failed(error=results.problem, retryable=True))] * len(tasks)
        return list(results.results)

    def _running(self) -> _Process:
        with self._starting:
            if self._closed:
                raise StillmeError("The run has ended.")
            if self._process and self._process.ended:
                self._process.end()
                self._process = None
            self._process = self._process or _Process(self._worker_spec, self.calls)
            return self._process


class _Process:
    """One process, and the thread that reads from it."""

    def __init__(self, spec: WorkerSpec, concurrency: int) -> None:
        self._process = SupervisedProcess(
            [sys.executable, "-m", "stillme.work.worker_process"],
            stdin=subprocess.PIPE,
            environment={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        )
        self._numbers = itertools.count()
        self._waiting: dict[int, queue.SimpleQueue[TaskResults | None]] = {}
        self._lock = threading.Lock()
        self._ready: queue.SimpleQueue[Ready | None] = queue.SimpleQueue()
        self.ended = False
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        self._send((spec, concurrency))
        try:
            ready = self._ready.get(timeout=_START_SECONDS)
        except queue.Empty:
            ready = Ready(f"it did not start within {_START_SECONDS:g} s")
        problem = self.how_it_ended() if ready is None else ready.problem
        if problem:
            self.end()
            raise StillmeError(
                f"{spec.recipe.kind} {spec.recipe.use!r} cannot work in a process of its own: {problem}. To have "
                "it work in this one, write isolate = false in [executor]."
            )

    def ask(self, tasks: Sequence[Any], seconds: float) -> TaskResults:
        answer: queue.SimpleQueue[TaskResults | None] = queue.SimpleQueue()
        with self._lock:
            number = next(self._numbers)
            self._waiting[number] = answer
            if self.ended:
                answer.put(None)
        self._send(TaskBatch(number, tasks))
        try:
            results = answer.get(timeout=seconds)
        except queue.Empty:
            raise TimeoutError from None
        if results is None:
            raise WorkerDied(self.how_it_ended())
        return results

    def end(self, grace: float = 0.0) -> None:
        """Close its input, at which it releases what it holds and goes; kill it if it does not."""
        assert self._process.stdin is not None
        with contextlib.suppress(OSError, ValueError):
            self._process.stdin.close()
        self._process.wait(grace)
        self._process.kill()
        self.ended = True
        self._reader.join(_LAST_SECONDS)
        self._process.close()

    def how_it_ended(self) -> str:
        code = self._process.wait()
        if code is None:
            return "it closed its output"
        try:
            words = self._process.last_words()
        except ValueError:  # closed by another thread
            words = ""
        return ended(code, words)

    def _send(self, frame: object) -> None:
        assert self._process.stdin is not None
        # A process that is gone is noticed by the thread that reads from it.
        with contextlib.suppress(OSError, ValueError), self._lock:
            write(self._process.stdin, frame)

    def _read(self) -> None:
        assert self._process.stdout is not None
        while True:
            try:
                frame = read(self._process.stdout)
            except Exception:  # half a frame of a process that is gone
                frame = None
            if isinstance(frame, TaskResults):
                self._waiting.pop(frame.number).put(frame)
            elif isinstance(frame, Ready):
                self._ready.put(frame)
            else:
                break
        with self._lock:
            self.ended = True
            waiting = list(self._waiting.values())
        self._ready.put(None)
        for answer in waiting:
            answer.put(None)


class _Alone:
    """Many at once, or one alone: who waits to be alone goes first."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._others = 0
        self._wanted = 0
        self._busy = False

    @contextmanager
    def among_others(self) -> Generator[None]:
        with self._changed:
            self._changed.wait_for(lambda: not self._busy and not self._wanted)
            self._others += 1
        try:
            yield
        finally:
            with self._changed:
                self._others -= 1
                self._changed.notify_all()

    @contextmanager
    def without_others(self) -> Generator[None]:
        with self._changed:
            self._wanted += 1
            self._changed.wait_for(lambda: not self._busy and not self._others)
            self._wanted -= 1
            self._busy = True
        try:
            yield
        finally:
            with self._changed:
                self._busy = False
                self._changed.notify_all()
