"""Write a data set of portraits as a new version: complete or not at all, by one process at a time.

DIR/v1/
  portraits.csv    what `[portraits] source = "DIR/v1"` reads
  pictures/*.png   1024 × 1024, without metadata
  manifest.json    per picture: hashes, source, crop, terms, curators, measurements; how they were curated
  curation.jsonl   every action of the curators
  CARD.md, card.html
  SHA256SUMS       of every file, for `stillme portraits verify` or `sha256sum -c`
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import re
import shutil
from collections import Counter
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from functools import partial
from importlib.resources import files
from itertools import product
from pathlib import Path
from typing import Any, Literal

import numpy as np
from filelock import FileLock, Timeout
from jinja2 import Environment, StrictUndefined
from PIL import Image

from stillme import __version__
from stillme.core import images
from stillme.core.errors import StillmeError, UnreadableImage
from stillme.core.files import SUMS, read_sums, sha256_of, sums_of, write_csv
from stillme.core.images import read_rgb
from stillme.core.types import Json, digest
from stillme.curation.decisions import Action, CuratorAgreement
from stillme.curation.measuring import MeasuredPicture, SimilarPair, find_similar, hints, load_criteria, measure
from stillme.curation.pools import Cell
from stillme.curation.sources import SourceRow
from stillme.instruments import faces
from stillme.instruments.faces.raster import Picture, fit
from stillme.portraits.folder import TABLE, TERMS, load
from stillme.portraits.sheet import CARD, write_sheet

SIZE = 1024
"""Pixels each way, as in the paper."""

Crop = Literal["face", "centre"]
METHODS: dict[Crop, str] = {
    "face": "the largest square within the picture whose centre is nearest to the face's",
    "centre": "the largest square in the middle of the picture",
}
RESIZING = "Lanczos on 8-bit sRGB"
_DETECTION_SIDE = 1024


def slug(text: str) -> str:
    """A name that every file system takes: `East Asian` → `east-asian`, `70+` → `70plus`."""
    plain = re.sub(r"[^\w.-]+", "-", text.lower().replace("+", "plus")).strip("-.")
    return plain or "unnamed"


@dataclass(frozen=True, slots=True, kw_only=True)
class Selected:
    """One picture that becomes a portrait."""

    id: str
    row: SourceRow
    """Its name where it came from, labels and terms."""
    path: Path
    sha256: str
    """Of the source file; empty where it was not recorded before."""
    block: str = ""
    pools: tuple[int, ...] = ()
    chosen_by: tuple[str, ...] = ()
    criteria: Mapping[str, int] | None = None
    """By criterion, how many of those who chose it had ticked it; None without curation."""
    state: str = ""
    """How the choice came about: agreed, voted, settled."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class SquarePicture:
    """A picture made square."""

    rgb: Picture
    box: tuple[int, int, int]
    """Left, top and side of the crop, in the source's pixels."""
    enlarged: float
    """Pixels of the result per pixel of the source, one way; above 1 no detail was added."""
    method: str
    """`centre` also where a face was looked for and none was found."""


def make_square(rgb: Picture, crop: Crop, size: int = SIZE) -> SquarePicture:
    """Crop and resize one picture."""
    height, width = rgb.shape[:2]
    side = min(height, width)
    middle = _face_centre(rgb) if crop == "face" else None
    x, y = middle or (width / 2, height / 2)
    left = int(np.clip(round(x - side / 2), 0, width - side))
    top = int(np.clip(round(y - side / 2), 0, height - side))
    part = Image.fromarray(rgb[top : top + side, left : left + side])
    resized = part if side == size else part.resize((size, size), Image.Resampling.LANCZOS)
    return SquarePicture(
        rgb=np.asarray(resized),
        box=(left, top, side),
        enlarged=round(size / side, 3),
        method=crop if crop == "centre" or middle else "centre",
    )


def _face_centre(rgb: Picture) -> tuple[float, float] | None:
    small = fit(rgb, _DETECTION_SIDE)
    detected = faces.find(small)
    if not detected:
        return None
    scale = rgb.shape[1] / small.shape[1]
    x, y = detected[0].centre
    return x * scale, y * scale


