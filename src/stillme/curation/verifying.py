"""Is a finished data set still what was written? Every file by its hash, every picture by its looks."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from PIL import Image

from stillme import images
from stillme.curation.sources import leaves
from stillme.curation.versions import MANIFEST, SUMS, versions_of
from stillme.errors import StillmeError, UnreadableImage
from stillme.portraits.folder import load

_HARMLESS = frozenset({"interlace", "gamma", "dpi"})
"""What Pillow tells of a PNG without metadata."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Verified:
    """One version, and what is wrong with it."""

    folder: Path
    files: int
    problems: tuple[str, ...]

    def as_json(self) -> dict[str, Any]:
        """For programs."""
        return {"folder": str(self.folder), "files": self.files, "problems": list(self.problems)}


def verify(home: Path) -> list[Verified]:
    """Check every version in `home`, or the one that it is."""
    found = versions_of(home)
    if not found:
        raise StillmeError(f"{home} holds no finished portraits. `stillme portraits finalize` or `import` makes them.")
    return [_verify(folder) for folder in found]


def _verify(folder: Path) -> Verified:
    listed = dict(_listed(folder))
    problems = list(_problems(folder, listed))
    return Verified(folder=folder, files=len(listed), problems=tuple(problems))


def _listed(folder: Path) -> Iterator[tuple[str, str]]:
    try:
        lines = (folder / SUMS).read_text("utf-8").splitlines()
    except (OSError, UnicodeDecodeError):
        return
    for line in lines:
        sha256, _, name = line.partition("  ")
        yield name, sha256


def _problems(folder: Path, listed: Mapping[str, str]) -> Iterator[str]:
    if not listed:
        yield f"{SUMS} is missing or empty."
        return
    for name, sha256 in listed.items():
        if fault := leaves(name):
            yield f"{SUMS}: {fault}."
            continue
        try:
            now = hashlib.sha256((folder / name).read_bytes()).hexdigest()
        except OSError as error:
            yield f"{name} cannot be read ({error.strerror})."
            continue
        if now != sha256:
            yield f"{name} has changed since it was written."
    there = {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()} - {SUMS}
    yield from (f"{name} was added later." for name in sorted(there - set(listed)))
    yield from _portraits(folder)


def _portraits(folder: Path) -> Iterator[str]:
    try:
        manifest: dict[str, Any] = json.loads((folder / MANIFEST).read_text("utf-8"))
        recorded = {entry["id"]: entry["sha256"] for entry in manifest["portraits"]}
        size = int(manifest["size"])
        portraits = load(folder)
    except (OSError, ValueError, KeyError, TypeError) as error:
        yield f"{MANIFEST} cannot be read ({error})."
        return
    except StillmeError as error:
        yield str(error)
        return
    if {portrait.id: portrait.image.sha256 for portrait in portraits} != recorded:
        yield f"{MANIFEST} and portraits.csv name different pictures."
    for portrait in portraits:
        try:
            rgb = images.read_rgb(portrait.image.path)
        except UnreadableImage as error:
            yield str(error)
            continue
        if rgb.shape[:2] != (size, size):
            yield f"{portrait.id} is {rgb.shape[1]} × {rgb.shape[0]}, not {size} × {size}."
        with Image.open(portrait.image.path) as picture:
            if kept := sorted(str(name) for name in set(picture.info) - _HARMLESS):
                yield f"{portrait.id} carries metadata ({', '.join(kept)})."
