"""Our side of a worker: start it, send requests, detect crashes and hangs, restart it."""

from __future__ import annotations

import contextlib
import os
import queue
import subprocess
import tempfile
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from stillme.core.types import Json
from stillme.editors.diffusion.worker.serve import BadFrame, read_frame, write_frame

SERVE = Path(__file__).with_name("serve.py")
_LAST_SECONDS = 5
"""From a worker's closed output to its exit."""
_STDERR_KEPT = 1500
"""Characters from the end of the worker's stderr that an error includes."""


class WorkerFault(Exception):
    """The worker could not answer; `retryable` if another try may help."""

    def __init__(self, message: str, *, retryable: bool, fatal: bool = False) -> None:
        super().__init__(message)
        self.retryable, self.fatal = retryable, fatal


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerReply:
    """What a worker sent back."""

    message: Mapping[str, Json]
    attached: Sequence[bytes]


class WorkerProcess:
    """A process that keeps weights loaded between edits. Started with the first request, and again after a crash."""

    def __init__(
        self,
        command: Sequence[str],
        parameters: Mapping[str, Json],
        *,
        timeout: float | None,
        loading: float | None = None,
        restarts: int | None = None,
    ) -> None:
        """`timeout` is for one answer, and for loading unless `loading` is another number of seconds."""
        self._command = (*command, str(os.getpid()))
        self._parameters, self._timeout, self._restarts = parameters, timeout, restarts
        self._loading = loading or timeout
        self._running: _Running | None = None
        self._unloadable: WorkerFault | None = None
        self._deaths = 0
        """Since the last edit."""

    def ask(self, message: Mapping[str, Json], attached: Sequence[bytes]) -> WorkerReply:
        """Send a request and wait for its answer. A process that crashes or hangs is replaced with the next request."""
        if self._unloadable is not None:
            raise self._unloadable
        if self._running is None:
            try:
                self._running = _Running(self._command)
                load = {"do": "load", "parameters": dict(self._parameters)}
                self._asked(self._running, load, [], self._loading)
            except WorkerFault as fault:
                self.close()
                # Kept, so that not every request waits for weights that do not load; a rerun tries again.
                self._unloadable = WorkerFault(f"the weights cannot be loaded: {fault}", retryable=True, fatal=True)
                raise self._unloadable from None
        answer = self._asked(self._running, message, attached, self._timeout)
        self._deaths = 0
        return answer

    def load_with(self, parameters: Mapping[str, Json]) -> None:
        """What the next process, if there is one, gets."""
        self._parameters = parameters

    def close(self) -> None:
        """End the process. A later request starts another."""
        self._unloadable = None
        if self._running is not None:
            self._running.end()
            self._running = None

    def _asked(
        self, running: _Running, message: Mapping[str, Json], attached: Sequence[bytes], timeout: float | None
    ) -> WorkerReply:
        try:
            answer = running.exchange(message, attached, timeout)
        except WorkerFault as fault:
            self.close()
            self._deaths += 1
            if self._restarts is not None and self._deaths > self._restarts:
                again = f"{fault} (for the {self._deaths}. time in a row)"
                self._unloadable = WorkerFault(again, retryable=True, fatal=True)
                raise self._unloadable from None
            raise
        if not answer.message.get("ok"):
            error = str(answer.message.get("error", "no reason given"))
            raise WorkerFault(error, retryable=bool(answer.message.get("retryable", True)))
        return answer


class _Running:
    """One process, and the thread that starts it and reads from it.

    On Linux a worker dies with the thread that started it. This one lives as long as the worker does.
    """

    def __init__(self, command: Sequence[str]) -> None:
        self._stderr = tempfile.TemporaryFile()  # noqa: SIM115 - kept open as long as the process runs
        self._received: queue.SimpleQueue[WorkerReply | BadFrame | None] = queue.SimpleQueue()
        started: queue.SimpleQueue[subprocess.Popen[bytes] | OSError] = queue.SimpleQueue()
        self._reader = threading.Thread(target=self._live, args=(command, started), daemon=True)
        self._reader.start()
        process = started.get()
        if isinstance(process, OSError):
            self._stderr.close()
            raise WorkerFault(f"{command[0]} cannot be started: {process.strerror}", retryable=True)
        assert process.stdin is not None
        assert process.stdout is not None
        self._process, self._requests, self._answers = process, process.stdin, process.stdout

    def _live(self, command: Sequence[str], started: queue.SimpleQueue[subprocess.Popen[bytes] | OSError]) -> None:
        try:
            # In its own session, so that Ctrl-C does not interrupt the current edit.
            process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._stderr, start_new_session=True
            )
        except OSError as error:
            started.put(error)
            return
        started.put(process)
        assert process.stdout is not None
        _read_answers(process.stdout, self._received)
        # Not before its exit status is there: it would be that of our signal.
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(_LAST_SECONDS)

    def exchange(self, message: Mapping[str, Json], attached: Sequence[bytes], timeout: float | None) -> WorkerReply:
        # In a thread: writing to a worker that stopped reading would block forever.
        threading.Thread(target=_send, args=(self._requests, message, attached), daemon=True).start()
        try:
            received = self._received.get(timeout=timeout)
        except queue.Empty:
            raise WorkerFault(
                f"the worker did not answer within {timeout:g} s{self._stderr_tail()}", retryable=True
            ) from None
        if isinstance(received, WorkerReply):
            return received
        if received is None:
            raise WorkerFault(f"the worker {self._how_it_ended()}{self._stderr_tail()}", retryable=True)
        raise WorkerFault(f"the worker violates the protocol: {received}{self._stderr_tail()}", retryable=True)

    def end(self) -> None:
        self._process.kill()
        self._process.wait()
        self._reader.join(_LAST_SECONDS)
        for stream in (self._requests, self._answers, self._stderr):
            with contextlib.suppress(OSError):  # unsent data has no reader any more
                stream.close()

    def _how_it_ended(self) -> str:
        try:
            code = self._process.wait(_LAST_SECONDS)
        except subprocess.TimeoutExpired:
            return "closed its output"
        return f"was killed by signal {-code}" if code < 0 else f"ended with exit code {code}"

    def _stderr_tail(self) -> str:
        self._stderr.seek(0)
        text = self._stderr.read().decode(errors="replace").strip()
        return f"; end of its stderr: …{text[-_STDERR_KEPT:]}" if text else ""


def _send(requests: IO[bytes], message: Mapping[str, Json], attached: Sequence[bytes]) -> None:
    stream: Any = requests
    with contextlib.suppress(OSError, ValueError):  # the reading thread notices that the process is gone
        write_frame(stream, dict(message), list(attached))


def _read_answers(answers: IO[bytes], received: queue.SimpleQueue[WorkerReply | BadFrame | None]) -> None:
    stream: Any = answers
    while True:
        try:
            frame = read_frame(stream)
        except BadFrame as error:
            received.put(error)
            return
        except (OSError, ValueError):
            frame = None  # closed while reading
        if frame is None:
            received.put(None)
            return
        received.put(WorkerReply(message=frame[0], attached=frame[1]))
