"""Pictures in an object store through fsspec, with copies on this machine for everything that reads files.

Readers use their own credentials, from where the service's own tools look for them; none passes through here.
"""

from __future__ import annotations

import hashlib
import importlib
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import urlsplit

from stillme.core.addresses import PICTURE_STORES, picture_store_problem
from stillme.core.errors import PicturesUnreachable
from stillme.core.files import cache_folder
from stillme.core.redaction import redacted, shortened
from stillme.core.types import ImageFile
from stillme.runs.store.pictures import (
    DAMAGED,
    HERE,
    SUFFIXES,
    LostPicture,
    PicturePlace,
    Pictures,
    is_intact,
    suffix_of,
)

T = TypeVar("T")
R = TypeVar("R")

MARK = "stillme-pictures.txt"
"""Object stores answer 404 for a lost object and for a wrong bucket. Where this file is, the bucket is right."""
_MARK_TEXT = b"Pictures by SHA-256, of stillme runs. Runs look for this file to know that this is the right place.\n"
_AT_ONCE = 16
"""Requests to a bucket that are under way at the same time."""
_ASK_SINGLY = 64
"""Up to so many pictures are looked up one by one; for more, the bucket is listed."""
_CALL_SECONDS = 120.0
"""For one file, with the service's own retries."""
_EXTRAS = {"s3fs": "stillme[s3]"}


class Bucket:
    """Files by name at an address. What cannot be answered raises `PicturesUnreachable`, never "missing"."""

    def __init__(self, address: str) -> None:
        self.address = address.rstrip("/")
        self._opening = threading.Lock()
        self._opened: tuple[Any, str] | None = None

    def put(self, name: str, data: bytes) -> None:
        """Keep a file, whole or not at all."""
        if self._call("pipe_file", name, data, otherwise=self) is self:
            raise PicturesUnreachable(f"{self.address} cannot be used (no such bucket). Make it, or correct it.")

    def get(self, name: str) -> bytes | None:
        """The file as it is; None if there is none."""
        return self._call("cat_file", name)

    def size(self, name: str) -> int:
        """The file's size; 0 if there is none. Nothing is read."""
        about = self._call("info", name)
        return int(about["size"]) if about and about["type"] == "file" else 0

    def sizes(self) -> dict[str, int]:
        """Every file's size by its name, without folders."""
        files: dict[str, Any] = self._call("find", "", detail=True) or {}
        return {path.rpartition("/")[2]: int(about["size"]) for path, about in files.items()}

    def rename(self, name: str, to: str) -> None:
        """Copied, then removed: object stores know no other way."""
        _, root = self._filesystem()
        self._call("cp_file", name, f"{root}/{to}")
        self._call("rm_file", name)

    def prepare(self) -> None:
        """Write the mark: if that works, so will pictures."""
        self.put(MARK, _MARK_TEXT)

    def require(self) -> None:
        """Make sure that this is the right bucket, before anything counts as missing from it."""
        if not self.size(MARK):
            raise PicturesUnreachable(
                f"{self.address} holds no pictures of runs: {MARK} is missing there. If the pictures were moved, write "
                "the new address as `store` in [pictures] of audit.toml and run `stillme run`."
            )

    def _filesystem(self) -> tuple[Any, str]:
        """The service, and this bucket's place in it. Opened when something is wanted for the first time."""
        with self._opening:
            if self._opened is None:
                # The ledger may come from someone else.
                if problem := picture_store_problem(self.address):
                    raise PicturesUnreachable(f"The recorded address of the run's pictures {problem}.")
                package = PICTURE_STORES[urlsplit(self.address).scheme]
                try:
                    core = importlib.import_module("fsspec.core")
                    # Other machines write, too: an earlier listing does not count.
                    self._opened = core.url_to_fs(self.address, use_listings_cache=False, skip_instance_cache=True)
                except ImportError:
                    raise PicturesUnreachable(
                        f"{self.address} needs {package}, which is not installed: run "
                        f'`pip install "{_EXTRAS.get(package, package)}"`.'
                    ) from None
            assert self._opened is not None
            return self._opened

    def _call(self, verb: str, name: str, *values: Any, otherwise: Any = None, **options: Any) -> Any:
        """The service's answer; `otherwise` where there is no such file or bucket."""
        files, root = self._filesystem()
        path = f"{root}/{name}" if name else root
        try:
            if not files.async_impl:
                return getattr(files, verb)(path, *values, **options)
            wait = importlib.import_module("fsspec.asyn").sync
            return wait(files.loop, getattr(files, f"_{verb}"), path, *values, timeout=_CALL_SECONDS, **options)
        except FileNotFoundError:
            return otherwise
        except PermissionError as error:
            raise PicturesUnreachable(
                f"{self.address} refuses access ({_words(error)}). Check that your credentials may read, write and "
                "list there."
            ) from None
        except Exception as error:
            # Each service has errors of its own. Whatever it is, the object may well be there.
            raise PicturesUnreachable(
                f"{self.address} cannot be reached ({_words(error)}). Check the address, the network and your "
                "credentials."
            ) from None


