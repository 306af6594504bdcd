"""Files by name at an address elsewhere: an object store through fsspec, or a folder that several machines mount.

Whoever asks has credentials of their own, from where the service's own tools look for them; none passes through here.
"""

from __future__ import annotations

import importlib
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import unquote, urlsplit

from stillme.addresses import PICTURE_STORES, picture_store_problem
from stillme.errors import PicturesUnreachable
from stillme.files import write_whole
from stillme.redaction import redacted, shortened

R = TypeVar("R")

MARK = "stillme-pictures.txt"
"""By this file a place for pictures is known: what is missing beside it is lost; without it, all is elsewhere."""
_MARK_TEXT = (
    b"Pictures by SHA-256, of stillme runs. Runs look for this file to know that they ask at the right place.\n"
)
_CALL_SECONDS = 120.0
"""That one file may take, with the service's own retries."""
_DOWN_SECONDS = 5.0
"""After a failure nobody waits for another for so long."""
_SURE_SECONDS = 30.0
"""So long a mark that was seen is not looked for again."""
_EXTRAS = {"s3fs": "stillme[s3]"}
"""Packages that an extra of ours installs, in versions that were tried."""
_MOVED = (
    "If the pictures were moved, write the new address as `store` in [pictures] of audit.toml and run `stillme run`."
)


class FileStore(ABC):
    """Files by relative names. What cannot be answered raises `PicturesUnreachable`, never "missing"."""

    folder: Path | None = None
    """Where readers can open files without a copy; None if they cannot."""

    def __init__(self, address: str) -> None:
        self.address = address.rstrip("/")
        self._sure_until = 0.0

    @abstractmethod
    def put(self, name: str, data: bytes) -> None:
        """Keep a file, whole or not at all, in place of one that is there. It survives when this returns."""

    @abstractmethod
    def get(self, name: str) -> bytes | None:
        """The file as it is; None if there is none."""

    @abstractmethod
    def size(self, name: str) -> int | None:
        """The file's size; None if there is none. Nothing is read."""

    @abstractmethod
    def sizes(self, folder: str) -> Iterator[tuple[str, int]]:
        """The names and sizes of a folder's files; none if nobody made it."""

    @abstractmethod
    def rename(self, name: str, to: str) -> None:
        """Give a file another name."""

    def prepare(self) -> None:
        """Write the mark: if that works, so will pictures."""
        self.put(MARK, _MARK_TEXT)
        self._sure_until = time.monotonic() + _SURE_SECONDS

    def require(self) -> None:
        """Make sure that this is the place, before anything counts as missing from it."""
        if time.monotonic() < self._sure_until:
            return
        if self.is_abolished():
            raise PicturesUnreachable(f"{self.address} holds no pictures of runs: {MARK} is missing there. {_MOVED}")
        self._sure_until = time.monotonic() + _SURE_SECONDS

    def is_abolished(self) -> bool:
        """Whether there is certainly no such place any more; raises if nobody can tell."""
        return self.size(MARK) is None


def store_at(address: str) -> FileStore:
    """The store at an address that a run recorded; somebody else may have written it."""
    if problem := picture_store_problem(address):
        return NoStore(address, f"The recorded address of the run's pictures {problem}.")
    return SharedFolder(address) if urlsplit(address).scheme == "file" else ObjectStore(address)


class NoStore(FileStore):
    """What an address leads to that must not be used. Whoever wants no picture can read the run all the same."""

    def __init__(self, address: str, reason: str) -> None:
        super().__init__(address)
        self._reason = reason

    def put(self, name: str, data: bytes) -> None:
        """Refused."""
        raise PicturesUnreachable(self._reason)

    def get(self, name: str) -> bytes | None:
        """Refused."""
        raise PicturesUnreachable(self._reason)

    def size(self, name: str) -> int | None:
        """Refused."""
        raise PicturesUnreachable(self._reason)

    def sizes(self, folder: str) -> Iterator[tuple[str, int]]:
        """Refused."""
        raise PicturesUnreachable(self._reason)

    def rename(self, name: str, to: str) -> None:
        """Refused."""
        raise PicturesUnreachable(self._reason)


