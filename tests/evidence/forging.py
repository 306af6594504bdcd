"""Bundles as a liar would write them."""

from __future__ import annotations

import hashlib
import zipfile
from pathlib import Path

from stillme.files import SUMS, sums_of

Members = dict[str, bytes]


def write_bundle(file: Path, members: Members, *, reseal: bool = True) -> Path:
    """A bundle of these files; with `reseal`, the sums are corrected."""
    if reseal and SUMS in members:
        hashes = {name: hashlib.sha256(data).hexdigest() for name, data in members.items() if name != SUMS}
        members = members | {SUMS: sums_of(hashes).encode()}
    with zipfile.ZipFile(file, "w") as target:
        for name, data in members.items():
            target.writestr(name, data)
    return file
