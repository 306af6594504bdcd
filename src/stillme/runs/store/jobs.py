"""Remember work that a provider has accepted, so that a crash does not pay for it twice.

Each open job is one line of `jobs.jsonl`, on disk before the result is waited for. A job that has ended is blanked out
where it stands: it may be a link that opens a picture to anyone, and other processes may append at the same time.
"""

from __future__ import annotations

import json
import os
import threading
from dataclasses import dataclass
from pathlib import Path

from stillme.core.capabilities import AcceptedJobs
from stillme.core.types import Json

FILE = "jobs.jsonl"


@dataclass(frozen=True, slots=True)
class _Line:
    job: str
    place: int
    length: int


class Jobs(AcceptedJobs):
    """The jobs of one run. Any number of threads may use it."""

    def __init__(self, file: Path) -> None:
        self.file = file
        self._lock = threading.Lock()
        self._lines: dict[str, _Line] | None = None

    def open(self, key: str) -> str | None:
        """The job to ask for, if there is one."""
        with self._lock:
            line = self._known().get(key)
        return line.job if line else None

    def add(self, key: str, job: str) -> None:
        """Remember a job. On return it is on disk."""
        # The line begins with a break, so that one that a crash cut off spoils no other.
        written = f"\n{json.dumps({'key': key, 'job': job})}\n".encode()
        with self._lock:
            earlier = self._known().get(key)
            # For the user's eyes only.
            descriptor = os.open(self.file, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
            try:
                os.write(descriptor, written)
                os.fsync(descriptor)
                place = os.lseek(descriptor, 0, os.SEEK_CUR) - len(written)
            finally:
                os.close(descriptor)
            self._known()[key] = _Line(job, place + 1, len(written) - 2)
            if earlier:
                self._blank(earlier)

    def answered(self, key: str) -> None:
        """Nothing to do: until the ledger has the outcome, a crash must not lose the job."""

    def end(self, key: str) -> None:
        """Forget a job that gives no picture, or whose outcome the ledger has."""
        with self._lock:
            if key not in self._known():
                self._lines = None  # a worker's process may have added it
            if line := self._known().pop(key, None):
                self._blank(line)

    def _blank(self, line: _Line) -> None:
        descriptor = os.open(self.file, os.O_WRONLY)
        try:
            os.pwrite(descriptor, b" " * line.length, line.place)
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def _known(self) -> dict[str, _Line]:
        if self._lines is None:
            self._lines, place = {}, 0
            for text in self.file.read_bytes().split(b"\n") if self.file.is_file() else ():
                try:
                    event: Json = json.loads(text)
                    self._lines[event["key"]] = _Line(event["job"], place, len(text))
                except (ValueError, LookupError, TypeError):
                    pass  # blanked out, or a line that a crash cut off
                place += len(text) + 1
        return self._lines
