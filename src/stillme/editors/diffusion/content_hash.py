"""Name a folder or a file of weights by all of its bytes."""

from __future__ import annotations

import hashlib
import json
import re
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from stillme.core.files import sha256_of

_THREADS = 8
_SHA256 = re.compile(r"[0-9a-f]{64}")


def content_hash(place: Path) -> str:
    """128 bits over the names and contents of every file that is not hidden; of a single file, over its content."""
    files = [place] if place.is_file() else _files_in(place)
    names = [file.name if file == place else file.relative_to(place).as_posix() for file in files]
    total = hashlib.sha256()
    with ThreadPoolExecutor(_THREADS) as threads:
        # hashlib releases the GIL, so the threads really run at the same time.
        for name, value in zip(names, threads.map(_hash_of, files), strict=True):
            total.update(json.dumps([name, value]).encode())
    return total.hexdigest()[:32]


def _files_in(folder: Path) -> list[Path]:
    visible = (path for path in sorted(folder.rglob("*")) if path.is_file())
    return [path for path in visible if not any(part.startswith(".") for part in path.relative_to(folder).parts)]


def _hash_of(file: Path) -> str:
    """A file's SHA-256: the hub's cache links to large files by it, others are read."""
    blob = file.resolve()
    if file.is_symlink() and blob.parent.name == "blobs" and _SHA256.fullmatch(blob.name):
        return blob.name
    return sha256_of(file)