def pictures_at(place: PicturePlace) -> Pictures:
    """The pictures of a run, wherever they are. Nothing is asked before something is wanted."""
    return PicturesInBuckets(place) if place.addresses else Pictures(place.folder)


class PicturesInBuckets(Pictures):
    """New pictures go to the first address; all addresses and the run folder are read.

    `find` and `where` look at this machine only; `intact` brings a copy here, into the user's cache folder.
    """

    def __init__(self, place: PicturePlace, copies: Path | None = None) -> None:
        super().__init__(place.folder)
        self._place = place
        self._own = Pictures(place.folder)
        self._copies = Pictures(copies or cache_folder() / "pictures")
        self._buckets = [Bucket(address) for address in place.addresses if address != HERE]
        self._home = self._buckets[0] if place.is_elsewhere else None

    @property
    def place(self) -> PicturePlace:
        """All that opening it elsewhere needs."""
        return self._place

    def __str__(self) -> str:
        return self._home.address if self._home else str(self._own)

    def prepare(self) -> None:
        """Make sure that pictures can be kept, before any is paid for."""
        if self._home:
            self._home.prepare()

    def require(self) -> None:
        """Make sure that this machine sees the place of the pictures."""
        if self._home:
            self._home.require()

    def add(self, data: bytes) -> str:
        """Keep the bytes and return their hash. On return the bucket has them; a damaged object is replaced."""
        if self._home is None:
            return self._own.add(data)
        sha256 = hashlib.sha256(data).hexdigest()
        self._home.put(_name(sha256, suffix_of(data)), data)
        with suppress(OSError):  # a copy saves a download; the picture is safe without it
            self._copies.add(data)
        return sha256

    def take_all(self, images: Iterable[ImageFile]) -> None:
        """Keep copies of files that no place has, each if it is still the one of its hash."""
        files = {image.sha256: image for image in images}
        wanted = [files[sha256] for sha256 in self.lacking(files)]
        _map_threaded(lambda image: self.add(image.read()), [image for image in wanted if is_intact(image)])

    def take(self, image: ImageFile) -> None:
        """Keep a copy of a file, if it is still the one of its hash."""
        self.take_all([image])

    def lacking(self, hashes: Iterable[str]) -> list[str]:
        """Those that no place has. Their content is not looked at: it would have to come here."""
        hashes = list(dict.fromkeys(hashes))
        gone = self.gone(hashes)
        return [sha256 for sha256 in hashes if sha256 in gone]

    def put_back(self, hashes: Iterable[str]) -> set[str]:
        """Those of these that could be restored from copies on this machine."""
        copies = {sha256: path for sha256 in hashes if (path := self._copies.intact(sha256))}
        for path in copies.values():
            self.add(path.read_bytes())
        return set(copies)

    def where(self, sha256: str) -> Path:
        """Where the file of that hash is on this machine, or would be."""
        return self.find(sha256) or self._copies.where(sha256)

    def find(self, sha256: str) -> Path | None:
        """The file of that name, if it is on this machine; its content is not looked at."""
        return self._own.find(sha256) or self._copies.find(sha256)

    def here(self, sha256: str) -> Path | None:
        """The file of that hash, if it is on this machine and has that hash; no bucket is asked."""
        return self._own.intact(sha256) or self._copies.intact(sha256)

    def intact(self, sha256: str) -> Path | None:
        """The file of that hash, brought here if it has to be; None if no place has it as it was."""
        if path := self.here(sha256):
            return path
        for bucket in self._buckets:
            for _ in range(2):  # what was cut short on the way is whole the second time
                _, data = self._object(bucket, sha256)
                if data is not None and hashlib.sha256(data).hexdigest() == sha256:
                    return self._kept(data)
        return None

    def lost(self, hashes: Iterable[str]) -> Iterator[LostPicture]:
        """Those that no place has as they were. Reads them all."""
        hashes = list(hashes)
        for sha256, seen in zip(hashes, _map_threaded(self._contents, hashes), strict=True):
            if sha256 not in seen:
                yield LostPicture(sha256, "damaged" if seen else "missing")

    def gone(self, hashes: Iterable[str]) -> set[str]:
        """Those that no place has, or only as an empty file. Nothing is read; copies do not count."""
        missing = self._own.gone(hashes)
        for bucket in self._buckets:
            if not missing or not self._is_right(bucket):
                continue
            if len(missing) > _ASK_SINGLY:
                held = {Path(name).stem for name, size in bucket.sizes().items() if size}
                missing = missing - held
            asked = sorted(missing)
            there = _map_threaded(lambda sha256, bucket=bucket: any(map(bucket.size, _names(sha256))), asked)
            missing = {sha256 for sha256, found in zip(asked, there, strict=True) if not found}
        return missing

    def set_aside(self, sha256: str) -> None:
        """Rename a damaged file, so that the picture counts as missing until it is made again or put back."""
        self._own.set_aside(sha256)
        for bucket in self._buckets:
            name, data = self._object(bucket, sha256)
            if data is not None and hashlib.sha256(data).hexdigest() != sha256:
                bucket.rename(name, f"{name}{DAMAGED}")

    def names(self) -> Iterator[str]:
        """The name of every file in the run folder and where pictures are kept, also those of other runs."""
        yield from self._own.names()
        if self._home:
            yield from self._home.sizes()

    def _contents(self, sha256: str) -> set[str]:
        """The hashes of what the places have under this name."""
        if self._own.intact(sha256):
            return {sha256}
        seen = {"damaged"} if self._own.find(sha256) else set[str]()
        found = (self._object(bucket, sha256)[1] for bucket in self._buckets)
        return seen | {hashlib.sha256(data).hexdigest() for data in found if data is not None}

    def _object(self, bucket: Bucket, sha256: str) -> tuple[str, bytes | None]:
        """The picture's name in a bucket, and its content there; None if the bucket certainly has none."""
        for name in _names(sha256):
            if (data := bucket.get(name)) is not None:
                return name, data
        self._is_right(bucket)
        return "", None

    def _is_right(self, bucket: Bucket) -> bool:
        """Whether what is not there is missing. Only a bucket of before may be gone: it then holds nothing."""
        if bucket is self._home:
            bucket.require()
        return bucket is self._home or bucket.size(MARK) > 0

    def _kept(self, data: bytes) -> Path | None:
        try:
            return self._copies.find(self._copies.add(data))
        except OSError as error:
            raise PicturesUnreachable(
                f"No copy of a picture can be kept in {self._copies} ({error.strerror or error}). Make room there, or "
                "name another folder in STILLME_HOME."
            ) from None


