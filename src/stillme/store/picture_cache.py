"""Copies of pictures that are kept elsewhere: by hash, of bounded size, shared by all runs on this machine."""

from __future__ import annotations

import os
import secrets
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from stillme.errors import PicturesUnreachable
from stillme.home import cache_folder

LIMIT = "STILLME_CACHE_GB"
"""The variable that says how much copies may take."""
_DEFAULT_GB = 10.0
_KEPT_SHARE = 0.9
"""Of the limit, when it is exceeded."""
_IN_USE_SECONDS = 3600.0
"""A copy that somebody asked for is not removed for so long: a judge may be about to read it."""


class PictureCache:
    """A folder of copies. Any number of threads and processes may use it at once."""

    def __init__(self, folder: Path | None = None, *, most_bytes: int | None = None) -> None:
        self._folder = folder or cache_folder() / "pictures"
        self._most = most_bytes if most_bytes is not None else _limit()
        self._counting = threading.Lock()
        self._bytes, self._next_look = 0, -1
        """What the folder holds, as far as this process knows, and from how many bytes on it looks again."""

    def path(self, sha256: str) -> Path:
        """Where the copy is, or would be. Without a suffix, as that is known only with the content."""
        return self._folder / sha256[:2] / sha256

    def use(self, path: Path) -> None:
        """Note that a copy is about to be read."""
        with suppress(OSError):
            # The time of modification stays, by which it is known that the content was checked.
            os.utime(path, ns=(time.time_ns(), path.stat().st_mtime_ns))

    def add(self, sha256: str, data: bytes, *, in_use: bool) -> Path:
        """Keep a copy; older ones make room for it."""
        path = self.path(sha256)
        try:
            path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            # Not synced to disk: a copy that a power cut spoils is noticed by its hash and fetched again.
            draft = path.with_name(f".{sha256}.{secrets.token_hex(6)}")
            draft.write_bytes(data)
            seen = time.time_ns() - (0 if in_use else int(_IN_USE_SECONDS * 1e9))
            os.utime(draft, ns=(seen, draft.stat().st_mtime_ns))
            draft.replace(path)
        except OSError as error:
            raise PicturesUnreachable(
                f"No copy of a picture can be kept in {self._folder} ({error.strerror or error}). Make room there, or "
                "name another folder in STILLME_HOME."
            ) from None
        self._count(len(data))
        return path

    def _count(self, more: int) -> None:
        with self._counting:
            self._bytes += more
            if self._bytes > self._next_look:
                self._bytes = self._make_room()
                # What is in use stays, even beyond the limit; then not every new copy may look through all others.
                self._next_look = max(self._most, self._bytes + self._most // 10)

    def _make_room(self) -> int:
        """Remove what was not used for longest; what remains, in bytes."""
        copies = sorted(self._copies())
        held = sum(size for _, size, _ in copies)
        aim = self._most * _KEPT_SHARE if held > self._most else held
        for used, size, path in copies:
            if held <= aim or time.time() - used < _IN_USE_SECONDS:
                break
            path.unlink(missing_ok=True)
            held -= size
        return held

    def _copies(self) -> Iterator[tuple[float, int, Path]]:
        """When each was last used, its size, and where it is."""
        for path in self._folder.glob("*/*"):
            with suppress(FileNotFoundError):  # another process makes room, too
                state = path.stat()
                yield state.st_atime, state.st_size, path


def _limit() -> int:
    try:
        return int(float(os.environ.get(LIMIT, _DEFAULT_GB)) * 1e9)
    except ValueError:
        raise PicturesUnreachable(f"{LIMIT} is {os.environ[LIMIT]!r}, which is no number of gigabytes.") from None
