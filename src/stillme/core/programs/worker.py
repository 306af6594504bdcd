"""A process that keeps weights loaded between calls: start it, ask it, notice crashes and hangs, start it again."""

from __future__ import annotations

import subprocess
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from stillme.core.programs.process import SupervisedProcess, ended, out_of_time, shortened
from stillme.core.programs.serve import BadFrame, read_frame, write_frame
from stillme.core.types import Json

_SERVE = Path(__file__).with_name("serve.py")


class WorkerFault(Exception):
    """The worker could not answer; `retryable` if another try may help."""

    def __init__(self, message: str, *, retryable: bool = True, fatal: bool = False) -> None:
        super().__init__(message)
        self.retryable, self.fatal = retryable, fatal


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerReply:
    """What a worker sent back."""

    message: Mapping[str, Json]
    attached: Sequence[bytes]


class WorkerProcess:
    """A backend in a process of its own. Started with the first request, and again after a crash."""

    def __init__(
        self,
        python: str,
        backend: Path,
        parameters: Mapping[str, Json],
        *,
        timeout: float | None,
        loading: float | None = None,
        restarts: int | None = None,
    ) -> None:
        """`timeout` is for one answer, and for loading unless `loading` is another number of seconds."""
        self._command = (python, "-u", str(_SERVE), str(backend))
        self.parameters = parameters
        """What the next process, if there is one, loads."""
        self._timeout, self._loading, self._restarts = timeout, loading or timeout, restarts
        self._process: SupervisedProcess | None = None
        self._unloadable: WorkerFault | None = None
        self._deaths = 0
        """Since the last edit."""

    def ask(self, message: Mapping[str, Json], attached: Sequence[bytes]) -> WorkerReply:
        """Send a request and wait for its answer. A process that crashes or hangs is replaced with the next request."""
        if self._unloadable is not None:
            raise self._unloadable
        if self._process is None:
            try:
                self._process = SupervisedProcess(self._command, stdin=subprocess.PIPE)
                self._answered(self._process, {"do": "load", "parameters": dict(self.parameters)}, [], self._loading)
            except (WorkerFault, OSError, ValueError) as fault:
                self.close()
                # Kept, so that not every request waits for weights that do not load; a rerun tries again.
                self._unloadable = WorkerFault(f"the weights cannot be loaded: {fault}", fatal=True)
                raise self._unloadable from None
        reply = self._answered(self._process, message, attached, self._timeout)
        self._deaths = 0
        return reply

    def close(self) -> None:
        """End the process. A later request starts another."""
        self._unloadable = None
        process, self._process = self._process, None
        if process is not None:
            process.close()

    def _answered(
        self, process: SupervisedProcess, message: Mapping[str, Json], attached: Sequence[bytes], seconds: float | None
    ) -> WorkerReply:
        try:
            answer = _exchange(process, message, attached, seconds)
        except WorkerFault as fault:
            self.close()
            self._deaths += 1
            if self._restarts is not None and self._deaths > self._restarts:
                self._unloadable = WorkerFault(f"{fault} (for the {self._deaths}. time in a row)", fatal=True)
                raise self._unloadable from None
            raise
        if not answer.message.get("ok"):
            error = str(answer.message.get("error", "no reason given"))
            raise WorkerFault(error, retryable=bool(answer.message.get("retryable", True)))
        return answer


def _exchange(
    process: SupervisedProcess, message: Mapping[str, Json], attached: Sequence[bytes], seconds: float | None
) -> WorkerReply:
    stdin, stdout = process.stdin, process.stdout
    assert stdin is not None
    assert stdout is not None
    late = threading.Event()

    def expire() -> None:
        late.set()
        process.kill()

    timer = threading.Timer(seconds or 0.0, expire)
    timer.daemon = True
    if seconds:
        timer.start()
    frame: tuple[dict[str, Any], list[bytes]] | None = None
    try:
        # A worker that stopped reading or writing is killed by the timer, which ends both calls.
        write_frame(stdin, dict(message), list(attached))
        frame = read_frame(stdout)
    except BadFrame as error:
        if not late.is_set():
            raise WorkerFault(f"the worker violates the protocol: {error}: {shortened(_words(process))}") from None
    except (OSError, ValueError):
        pass  # it is gone, and its exit code says why
    finally:
        timer.cancel()
    if frame is not None:
        return WorkerReply(message=frame[0], attached=frame[1])
    if late.is_set():
        raise WorkerFault(out_of_time(seconds or 0.0, _words(process)))
    code = process.wait()
    raise WorkerFault("the worker closed its output" if code is None else ended(code, _words(process)))


def _words(process: SupervisedProcess) -> str:
    with suppress(ValueError):  # closed by another thread
        return process.last_words()
    return ""
