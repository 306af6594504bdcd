"""Pictures in an object store or a shared folder, with copies on this machine for whoever reads files."""

from __future__ import annotations

import hashlib
import re
from array import array
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from enum import Enum, auto
from pathlib import Path
from typing import TypeVar

from stillme.errors import PicturesUnreachable
from stillme.store.object_store import FileStore, store_at
from stillme.store.picture_cache import PictureCache
from stillme.store.pictures import DAMAGED, SUFFIXES, LostPicture, Pictures, is_intact, suffix_of
from stillme.store.places import HERE, PicturePlace
from stillme.types import ImageFile

T = TypeVar("T")
R = TypeVar("R")

_AT_ONCE = 16
"""Requests to a store that are under way at the same time."""
_PICTURE = re.compile(r"([0-9a-f]{64})\.\w+")
_FOLDERS = [f"{number:02x}" for number in range(256)]
_ASK_SINGLY = 64
"""Up to so many pictures are asked for one by one; for more, folders are listed."""


class _Found(Enum):
    """What a place has of a picture."""

    INTACT = auto()
    DAMAGED = auto()
    MISSING = auto()


def pictures_at(place: PicturePlace) -> Pictures:
    """The pictures of a run, wherever they are. Nothing is asked before something is wanted."""
    return PicturesElsewhere(place) if place.addresses else Pictures(place.folder)


