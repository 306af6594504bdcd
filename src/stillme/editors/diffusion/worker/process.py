"""Our side of a worker: start it, ask it, notice when it crashes or hangs, and start it anew."""

from __future__ import annotations

import contextlib
import queue
import subprocess
import tempfile
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from stillme.editors.diffusion.worker.serve import BadFrame, read_frame, write_frame
from stillme.types import Json

SERVE = Path(__file__).with_name("serve.py")
_STDERR_KEPT = 1500
"""Characters of the worker's last words that an error repeats."""


class WorkerFault(Exception):
    """The worker could not answer. Says whether another try may help."""

    def __init__(self, message: str, *, retryable: bool) -> None:
        super().__init__(message)
        self.retryable = retryable


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What a worker sent back."""

    message: Mapping[str, Json]
    attached: Sequence[bytes]


class Worker:
    """A process that keeps weights loaded between edits. Started with the first request, and again after a crash."""

    def __init__(self, command: Sequence[str], parameters: Mapping[str, Json], *, patience: float) -> None:
        self._command, self._parameters, self._patience = command, parameters, patience
        self._running: _Running | None = None
        self._unloadable: WorkerFault | None = None

    def ask(self, message: Mapping[str, Json], attached: Sequence[bytes]) -> Answer:
        """Send a request and wait for its answer. A process that crashes or hangs is replaced with the next request."""
        if self._unloadable is not None:
            raise self._unloadable
        if self._running is None:
            try:
                self._running = _Running(self._command)
                self._asked(self._running, {"do": "load", "parameters": dict(self._parameters)}, [])
            except WorkerFault as fault:
                self.close()
                # Kept, so that a thousand requests do not each wait for weights that do not load; a rerun tries again.
                self._unloadable = WorkerFault(f"the weights cannot be loaded: {fault}", retryable=True)
                raise self._unloadable from None
        return self._asked(self._running, message, attached)

    def close(self) -> None:
        """End the process. A later request starts another."""
        self._unloadable = None
        if self._running is not None:
            self._running.end()
            self._running = None

    def _asked(self, running: _Running, message: Mapping[str, Json], attached: Sequence[bytes]) -> Answer:
        try:
            answer = running.exchange(message, attached, self._patience)
        except WorkerFault:
            self.close()
            raise
        if not answer.message.get("ok"):
            told = str(answer.message.get("error", "no reason given"))
            raise WorkerFault(told, retryable=bool(answer.message.get("retryable", True)))
        return answer


class _Running:
    """One process and the thread that listens to it."""

    def __init__(self, command: Sequence[str]) -> None:
        self._words = tempfile.TemporaryFile()  # noqa: SIM115 - lives as long as the process
        try:
            # In a session of its own, so that Ctrl-C lets it finish what it is doing.
            self._process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._words, start_new_session=True
            )
        except OSError as error:
            self._words.close()
            raise WorkerFault(f"{command[0]} cannot be started: {error.strerror}", retryable=True) from None
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._requests, self._answers = self._process.stdin, self._process.stdout
        self._heard: queue.SimpleQueue[Answer | BadFrame | None] = queue.SimpleQueue()
        self._listener = threading.Thread(target=_listen, args=(self._answers, self._heard), daemon=True)
        self._listener.start()

    def exchange(self, message: Mapping[str, Json], attached: Sequence[bytes], patience: float) -> Answer:
        # From a thread: a worker that has stopped reading would block us for ever.
        threading.Thread(target=_send, args=(self._requests, message, attached), daemon=True).start()
        try:
            heard = self._heard.get(timeout=patience)
        except queue.Empty:
            raise WorkerFault(
                f"the worker said nothing for {patience:g} s{self._last_words()}", retryable=True
            ) from None
        if isinstance(heard, Answer):
            return heard
        if heard is None:
            raise WorkerFault(f"the worker {self._how_it_ended()}{self._last_words()}", retryable=True)
        raise WorkerFault(f"the worker does not keep the protocol: {heard}{self._last_words()}", retryable=True)

    def end(self) -> None:
        self._process.kill()
        self._process.wait()
        self._listener.join(5)
        for stream in (self._requests, self._answers, self._words):
            with contextlib.suppress(OSError):  # what was still to be sent has nobody to read it
                stream.close()

    def _how_it_ended(self) -> str:
        try:
            code = self._process.wait(5)
        except subprocess.TimeoutExpired:
            return "closed its output"
        return f"was killed by signal {-code}" if code < 0 else f"ended with exit code {code}"

    def _last_words(self) -> str:
        self._words.seek(0)
        text = self._words.read().decode(errors="replace").strip()
        return f"; its last words: …{text[-_STDERR_KEPT:]}" if text else ""


def _send(requests: IO[bytes], message: Mapping[str, Json], attached: Sequence[bytes]) -> None:
    stream: Any = requests
    with contextlib.suppress(OSError, ValueError):  # whoever listens notices that the process is gone
        write_frame(stream, dict(message), list(attached))


def _listen(answers: IO[bytes], heard: queue.SimpleQueue[Answer | BadFrame | None]) -> None:
    stream: Any = answers
    while True:
        try:
            frame = read_frame(stream)
        except BadFrame as error:
            heard.put(error)
            return
        except (OSError, ValueError):
            frame = None  # closed under our hands
        if frame is None:
            heard.put(None)
            return
        heard.put(Answer(message=frame[0], attached=frame[1]))
