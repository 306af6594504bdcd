"""Name a folder or a file of weights by all of its bytes, and read no file twice."""

from __future__ import annotations

import hashlib
import json
import logging
import re
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import cast

from stillme.files import write_json
from stillme.home import cache_folder

log = logging.getLogger(__name__)

_BLOCK = 4 << 20
_THREADS = 8
_ANNOUNCED = 2e9
"""Bytes from which on reading takes long enough to say so."""
_SECONDS_BETWEEN_LINES = 10.0
_SETTLED_SECONDS = 2.0
"""A file that was written just now may change again within the same tick of its clock: it is not remembered."""
_SHA256 = re.compile(r"[0-9a-f]{64}")


def content_hash(place: Path) -> str:
    """128 bits over the names and contents of every file that is not hidden; of a single file, over its content."""
    files = [place] if place.is_file() else _files_in(place)
    names = [file.name if file == place else file.relative_to(place).as_posix() for file in files]
    hashes = _hashes_of(files)
    total = hashlib.sha256()
    for name, file in zip(names, files, strict=True):
        total.update(json.dumps([name, hashes[file]]).encode())
    return total.hexdigest()[:32]


def _files_in(folder: Path) -> list[Path]:
    visible = (path for path in sorted(folder.rglob("*")) if path.is_file())
    return [path for path in visible if not any(part.startswith(".") for part in path.relative_to(folder).parts)]


def _hashes_of(files: Sequence[Path]) -> dict[Path, str]:
    """Every file's SHA-256, from the hub's name of it, from an earlier reading, or by reading it."""
    known = _remembered()
    hashes: dict[Path, str] = {}
    for file in files:
        if named := _named_by_hub(file) or known.get(_state(file)):
            hashes[file] = named
    unread = [file for file in files if file not in hashes]
    if unread:
        hashes |= _read(unread)
        _remember(known, {_state(file): hashes[file] for file in unread if _is_settled(file)})
    return hashes


def _read(files: Sequence[Path]) -> dict[Path, str]:
    total = sum(file.stat().st_size for file in files)
    done, said = 0, time.monotonic()
    if total >= _ANNOUNCED:
        log.warning("Reading %.0f GB of weights to identify them; next time, only files that changed.", total / 1e9)
    hashes: dict[Path, str] = {}
    with ThreadPoolExecutor(_THREADS) as threads:
        # hashlib releases the GIL, so the threads really run side by side.
        for file, value in zip(files, threads.map(_sha256, files), strict=True):
            hashes[file] = value
            done += file.stat().st_size
            if total >= _ANNOUNCED and time.monotonic() - said >= _SECONDS_BETWEEN_LINES:
                said = time.monotonic()
                log.warning("%.0f of %.0f GB read.", done / 1e9, total / 1e9)
    return hashes


def _sha256(file: Path) -> str:
    value = hashlib.sha256()
    with file.open("rb", buffering=0) as stream:
        while block := stream.read(_BLOCK):
            value.update(block)
    return value.hexdigest()


def _named_by_hub(file: Path) -> str:
    """The hub's cache links to large files by their SHA-256."""
    if not file.is_symlink():
        return ""
    blob = file.resolve()
    return blob.name if blob.parent.name == "blobs" and _SHA256.fullmatch(blob.name) else ""


def _state(file: Path) -> str:
    """What changes when a file does; ctime also when somebody sets mtime back."""
    real = file.resolve()
    stat = real.stat()
    return f"{real}|{stat.st_size}|{stat.st_mtime_ns}|{stat.st_ctime_ns}"


def _is_settled(file: Path) -> bool:
    return time.time() - max(file.stat().st_mtime, file.stat().st_ctime) > _SETTLED_SECONDS


def _cache_file() -> Path:
    return cache_folder() / "weights.json"


def _remembered() -> Mapping[str, str]:
    # The cache only saves time: a damaged one is an empty one.
    with suppress(OSError, ValueError):
        cached = json.loads(_cache_file().read_text("utf-8"))
        if isinstance(cached, dict):
            return cast("dict[str, str]", cached)
    return {}


def _remember(known: Mapping[str, str], new: Mapping[str, str]) -> None:
    if not new:
        return
    read = {state.partition("|")[0] for state in new}
    kept = {state: value for state, value in known.items() if state.partition("|")[0] not in read}
    with suppress(OSError):
        _cache_file().parent.mkdir(parents=True, exist_ok=True)
        write_json(_cache_file(), {**kept, **new})