class PicturesElsewhere(Pictures):
    """New pictures go to the first of the places; all of them and the run folder are read.

    `find` and `where` look at this machine only; `intact` brings a copy here. Nothing counts as missing from a place
    that does not answer, or that is not there: that raises `PicturesUnreachable`.
    """

    def __init__(self, place: PicturePlace, cache: PictureCache | None = None) -> None:
        super().__init__(place.folder)
        self._place = place
        self._own = Pictures(place.folder)
        self._cache = cache or PictureCache()
        self._stores = [store_at(address) for address in place.addresses if address != HERE]
        self._home = self._stores[0] if place.is_elsewhere else None
        self._taken = set[str]()
        """Files that were taken before, or were there."""
        self._listed: dict[tuple[str, str], _Listing] = {}
        self._likely = SUFFIXES[0]
        """How the last picture's name ended."""

    @property
    def place(self) -> PicturePlace:
        """All that opening it elsewhere needs."""
        return self._place

    def __str__(self) -> str:
        return self._home.address if self._home else str(self._own)

    # -- keeping ----------------------------------------------------------------------------------------------------

    def prepare(self) -> None:
        """Make sure that pictures can be kept, before any is paid for."""
        if self._home:
            self._home.prepare()

    def require(self) -> None:
        """Make sure that this machine sees the place of the pictures."""
        if self._home:
            self._home.require()

    def add(self, data: bytes) -> str:
        """Keep the bytes and return their hash. On return the store has them; a damaged object is replaced."""
        if self._home is None:
            return self._own.add(data)
        sha256 = hashlib.sha256(data).hexdigest()
        self._home.put(_name(sha256, suffix_of(data)), data)
        if self._home.folder is None:
            with suppress(PicturesUnreachable):  # a copy saves a download; the picture is safe without it
                self._cache.add(sha256, data, in_use=False)
        return sha256

    def take(self, image: ImageFile) -> None:
        """Keep a copy of a file, if it is still the one of its hash."""
        self.take_all([image])

    def take_all(self, images: Iterable[ImageFile]) -> None:
        """Keep copies of files that no place has, each if it is still the one of its hash."""
        if self._home is None:
            self._own.take_all(images)
            return
        files = {image.sha256: image for image in images if image.sha256 not in self._taken}
        wanted = [files[sha256] for sha256 in self.lacking(files)]
        _side_by_side(lambda image: self.add(image.read()), [image for image in wanted if is_intact(image)])
        self._taken.update(files)

    def lacking(self, hashes: Iterable[str]) -> list[str]:
        """Those of these pictures that no place has. Their content is not looked at: it would have to come here."""
        hashes = list(dict.fromkeys(hashes))
        gone = self.gone(hashes)
        return [sha256 for sha256 in hashes if sha256 in gone]

    def put_back(self, hashes: Iterable[str]) -> set[str]:
        """Those of these that could be restored from copies on this machine."""
        back = set[str]()
        for sha256 in hashes:
            if path := self._copy(sha256):
                self.add(path.read_bytes())
                back.add(sha256)
        return back

    # -- finding ----------------------------------------------------------------------------------------------------

    def where(self, sha256: str) -> Path:
        """Where the file of that hash is on this machine, or would be."""
        return self.find(sha256) or self._cache.path(sha256)

    def find(self, sha256: str) -> Path | None:
        """The file of that name, if it is on this machine; its content is not looked at."""
        mounted = (path for store in self._stores for path in _paths(store, sha256))
        candidates = (self._own.find(sha256), *mounted, self._cache.path(sha256))
        return next((path for path in candidates if path and path.exists()), None)

    def intact(self, sha256: str) -> Path | None:
        """The file of that hash, brought here if it has to be; None if no place has it as it was."""
        return self.here(sha256) or self._fetched(sha256)

    def here(self, sha256: str) -> Path | None:
        """The file of that hash, if it is on this machine and has that hash; no other is asked."""
        mounted = (path for store in self._stores for path in _paths(store, sha256))
        for path in (self._own.find(sha256), *mounted):
            if path and is_intact(ImageFile(path=path, sha256=sha256)):
                return path
        return self._copy(sha256)

    def located(self, image: ImageFile) -> ImageFile:
        """The same picture where it can be read on this machine; brought here if it has to be."""
        if is_intact(image):
            if image.path == self._cache.path(image.sha256):
                self._cache.use(image.path)
            return image
        return super().located(image)

    def lost(self, hashes: Iterable[str]) -> Iterator[LostPicture]:
        """Those of these pictures that no place has as they were. Reads them all, and keeps no copy."""
        hashes = list(hashes)
        for sha256, found in zip(hashes, _side_by_side(self._read, hashes), strict=True):
            if found is not _Found.INTACT:
                yield LostPicture(sha256, "damaged" if found is _Found.DAMAGED else "missing")

    def gone(self, hashes: Iterable[str]) -> set[str]:
        """Those that no place has, or only as an empty file. Nothing is read; copies do not count."""
        missing = [sha256 for sha256 in dict.fromkeys(hashes) if self._own.gone([sha256])]
        for store in self._stores:
            missing = self._missing_from(store, missing)
        return set(missing)

    def set_aside(self, sha256: str) -> None:
        """Rename a damaged file, so that the picture counts as missing until it is made again or put back."""
        self._own.set_aside(sha256)
        for store in self._stores:
            name, data = self._object(store, sha256)
            if data is not None and hashlib.sha256(data).hexdigest() != sha256:
                store.rename(name, f"{name}{DAMAGED}")

    def names(self) -> Iterator[str]:
        """The name of every file in the run folder and where pictures are kept, also those of other runs."""
        yield from self._own.names()
        if self._home:
            sizes = self._home.sizes
            for entries in _side_by_side(lambda folder: list(sizes(folder)), _FOLDERS):
                yield from (name for name, _ in entries)

    # -- inside -----------------------------------------------------------------------------------------------------

    def _copy(self, sha256: str) -> Path | None:
        """A copy that is here already and is what it was."""
        path = self._cache.path(sha256)
        if not is_intact(ImageFile(path=path, sha256=sha256)):
            return None
        self._cache.use(path)
        return path

    def _fetched(self, sha256: str) -> Path | None:
        for store in self._stores:
            for _ in range(2):  # what was cut short on the way is whole the second time
                _, data = self._object(store, sha256)
                if data is None:
                    break
                if hashlib.sha256(data).hexdigest() == sha256:
                    return self._cache.add(sha256, data, in_use=True)
        return None

    def _object(self, store: FileStore, sha256: str) -> tuple[str, bytes | None]:
        """The picture's name in a store, and its content there; None if the store certainly has none."""
        for suffix in sorted(SUFFIXES, key=lambda suffix: suffix != self._likely):
            name = _name(sha256, suffix)
            data = store.get(name)
            if data is not None:
                self._likely = suffix
                return name, data
        self._require(store)
        return "", None

    def _require(self, store: FileStore) -> None:
        """Nothing is missing from a store that is not there. One that was used before and is abolished has nothing."""
        if store is self._home or not store.is_abolished():
            store.require()

    def _read(self, sha256: str) -> _Found:
        local = self._own.find(sha256)
        if local and is_intact(ImageFile(path=local, sha256=sha256)):
            return _Found.INTACT
        found = _Found.DAMAGED if local else _Found.MISSING
        for store in self._stores:
            _, data = self._object(store, sha256)
            if data is not None and hashlib.sha256(data).hexdigest() == sha256:
                return _Found.INTACT
            found = _Found.DAMAGED if data is not None else found
        return found

    def _missing_from(self, store: FileStore, hashes: Sequence[str]) -> list[str]:
        if hashes:
            self._require(store)
        if len(hashes) > _ASK_SINGLY:
            folders = sorted({sha256[:2] for sha256 in hashes})
            new = [folder for folder in folders if (store.address, folder) not in self._listed]
            for folder, listing in zip(
                new, _side_by_side(lambda folder: _Listing(store.sizes(folder)), new), strict=True
            ):
                self._listed[store.address, folder] = listing
            hashes = [sha256 for sha256 in hashes if sha256 not in self._listed[store.address, sha256[:2]]]
        # What came after its folder was listed is asked for.
        there = _side_by_side(lambda sha256: self._is_at(store, sha256), hashes)
        return [sha256 for sha256, is_there in zip(hashes, there, strict=True) if not is_there]

    def _is_at(self, store: FileStore, sha256: str) -> bool:
        suffixes = sorted(SUFFIXES, key=lambda suffix: suffix != self._likely)
        return any(store.size(_name(sha256, suffix)) for suffix in suffixes)