@dataclass(frozen=True, slots=True, kw_only=True)
class Curation:
    """How portraits were chosen."""

    levels: Mapping[str, tuple[str, ...]]
    pools: Mapping[int, int]
    """How many portraits come from each pool."""
    shortfalls: tuple[str, ...]
    passed_over: tuple[str, ...]
    missing: tuple[tuple[Cell, str], ...]
    """Cells without a portrait, and why."""
    curators: Mapping[str, int]
    """How many cells each decided."""
    agreement: tuple[CuratorAgreement, ...]
    outcomes: Mapping[str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class FinishedPortrait:
    """A finished portrait and its measurements."""

    selected: Selected
    sha256: str
    measured: MeasuredPicture
    enlarged: float
    crop: str
    box: tuple[int, int, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class DatasetCard:
    """What a version is: its origin, portraits and curation."""

    title: str
    version: str
    made: str
    source: str
    method: str
    portraits: Sequence[FinishedPortrait]
    curation: Curation | None
    """None for a user's own pictures, which were not curated."""
    actions: Sequence[Action]
    """The curators' log."""

    @property
    def alike(self) -> tuple[SimilarPair, ...]:
        """Portraits that show one picture, or perhaps one person."""
        return find_similar({portrait.selected.id: portrait.measured for portrait in self.portraits})

    def criteria(self) -> dict[str, tuple[int, int, int]]:
        """By criterion's title: portraits for which all, some, none of the choosers ticked it."""
        counts: dict[str, tuple[int, int, int]] = {}
        for criterion in load_criteria().criteria:
            shares = [
                portrait.selected.criteria[criterion.key] / max(len(portrait.selected.chosen_by), 1)
                for portrait in self.portraits
                if portrait.selected.criteria is not None
            ]
            by_all, by_none = sum(share >= 1 for share in shares), sum(share == 0 for share in shares)
            counts[criterion.title] = (by_all, len(shares) - by_all - by_none, by_none)
        return counts

    def terms(self) -> Counter[tuple[str, ...]]:
        """How many portraits have each combination of licence, label origin and consent."""
        return Counter(_terms(portrait.selected) for portrait in self.portraits)


def _terms(selected: Selected) -> tuple[str, ...]:
    return tuple(getattr(selected.row, name) for name in TERMS)


MANIFEST, PICTURES = "manifest.json", "pictures"
_LOCK = ".finalize.lock"
_PARTIAL = ".partial"


def markdown(card: DatasetCard) -> str:
    """The dataset card as people read it."""
    curation = card.curation
    values: dict[str, Any] = {}
    if curation:
        *rest, last = curation.levels
        names, across = list(curation.levels), curation.levels[last]
        counted = Counter(
            tuple(each.selected.row.attributes.get(name, "") for name in names) for each in card.portraits
        )
        values = {
            "heads": [*(rest or [""]), *across],
            "table": [
                [*(head or [last]), *(counted[*head, level] for level in across)]
                for head in product(*(curation.levels[name] for name in rest))
            ],
            "lists": {
                "Without a portrait": [f"{', '.join(cell)}: {why}" for cell, why in curation.missing],
                "Fewer candidates than asked for": curation.shortfalls,
                "Passed over when the pools were drawn": curation.passed_over,
            },
            "pools": sorted(curation.pools.items()),
        }
    source = files("stillme.curation").joinpath("card.md.jinja").read_text("utf-8")
    template = Environment(trim_blocks=True, lstrip_blocks=True, undefined=StrictUndefined).from_string(source)
    return template.render(
        card=card,
        stillme=__version__,
        doubts={
            criterion.title: [
                each.selected.id for each in card.portraits if hints(each.measured.values)[place].state != "fine"
            ]
            for place, criterion in enumerate(load_criteria().criteria)
        },
        scales=[each.enlarged for each in card.portraits],
        faceless=sum(each.crop == "centre" for each in card.portraits) if "face" in card.method else 0,
        **values,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class WrittenVersion:
    """A version on disk."""

    folder: Path
    portraits: int
    new: bool
    """False where the last version is already the same set."""


def write_version(
    home: Path,
    selected: Sequence[Selected],
    crop: Crop,
    *,
    source: str,
    curation: Curation | None = None,
    actions: Sequence[Action] = (),
    watch: Callable[[int, int], None] | None = None,
) -> WrittenVersion:
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
            if numbers and _content_of(home / f"v{numbers[-1]}") == content:
                return WrittenVersion(folder=home / f"v{numbers[-1]}", portraits=len(portraits), new=False)
            card = DatasetCard(
                title=home.resolve().name,
                version=name,
                made=datetime.now(UTC).isoformat(timespec="seconds"),
                source=source,
                method=f"Cut to {METHODS[crop]}, then {SIZE} × {SIZE} by {RESIZING}.",
                portraits=portraits,
                curation=curation,
                actions=actions,
            )
            _write_tables(unfinished, card, content, crop)
            _write_sums(unfinished)
            # A folder's own name changes in one step, so half a version is never seen.
            unfinished.rename(home / name)
        finally:
            shutil.rmtree(unfinished, ignore_errors=True)
        return WrittenVersion(folder=home / name, portraits=len(portraits), new=True)


def content_key(portraits: Sequence[FinishedPortrait]) -> str:
    """The hash of everything about a set that an audit can see."""
    return digest(
        [
            [
                *(chosen.id, portrait.sha256, dict(chosen.row.attributes), chosen.block),
                *_terms(chosen),
            ]
            for portrait in sorted(portraits, key=lambda portrait: portrait.selected.id)
            for chosen in [portrait.selected]
        ]
    )


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


def _write_tables(folder: Path, card: DatasetCard, content: str, crop: Crop) -> None:
    attributes = dict.fromkeys(name for portrait in card.portraits for name in portrait.selected.row.attributes)
    blocks = ["block"] if any(portrait.selected.block for portrait in card.portraits) else []
    columns = ["id", "file", "sha256", *attributes, *blocks, *TERMS]
    entries = [_entry(portrait) for portrait in card.portraits]
    rows = (
        {**entry["attributes"], **entry, "block": portrait.selected.block}
        for portrait, entry in zip(card.portraits, entries, strict=True)
    )
    write_csv(folder / TABLE, columns, ({name: row.get(name, "") for name in columns} for row in rows))
    manifest = {
        "format": 1,
        "stillme": __version__,
        "version": card.version,
        "made": card.made,
        "source": card.source,
        "content": content,
        "size": SIZE,
        "crop": crop,
        "resizing": RESIZING,
        "curation": asdict(card.curation) if card.curation else None,
        "alike": [asdict(pair) for pair in card.alike],
        "portraits": entries,
    }
    (folder / MANIFEST).write_text(json.dumps(manifest, indent=2, ensure_ascii=False) + "\n", "utf-8")
    (folder / CARD).write_text(markdown(card), "utf-8")
    if card.curation:
        lines = [json.dumps(asdict(action), ensure_ascii=False) for action in card.actions]
        (folder / "curation.jsonl").write_text("".join(f"{line}\n" for line in lines), "utf-8")
    write_sheet(load(folder), folder / "card.html")


def _entry(portrait: FinishedPortrait) -> dict[str, Json]:
    chosen = portrait.selected
    left, top, side = portrait.box
    return {
        "id": chosen.id,
        "file": f"{PICTURES}/{slug(chosen.id)}.png",
        "sha256": portrait.sha256,
        "attributes": dict(chosen.row.attributes),
        **dict(zip(TERMS, _terms(chosen), strict=True)),
        "source": {"file": chosen.row.file, "sha256": chosen.sha256, "pools": list(chosen.pools)},
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


_NOT_METADATA = frozenset({"interlace", "gamma", "dpi"})
"""What Pillow reports of every PNG."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Verified:
    """One version, and what is wrong with it."""

    folder: Path
    files: int
    problems: tuple[str, ...]


def verify(home: Path) -> list[Verified]:
    """Check every version in `home`, or the one that it is."""
    is_one = (home / MANIFEST).is_file() or (home / SUMS).is_file()
    versions = [home] if is_one else [home / f"v{number}" for number in sorted(_numbers(home))]
    if not versions:
        raise StillmeError(f"{home} holds no finished portraits. `stillme portraits finalize` or `import` makes them.")
    return [_verify(folder) for folder in versions]


def _verify(folder: Path) -> Verified:
    try:
        hashes = read_sums((folder / SUMS).read_text("utf-8"))
    except (OSError, UnicodeDecodeError):
        hashes = {}
    except StillmeError as error:
        return Verified(folder=folder, files=0, problems=(str(error),))
    return Verified(folder=folder, files=len(hashes), problems=tuple(_problems(folder, hashes)))


def _problems(folder: Path, hashes: Mapping[str, str]) -> Iterator[str]:
    if not hashes:
        yield f"{SUMS} is missing or empty."
        return
    for name, sha256 in hashes.items():
        try:
            now = sha256_of(folder / name)
        except OSError as error:
            yield f"{name} cannot be read ({error.strerror})."
            continue
        if now != sha256:
            yield f"{name} has changed since it was written."
    on_disk = {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()} - {SUMS}
    yield from (f"{name} was added later." for name in sorted(on_disk - set(hashes)))
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
        # Not through `images`: what else the file holds.
        with Image.open(portrait.image.path) as picture:
            if kept := sorted(str(name) for name in set(picture.info) - _NOT_METADATA):
                yield f"{portrait.id} carries metadata ({', '.join(kept)})."
