"""Write a data set of portraits as a new version: complete or not at all, by one process at a time.

DIR/v1/
  portraits.csv    what `[portraits] source = "DIR/v1"` reads
  pictures/*.png   1024 × 1024, without metadata
  manifest.json    per picture: hashes, source, crop, terms, curators, measurements
  CARD.md, card.html, card.json
  SHA256SUMS       of every file, for `stillme portraits verify` or `sha256sum -c`
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import re
import shutil
from collections.abc import Callable, Generator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout
from PIL import Image

from stillme.curation.card import About, Card, FinishedPortrait
from stillme.curation.card_text import markdown
from stillme.curation.measuring import measure
from stillme.curation.selection import Selected, slug
from stillme.curation.squares import METHODS, RESIZING, SIZE, Crop, make_square
from stillme.errors import StillmeError, UnreadableImage
from stillme.files import SUMS, sha256_of, sums_of, write_csv
from stillme.images import read_rgb
from stillme.portraits.folder import TABLE, load
from stillme.portraits.sheet import CARD, write_sheet
from stillme.types import Json, digest

MANIFEST, PICTURES = "manifest.json", "pictures"
_LOCK = ".finalize.lock"
_PARTIAL = ".partial"


@dataclass(frozen=True, slots=True, kw_only=True)
class Written:
    """A version on disk."""

    folder: Path
    portraits: int
    new: bool
    """False where the last version is already the same set."""

    def as_json(self) -> dict[str, Any]:
        """For programs."""
        return {
            "folder": str(self.folder),
            "portraits": self.portraits,
            "new": self.new,
        }


def write_version(
    home: Path,
    selected: Sequence[Selected],
    about: About,
    crop: Crop,
    *,
    watch: Callable[[int, int], None] | None = None,
) -> Written:
    """Make the pictures, the card and the sums, and give them the next number."""
    if not selected:
        raise StillmeError("No portrait is chosen yet, so nothing was written. Choose at least one.")
    with _only_one(home):
        numbers = sorted(_numbers(home))
        name = f"v{(numbers[-1] if numbers else 0) + 1}"
        unfinished = home / f".{name}{_PARTIAL}"
        try:
            (unfinished / PICTURES).mkdir(parents=True)
            portraits = _finish_all(selected, unfinished / PICTURES, crop, watch)
            content = content_key(portraits)
            about = replace(about, version=name, method=f"Cut to {METHODS[crop]}, then {SIZE} × {SIZE} by {RESIZING}.")
            card = Card.of(about, portraits)
            if numbers and _content_of(home / f"v{numbers[-1]}") == content:
                return Written(folder=home / f"v{numbers[-1]}", portraits=len(card.portraits), new=False)
            _write_tables(unfinished, card, content, crop)
            _write_sums(unfinished)
            # A folder's own name changes in one step, so nobody ever sees half a version.
            unfinished.rename(home / name)
        finally:
            shutil.rmtree(unfinished, ignore_errors=True)
        return Written(folder=home / name, portraits=len(card.portraits), new=True)


def content_key(portraits: Sequence[FinishedPortrait]) -> str:
    """The hash of everything about a set that an audit can see."""
    return digest(
        [
            [
                *(chosen.id, portrait.sha256, dict(chosen.attributes), chosen.block),
                *(chosen.licence, chosen.label_origin, chosen.consent),
            ]
            for portrait in sorted(portraits, key=lambda portrait: portrait.selected.id)
            for chosen in [portrait.selected]
        ]
    )


def versions_of(home: Path) -> list[Path]:
    """The versions in a folder, oldest first; the folder itself where it is one."""
    if (home / MANIFEST).is_file() or (home / SUMS).is_file():
        return [home]
    return [home / f"v{number}" for number in sorted(_numbers(home))]


@contextmanager
def _only_one(home: Path) -> Generator[None]:
    home.mkdir(parents=True, exist_ok=True)
    lock = FileLock(home / _LOCK, timeout=0)
    try:
        lock.acquire()
    except Timeout:
        raise StillmeError(
            f"{home} is being finalized by another process. Wait until it ends, then try again."
        ) from None
    try:
        for leftover in home.glob(f".v*{_PARTIAL}"):
            shutil.rmtree(leftover, ignore_errors=True)
        yield
    finally:
        lock.release()


def _numbers(home: Path) -> list[int]:
    names = (re.fullmatch(r"v([1-9]\d*)", path.name) for path in (home.iterdir() if home.is_dir() else ()))
    return [int(name[1]) for name in names if name]


def _finish_all(
    selected: Sequence[Selected], folder: Path, crop: Crop, watch: Callable[[int, int], None] | None
) -> list[FinishedPortrait]:
    portraits: list[FinishedPortrait] = []
    with ThreadPoolExecutor(min(os.cpu_count() or 1, 8)) as workers:
        for portrait in workers.map(partial(_finish, folder=folder, crop=crop), selected):
            portraits.append(portrait)
            if watch:
                watch(len(portraits), len(selected))
    return portraits


def _finish(selected: Selected, folder: Path, crop: Crop) -> FinishedPortrait:
    try:
        data = selected.path.read_bytes()
    except OSError as error:
        raise UnreadableImage(f"{selected.path} cannot be read ({error.strerror}).") from None
    if selected.sha256 and hashlib.sha256(data).hexdigest() != selected.sha256:
        raise StillmeError(f"{selected.path} is not the picture that was recorded: its SHA-256 differs. Restore it.")
    square = make_square(read_rgb(data, name=str(selected.path)), crop)
    buffer = io.BytesIO()
    Image.fromarray(square.rgb).save(buffer, "PNG", compress_level=4)
    (folder / f"{slug(selected.id)}.png").write_bytes(buffer.getvalue())
    return FinishedPortrait(
        selected=replace(selected, sha256=hashlib.sha256(data).hexdigest()),
        sha256=hashlib.sha256(buffer.getvalue()).hexdigest(),
        measured=measure(square.rgb),
        enlarged=square.enlarged,
        crop=square.method,
        box=square.box,
    )


def _write_tables(folder: Path, card: Card, content: str, crop: Crop) -> None:
    attributes = list(dict.fromkeys(name for portrait in card.portraits for name in portrait.selected.attributes))
    blocks = ["block"] if any(portrait.selected.block for portrait in card.portraits) else []
    columns = ["id", "file", "sha256", *attributes, *blocks, "licence", "label_origin", "consent"]
    write_csv(
        folder / TABLE, columns, ({name: row[name] for name in columns} for row in map(_table_row, card.portraits))
    )
    manifest = {
        "format": 1,
        "stillme": card.about.stillme,
        "version": card.about.version,
        "made": card.about.made,
        "source": card.about.source,
        "content": content,
        "size": SIZE,
        "crop": crop,
        "resizing": RESIZING,
        "portraits": [_entry(portrait) for portrait in card.portraits],
    }
    (folder / MANIFEST).write_text(json.dumps(manifest, indent=2, ensure_ascii=False) + "\n", "utf-8")
    (folder / CARD).write_text(markdown(card), "utf-8")
    (folder / "card.json").write_text(json.dumps(card.as_json(), indent=2, ensure_ascii=False) + "\n", "utf-8")
    if card.about.curation:
        lines = [json.dumps(asdict(action), ensure_ascii=False) for action in card.about.curation.actions]
        (folder / "curation.jsonl").write_text("".join(f"{line}\n" for line in lines), "utf-8")
    write_sheet(load(folder), folder / "card.html")


def _table_row(portrait: FinishedPortrait) -> dict[str, str]:
    chosen = portrait.selected
    return {
        **chosen.attributes,
        "id": chosen.id,
        "file": f"{PICTURES}/{slug(chosen.id)}.png",
        "sha256": portrait.sha256,
        "block": chosen.block,
        "licence": chosen.licence,
        "label_origin": chosen.label_origin,
        "consent": chosen.consent,
    }


def _entry(portrait: FinishedPortrait) -> Mapping[str, Json]:
    chosen = portrait.selected
    left, top, side = portrait.box
    return {
        "id": chosen.id,
        "file": f"{PICTURES}/{slug(chosen.id)}.png",
        "sha256": portrait.sha256,
        "attributes": dict(chosen.attributes),
        "licence": chosen.licence,
        "label_origin": chosen.label_origin,
        "consent": chosen.consent,
        "source": {"file": chosen.source, "sha256": chosen.sha256, "pools": list(chosen.pools)},
        "crop": {"method": portrait.crop, "left": left, "top": top, "side": side, "enlarged": portrait.enlarged},
        "chosen": None
        if chosen.criteria is None
        else {"how": chosen.state, "by": list(chosen.chosen_by), "criteria": dict(chosen.criteria)},
        "measured": dict(portrait.measured.values),
    }


def _write_sums(folder: Path) -> None:
    files = [path for path in folder.rglob("*") if path.is_file()]
    sums = sums_of({path.relative_to(folder).as_posix(): sha256_of(path) for path in files})
    (folder / SUMS).write_text(sums, "utf-8")
    # The folder is renamed only when all of it is on disk.
    for path in (*files, folder / SUMS):
        with path.open("rb") as stream:
            os.fsync(stream.fileno())


def _content_of(folder: Path) -> str:
    try:
        manifest: dict[str, Any] = json.loads((folder / MANIFEST).read_text("utf-8"))
        return str(manifest["content"])
    except (OSError, ValueError, KeyError):
        return ""