class PicturesToShow:
    """Pictures for a page: one that cannot be had is left out, and why is remembered."""

    def __init__(self, *stores: Pictures) -> None:
        self._stores = stores
        self.unreachable = ""
        """Why some cannot be had; empty if all could."""

    def path_of(self, sha256: str) -> Path | None:
        """The file, if it is here or can be brought here. Once a place does not answer, it is asked no more."""
        try:
            found = (store.here(sha256) if self.unreachable else store.intact(sha256) for store in self._stores)
            return next((path for path in found if path), None)
        except PicturesUnreachable as error:
            self.unreachable = str(error)
            return None


class _Listing:
    """The pictures of a folder that are not empty, eight bytes each: a store may hold millions.

    Two hashes that begin alike are taken for one. That is less likely than a wrong disk: once in 10^13 for a million.
    """

    def __init__(self, sizes: Iterable[tuple[str, int]]) -> None:
        names = (_PICTURE.fullmatch(name) for name, size in sizes if size)
        self._numbers = array("Q", sorted(_number(name[1]) for name in names if name))

    def __contains__(self, sha256: str) -> bool:
        place = bisect_left(self._numbers, _number(sha256))
        return place < len(self._numbers) and self._numbers[place] == _number(sha256)


def _number(sha256: str) -> int:
    return int(sha256[:16], 16)


def _name(sha256: str, suffix: str) -> str:
    """As in a run folder, so that either can be copied to the other."""
    return f"{sha256[:2]}/{sha256}{suffix}"


def _paths(store: FileStore, sha256: str) -> Iterator[Path]:
    if store.folder:
        yield from (store.folder / _name(sha256, suffix) for suffix in SUFFIXES)


def _side_by_side(call: Callable[[T], R], values: Sequence[T]) -> list[R]:
    """The results in order; many requests at once, as each waits for a network. The first failure ends it."""
    threads = ThreadPoolExecutor(_AT_ONCE)
    try:
        return list(threads.map(call, values))
    finally:
        threads.shutdown(cancel_futures=True)