class SharedFolder(FileStore):
    """A folder outside of the run, such as one that every machine of a cluster mounts."""

    def __init__(self, address: str) -> None:
        super().__init__(address)
        self.folder = self._root = Path(unquote(urlsplit(address).path))

    def put(self, name: str, data: bytes) -> None:
        """Written whole or not at all, and on disk."""
        path = self._root / name

        def write() -> None:
            path.parent.mkdir(parents=True, exist_ok=True)
            write_whole(path, data)

        self._tried(write)

    def get(self, name: str) -> bytes | None:
        """None if there is no such file."""
        return self._tried((self._root / name).read_bytes)

    def size(self, name: str) -> int | None:
        """None if there is no such file."""
        return self._tried(lambda: (self._root / name).stat().st_size)

    def sizes(self, folder: str) -> Iterator[tuple[str, int]]:
        """Names and sizes."""
        files = self._tried(lambda: [(path.name, path.stat().st_size) for path in (self._root / folder).iterdir()])
        return iter(files or ())

    def rename(self, name: str, to: str) -> None:
        """In place."""
        self._tried(lambda: (self._root / name).replace(self._root / to))

    def _tried(self, call: Callable[[], R]) -> R | None:
        try:
            return call()
        except FileNotFoundError:
            return None
        except OSError as error:
            raise PicturesUnreachable(f"{self.address} cannot be used ({error.strerror or error}). {_MOVED}") from None


class ObjectStore(FileStore):
    """A bucket, or a folder in it. Any number of threads may ask at once; objects appear whole or not at all."""

    def __init__(self, address: str, *, seconds: float = _CALL_SECONDS) -> None:
        super().__init__(address)
        self._seconds = seconds
        self._opening = threading.Lock()
        self._opened: tuple[Any, str] | None = None
        self._down_until, self._down_because = 0.0, ""

    def put(self, name: str, data: bytes) -> None:
        """One request for the whole object."""
        self._asked("pipe_file", name, data, missing="no such bucket")

    def get(self, name: str) -> bytes | None:
        """None if there is no such object, or no such bucket."""
        return self._asked("cat_file", name)

    def size(self, name: str) -> int | None:
        """None if there is no such object, or no such bucket."""
        about = self._asked("info", name)
        return int(about["size"]) if about and about["type"] == "file" else None

    def sizes(self, folder: str) -> Iterator[tuple[str, int]]:
        """Names and sizes."""
        for entry in self._asked("ls", folder, detail=True) or ():
            if entry["type"] == "file":
                yield str(entry["name"]).rpartition("/")[2], int(entry["size"])

    def rename(self, name: str, to: str) -> None:
        """Copied, then removed: object stores know no other way."""
        _, root = self._filesystem()
        self._asked("cp_file", name, f"{root}/{to}")
        self._asked("rm_file", name)

    def _filesystem(self) -> tuple[Any, str]:
        """The service, and this store's place in it. Opened when something is wanted for the first time."""
        with self._opening:
            if self._opened is None:
                package = PICTURE_STORES[urlsplit(self.address).scheme]
                try:
                    core = importlib.import_module("fsspec.core")
                    # Other machines write, too: nothing that was listed before counts.
                    self._opened = core.url_to_fs(self.address, use_listings_cache=False, skip_instance_cache=True)
                except ImportError:
                    raise PicturesUnreachable(
                        f"{self.address} needs {package}, which is not installed: run "
                        f'`pip install "{_EXTRAS.get(package, package)}"`.'
                    ) from None
            assert self._opened is not None
            return self._opened

    def _asked(self, verb: str, name: str, *values: Any, missing: str = "", **options: Any) -> Any:
        """The service's answer; None where there is no such thing, unless `missing` says why there must be."""
        if time.monotonic() < self._down_until:
            raise PicturesUnreachable(self._down_because)
        try:
            answer = self._called(verb, name, *values, **options)
        except FileNotFoundError:
            if not missing:
                return None
            raise PicturesUnreachable(f"{self.address} cannot be used ({missing}). Make it, or correct it.") from None
        except PermissionError as error:
            raise PicturesUnreachable(
                f"{self.address} refuses access ({_words(error)}). Check that your credentials may read, write and "
                "list there."
            ) from None
        except PicturesUnreachable:
            raise
        except Exception as error:
            # Each service has errors of its own. Whatever it is, the object may well be there.
            self._down_because = (
                f"{self.address} cannot be reached ({_words(error)}). Check the network and your credentials. {_MOVED}"
            )
            self._down_until = time.monotonic() + _DOWN_SECONDS
            raise PicturesUnreachable(self._down_because) from None
        self._down_until = 0.0
        return answer

    def _called(self, verb: str, name: str, *values: Any, **options: Any) -> Any:
        files, root = self._filesystem()
        place = f"{root}/{name}"
        if not files.async_impl:
            return getattr(files, verb)(place, *values, **options)
        wait = importlib.import_module("fsspec.asyn").sync
        return wait(files.loop, getattr(files, f"_{verb}"), place, *values, timeout=self._seconds, **options)


def _words(error: Exception) -> str:
    return shortened(redacted(str(error))).rstrip(".") or type(error).__name__