class PicturesToShow:
    """Pictures for a page: one that cannot be had is left out, and why is remembered."""

    def __init__(self, *stores: Pictures) -> None:
        self._stores = stores
        self.unreachable = ""
        """Why some cannot be had; empty if all could."""

    def path_of(self, sha256: str) -> Path | None:
        """The file, if it is here or can be brought here. Once a bucket does not answer, it is asked no more."""
        try:
            found = (store.here(sha256) if self.unreachable else store.intact(sha256) for store in self._stores)
            return next((path for path in found if path), None)
        except PicturesUnreachable as error:
            self.unreachable = str(error)
            return None


def _name(sha256: str, suffix: str) -> str:
    """As in a run folder, so that either can be copied to the other."""
    return f"{sha256[:2]}/{sha256}{suffix}"


def _names(sha256: str) -> Iterator[str]:
    return (_name(sha256, suffix) for suffix in SUFFIXES)


def _words(error: Exception) -> str:
    return shortened(redacted(str(error))).rstrip(".") or type(error).__name__


def _map_threaded(call: Callable[[T], R], values: Sequence[T]) -> list[R]:
    """The results in order; many requests at once, as each waits for a network. The first failure ends it."""
    threads = ThreadPoolExecutor(_AT_ONCE)
    try:
        return list(threads.map(call, values))
    finally:
        threads.shutdown(cancel_futures=True)
