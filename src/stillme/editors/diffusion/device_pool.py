"""Several devices: one worker process each, and every batch goes to one that is free.

The worker loads this file too: `load` and `edit` are its side.
"""

from __future__ import annotations

import pickle
import queue
import sys
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from stillme.core import registry
from stillme.core.programs.worker import WorkerFault, WorkerProcess
from stillme.core.protocols import Editor
from stillme.core.types import EditOutcome, Failed, Json, Request

BACKEND = Path(__file__)
_RESTARTS = 1
_LOADING = 3600.0
"""Seconds in which weights are loaded at the latest."""


class DevicePool:
    """WorkerProcess processes, handed out to the threads that ask."""

    def __init__(self, editors: Sequence[Mapping[str, Json]], timeout: float | None) -> None:
        """`editors` says how to build the editor of each device; a batch may take `timeout` seconds."""
        # A model may take longer to load than an edit may take.
        limits = {"timeout": timeout, "loading": max(timeout, _LOADING) if timeout else None}
        self._workers = [
            WorkerProcess(sys.executable, BACKEND, editor, **limits, restarts=_RESTARTS) for editor in editors
        ]
        self._usable = len(self._workers)
        self._counting = threading.Lock()
        self._free: queue.SimpleQueue[WorkerProcess] = queue.SimpleQueue()
        for worker in self._workers:
            self._free.put(worker)

    def edit(self, requests: Sequence[Request]) -> list[EditOutcome]:
        """The outcomes of a batch, from the first worker that is free."""
        worker = self._free.get()
        stays = True
        try:
            answer = worker.ask({"do": "edit"}, [pickle.dumps(list(requests))])
        except WorkerFault as fault:
            if fault.fatal:
                stays = self._take_out()
            # Without a device that could go on, nothing else can work.
            return [Failed(error=str(fault), retryable=True, fatal=fault.fatal and stays) for _ in requests]
        finally:
            if stays:
                self._free.put(worker)
        outcomes: list[EditOutcome] = pickle.loads(answer.attached[0])
        return outcomes

    def close(self) -> None:
        """End all processes."""
        for worker in self._workers:
            worker.close()

    def _take_out(self) -> bool:
        """Count a worker out; whether it is the last, which stays, so that no batch waits for ever."""
        with self._counting:
            if self._usable > 1:
                self._usable -= 1
                return False
            return True


def load(parameters: dict[str, Any]) -> Editor:
    """The same editor as the parent's, on one device; the weights come with the first edit."""
    editor = registry.build(
        "editor", parameters["use"], parameters["parameters"], base=Path(parameters["base"]), ready=False
    )
    editor.keep_weights([parameters["weights"]])
    return editor


def edit(loaded: Editor, _message: dict[str, Any], attached: list[bytes]) -> tuple[dict[str, Any], list[bytes]]:
    """The outcomes of a batch of requests. Both sides are the same program, so they may pickle."""
    return {}, [pickle.dumps(list(loaded.edit(pickle.loads(attached[0]))))]
