"""Remember work that a provider has accepted, so that a crash does not pay for it twice.

Each event is one line of `jobs.jsonl`, on disk before anybody waits for the result. Worker threads write here, which
the ledger's connection does not allow.
"""

from __future__ import annotations

import json
import os
import threading
import time
from pathlib import Path

from stillme.types import Json

FILE = "jobs.jsonl"
_LONGEST = 2 * 24 * 3600.0
"""Seconds after which a job that never ended is given up."""


class Jobs:
    """The jobs of one run. Any number of threads may use it."""

    def __init__(self, file: Path) -> None:
        self.file = file
        self._lock = threading.Lock()
        self._open: dict[str, tuple[str, float]] | None = None

    def open(self, key: str) -> str | None:
        """The job to ask for, if there is one."""
        with self._lock:
            job, at = self._known().get(key, ("", 0.0))
        return job if job and time.time() - at < _LONGEST else None

    def add(self, key: str, job: str) -> None:
        """Remember a job. On return it is on disk."""
        with self._lock:
            now = time.time()
            self._known()[key] = (job, now)
            self._append({"key": key, "job": job, "at": now})

    def answered(self, key: str) -> None:
        """Nothing to do: the ledger will have the outcome, and until then a crash must not lose the job."""

    def end(self, key: str) -> None:
        """Forget a job that gives no picture."""
        with self._lock:
            if self._known().pop(key, None):
                self._append({"key": key, "job": None, "at": time.time()})

    def _known(self) -> dict[str, tuple[str, float]]:
        if self._open is None:
            self._open = {}
            for line in self.file.read_bytes().splitlines() if self.file.is_file() else ():
                try:
                    event: Json = json.loads(line)
                except ValueError:
                    continue  # a line that a crash cut off
                if event["job"] is None:
                    self._open.pop(event["key"], None)
                else:
                    self._open[event["key"]] = (event["job"], event["at"])
        return self._open

    def _append(self, event: Json) -> None:
        # For the user's eyes only: a job may be a link that opens a picture to anyone.
        # The line begins with a break, so that one that a crash cut off spoils no other.
        line = f"\n{json.dumps(event)}\n".encode()
        descriptor = os.open(self.file, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        try:
            os.write(descriptor, line)
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
