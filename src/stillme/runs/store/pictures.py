"""Pictures by the hash of their bytes, written whole or not at all and kept once; and where they are."""

from __future__ import annotations

import hashlib
import sqlite3
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Literal

from stillme.core.files import sha256_of, write_whole
from stillme.core.types import ImageFile
from stillme.runs.store.rows import now

HERE = ""
"""The address of the run folder itself."""


@dataclass(frozen=True, slots=True)
class PicturePlace:
    """Where pictures are kept; can be sent to another process or machine, which has credentials of its own."""

    folder: Path
    """The run's own."""
    addresses: tuple[str, ...] = ()
    """Elsewhere, in the order in which they are asked. New pictures go to the first; empty is the run's own folder."""

    @property
    def is_elsewhere(self) -> bool:
        """Whether new pictures leave the run folder."""
        return bool(self.addresses) and self.addresses[0] != HERE

    @property
    def reaches_elsewhere(self) -> bool:
        """Whether pictures of before may be outside of the run folder, too."""
        return any(address != HERE for address in self.addresses)


class Places:
    """The addresses of one ledger."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection

    def addresses(self) -> tuple[str, ...]:
        """Every address once, the latest first; empty where pictures were never kept elsewhere."""
        rows = self._connection.execute("SELECT address FROM place ORDER BY id DESC")
        return tuple(dict.fromkeys(address for (address,) in rows))

    @property
    def current(self) -> str:
        """Where new pictures go."""
        return next(iter(self.addresses()), HERE)

    def move_to(self, address: str) -> None:
        """Record that new pictures go there from now on."""
        if address != self.current:
            self._connection.execute("INSERT INTO place (address, at) VALUES (?, ?)", (address, now()))

    def also_read(self, addresses: Iterable[str]) -> None:
        """Record that pictures are there, too; new ones go where they went."""
        current, known = self.current, self.addresses()
        for address in addresses:
            if address != HERE and address not in known:
                self.move_to(address)
        self.move_to(current)


UNFINISHED = ".unfinished"
"""The folder among the pictures for files of the run at work: what is in it when no run is at work is a leftover."""
SUFFIXES = (".png", ".webp", ".jpg", ".bin")
DAMAGED = ".damaged"
"""The last suffix of a file that was set aside."""
_REMEMBERED = 50_000
"""Files that were read and have not changed since."""


@dataclass(frozen=True, slots=True)
class LostPicture:
    """A picture that rows name and that is not here as it was."""

    sha256: str
    how: Literal["missing", "damaged"]


class Pictures:
    """A folder of images named by SHA-256. Any number of threads and processes may add at once."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    @property
    def place(self) -> PicturePlace:
        """All that opening it elsewhere needs."""
        return PicturePlace(self.folder)

    def __str__(self) -> str:
        return str(self.folder)

    def prepare(self) -> None:
        """Make sure that pictures can be kept, before any is paid for; here, every write tells."""

    def require(self) -> None:
        """Make sure that this machine sees the place of the pictures; here, the folder is made when it is needed."""

    def add(self, data: bytes) -> str:
        """Keep the bytes and return their hash. On return they are on disk; a damaged file is replaced."""
        sha256 = hashlib.sha256(data).hexdigest()
        if self.intact(sha256) is None:
            self._write(data, self._path(sha256, suffix_of(data)))
        return sha256

    def take(self, image: ImageFile) -> None:
        """Keep a copy of a file, if it is still the one of its hash."""
        if self.intact(image.sha256) is None and image.path.is_file():
            data = image.read()
            if hashlib.sha256(data).hexdigest() == image.sha256:
                self._write(data, self._path(image.sha256, suffix_of(data)))

    def take_all(self, images: Iterable[ImageFile]) -> None:
        """Keep copies of files, each if it is still the one of its hash."""
        for image in images:
            self.take(image)

    def take_from(self, other: Pictures, hashes: Iterable[str]) -> set[str]:
        """Keep copies of another run's pictures; returns those that neither has."""
        lost = set[str]()
        for sha256 in self.lacking(hashes):
            path = other.intact(sha256)
            if path is None:
                lost.add(sha256)
            else:
                self.add(path.read_bytes())
        return lost

    def lacking(self, hashes: Iterable[str]) -> list[str]:
        """Those of these pictures that are not here as they were."""
        return [sha256 for sha256 in dict.fromkeys(hashes) if self.intact(sha256) is None]

    def where(self, sha256: str) -> Path:
        """Where the file of that hash is, or would be."""
        return self.find(sha256) or self._path(sha256, ".png")

    def find(self, sha256: str) -> Path | None:
        """The file of that name, if it is here; its content is not looked at."""
        candidates = (self._path(sha256, suffix) for suffix in SUFFIXES)
        return next((path for path in candidates if path.exists()), None)

    def intact(self, sha256: str) -> Path | None:
        """The file of that hash, if it is here and has that hash."""
        path = self.find(sha256)
        return path if path and is_intact(ImageFile(path=path, sha256=sha256)) else None

    def here(self, sha256: str) -> Path | None:
        """The file of that hash, if it is on this machine and has that hash; no other is asked."""
        return self.intact(sha256)

    def located(self, image: ImageFile) -> ImageFile:
        """The same picture where it can be read, as paths of another machine mean nothing; as it is, if it is lost."""
        if is_intact(image):
            return image
        path = self.intact(image.sha256)
        return replace(image, path=path) if path else image

    def lost(self, hashes: Iterable[str]) -> Iterator[LostPicture]:
        """Those of these pictures that are not here as they were. Reads them all."""
        for sha256 in hashes:
            if self.intact(sha256) is None:
                yield LostPicture(sha256, "damaged" if self.find(sha256) else "missing")

    def gone(self, hashes: Iterable[str]) -> set[str]:
        """Those of which there is no file of that name, or an empty one. Cheap: nothing is read."""
        return {sha256 for sha256 in hashes if self._is_gone(sha256)}

    def put_back(self, hashes: Iterable[str]) -> set[str]:
        """Those of these that could be restored from copies on this machine; here there are none."""
        return set()

    def _is_gone(self, sha256: str) -> bool:
        path = self.find(sha256)
        return path is None or path.stat().st_size == 0

    def set_aside(self, sha256: str) -> None:
        """Rename a damaged file, so that the picture counts as missing until it is made again or put back."""
        path = self.find(sha256)
        if path and self.intact(sha256) is None:
            path.replace(path.with_name(f"{path.name}{DAMAGED}"))

    def names(self) -> Iterator[str]:
        """The name of every file, pictures or not."""
        if self.folder.is_dir():
            yield from (path.name for path in sorted(self.folder.rglob("*")) if path.is_file())

    def _path(self, sha256: str, suffix: str) -> Path:
        return self.folder / sha256[:2] / f"{sha256}{suffix}"

    def _write(self, data: bytes, path: Path) -> None:
        drafts = self.folder / UNFINISHED
        for folder in (path.parent, drafts):
            folder.mkdir(parents=True, exist_ok=True)
        # A row that names this picture is committed later; after a power cut it must not point at nothing.
        write_whole(path, data, drafts)


def is_intact(image: ImageFile) -> bool:
    """Whether a file has the hash that it is known by. Not read again as long as its size and time stay."""
    try:
        state = image.path.stat()
        return _hash_of(str(image.path), state.st_size, state.st_mtime_ns, state.st_ino) == image.sha256
    except OSError:
        return False


@lru_cache(maxsize=_REMEMBERED)
def _hash_of(path: str, _size: int, _time: int, _inode: int) -> str:
    return sha256_of(Path(path))


def suffix_of(data: bytes) -> str:
    """What a file with this content is called at its end."""
    if data.startswith(b"\x89PNG"):
        return ".png"
    if data[:4] == b"RIFF" and data[8:12] == b"WEBP":
        return ".webp"
    if data.startswith(b"\xff\xd8"):
        return ".jpg"
    return ".bin"
