"""The worker's side of a process of its own: `python -m stillme.work.worker_process`.

Reads pickled frames from standard input and writes them to standard output. The first is the spec. Both sides are
the same installation, so they may pickle. Ends when its input ends, so never outlives its parent.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from stillme.work.processes import Ready, TaskBatch, TaskResults, read, write


def main() -> None:
    """Serve until the parent is gone."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's: it lets the current call finish
    incoming, outgoing = sys.stdin.buffer, os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what plugins print is no frame
    spec, concurrency = read(incoming)
    writing = threading.Lock()

    def send(frame: object) -> None:
        with writing:
            write(outgoing, frame)

    try:
        worker = spec.worker()
    except BaseException as error:
        send(Ready(f"{type(error).__name__}: {error}"))
        return
    send(Ready())
    _serve(lambda: read(incoming), worker, ThreadPoolExecutor(concurrency), send)
    worker.close()


def _serve(
    receive: Callable[[], Any], worker: Any, threads: ThreadPoolExecutor, send: Callable[[object], None]
) -> None:
    def perform(batch: TaskBatch) -> None:
        try:
            results = worker.perform(batch.tasks)
            send(TaskResults(batch.number, results))
        except BaseException as error:
            # A worker survives what its plugin raises, so this is a fault of ours, or a result that cannot be pickled.
            send(TaskResults(batch.number, (), f"{type(error).__name__}: {error}"))

    while (batch := receive()) is not None:
        threads.submit(perform, batch)


if __name__ == "__main__":
    main()
    # Nobody waits for the calls that are still under way.
    os._exit(0)
