"""Where candidates come from: a folder with a CSV, or FairFace as published.

A source lists all of its rows, cheaply, and reads single pictures when asked: sampling some hundreds of FairFace's
100,000 pictures opens some hundreds of files.
"""

from __future__ import annotations

import io
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path, PurePosixPath
from typing import Literal

from PIL import Image, UnidentifiedImageError
from pydantic import TypeAdapter

from stillme.core import images
from stillme.core.errors import InvalidPortraits, Problem, StillmeError, UnreadableImage, did_you_mean
from stillme.core.files import packaged_toml
from stillme.portraits.folder import TABLE, TERMS, attributes_of, table_rows

Kind = Literal["empty", "missing", "special", "repeated", "listed again", "contradicted", "same id", "unusable"]

_WORDS: dict[Kind, tuple[str, str]] = {
    "empty": ("row has no value", "rows have no value"),
    "missing": ("file does not exist", "files do not exist"),
    "special": ("name is not a file's but a folder's or a device's", "names are not files' but folders' or devices'"),
    "repeated": ("file is the same picture as another", "files are the same pictures as others"),
    "listed again": ("row repeats another", "rows repeat others"),
    "contradicted": ("file is listed twice, with different labels", "files are listed twice, with different labels"),
    "same id": ("id is used twice; ids must differ in letters", "ids are used twice; ids must differ in letters"),
    "unusable": ("picture cannot be used", "pictures cannot be used"),
}
_EXAMPLES = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """One row or file that is left out, and why."""

    kind: Kind
    name: str
    """The file, or where the row stands."""
    column: str = ""
    """Where a value is missing."""
    why: str = ""
    """What an example shows beyond the name."""


class Faults:
    """What was left out, in order."""

    def __init__(self, faults: Iterable[Fault] = ()) -> None:
        self._faults = list(faults)

    def __iter__(self) -> Iterator[Fault]:
        return iter(self._faults)

    def __len__(self) -> int:
        return len(self._faults)

    def add(self, kind: Kind, name: str, why: str = "", *, column: str = "") -> None:
        """Count one more."""
        self._faults.append(Fault(kind=kind, name=name, why=why, column=column))

    @property
    def sentences(self) -> tuple[str, ...]:
        """One for every kind, with its number and the first examples."""
        kinds: dict[tuple[Kind, str], list[Fault]] = {}
        for fault in self._faults:
            kinds.setdefault((fault.kind, fault.column), []).append(fault)
        return tuple(_sentence(kind, column, faults) for (kind, column), faults in kinds.items())


def _sentence(kind: Kind, column: str, faults: list[Fault]) -> str:
    one, several = _WORDS[kind]
    examples = [fault.why or fault.name for fault in faults[:_EXAMPLES]]
    shown = ("; " if kind == "unusable" else ", ").join(example.rstrip(".") for example in examples)
    of = f" for {column!r}" if column else ""
    more = ", …" if len(faults) > _EXAMPLES else ""
    return f"{len(faults):,} {one if len(faults) == 1 else several}{of}: {shown}{more}."


@dataclass(frozen=True, slots=True, kw_only=True)
class Taxonomy:
    """What the labels of one data set are called, and what a sample takes of them by default."""

    title: str
    licence: str
    label_origin: str
    consent: str
    levels: Mapping[str, tuple[str, ...]]
    """Of each attribute, what is sampled unless told otherwise."""
    labels: Mapping[str, Mapping[str, str]]
    """Of each attribute, published label → level."""


@cache
def taxonomy(name: str) -> Taxonomy:
    """Read one of the taxonomies that ship with this version."""
    return TypeAdapter(Taxonomy).validate_python(packaged_toml("stillme.curation", "taxonomies", f"{name}.toml"))


SMALLEST = 64
"""Pixels of the shorter side; less cannot show a face."""
_FORMATS = {"JPEG": ".jpg", "PNG": ".png", "WEBP": ".webp", "TIFF": ".tif", "BMP": ".bmp"}


def inspect(data: bytes, name: str) -> str:
    """The suffix of a picture that can be used. Animated, too large, too small and CMYK pictures are refused."""
    try:
        # The header; `read_rgb` below decodes.
        with Image.open(io.BytesIO(data)) as picture:
            kind, mode = picture.format or "", picture.mode
            width, height = picture.size
    except (UnidentifiedImageError, Image.DecompressionBombError, Image.DecompressionBombWarning, OSError):
        kind, mode, width, height = "", "", SMALLEST, SMALLEST  # read_rgb below reports the reason
    if mode == "CMYK":
        raise UnreadableImage(f"{name} is in CMYK, where skin has no defined colour; convert it to RGB.")
    images.read_rgb(data, name=name)
    if kind not in _FORMATS:
        raise UnreadableImage(f"{name} is {kind}; portraits are {', '.join(_FORMATS)}.")
    if min(width, height) < SMALLEST:
        raise UnreadableImage(f"{name} has {width}×{height} pixels; at least {SMALLEST} each way are needed.")
    return _FORMATS[kind]


FAIRFACE_TABLES = {"train": "fairface_label_train.csv", "val": "fairface_label_val.csv"}
"""FairFace's splits, and the tables of its published layout."""

_MOST_LISTED = 12
"""Problems listed one by one; the rest are counted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceRow:
    """One picture of a source, not yet opened."""

    file: str
    """Its name within the source; a row's order depends on this and on nothing else."""
    attributes: Mapping[str, str]
    licence: str
    label_origin: str
    consent: str


def open_source(where: str, *, table: Path | None = None, splits: Sequence[str] = ()) -> FolderSource:
    """The source at `where`: FairFace as published, or a folder with a CSV."""
    folder = Path(where)
    if not folder.is_dir():
        raise StillmeError(f"{where} is not a folder. Name a folder with a {TABLE}, or a copy of FairFace.")
    published = {split: folder / name for split, name in FAIRFACE_TABLES.items() if (folder / name).is_file()}
    if table is None and published:
        for split in splits:
            if split not in published:
                raise StillmeError(f"There is no split {split!r} here. Choose one of {', '.join(published)}.")
        tables = tuple(path for split, path in published.items() if not splits or split in splits)
        return FolderSource(folder, tables=tables, taxonomy=taxonomy("fairface"))
    if splits:
        raise StillmeError(f"--split needs FairFace; {where} has no {FAIRFACE_TABLES['train']}.")
    chosen = folder / TABLE if table is None else table if table.is_file() else folder / table
    return FolderSource(folder, tables=(chosen,), taxonomy=None)


class FolderSource:
    """A folder of pictures, and one or more CSV files with a column `file` and any attributes."""

    def __init__(self, folder: Path, *, tables: tuple[Path, ...], taxonomy: Taxonomy | None) -> None:
        self._folder = folder
        self._tables = tables
        self._taxonomy = taxonomy

    @property
    def title(self) -> str:
        """What it is, for the record of the draw."""
        names = ", ".join(path.name for path in self._tables)
        return f"{self._taxonomy.title if self._taxonomy else self._folder.name} ({names})"

    @property
    def levels(self) -> Mapping[str, tuple[str, ...]]:
        """The taxonomy's design, where there is one."""
        return self._taxonomy.levels if self._taxonomy else {}

    def rows(self, faults: Faults) -> Iterator[SourceRow]:
        """All rows of all tables, pictures unopened; those that cannot be used are added to `faults`.

        A file that is listed twice counts once if its labels agree, else not at all.
        """
        seen: dict[str, SourceRow] = {}
        contradicted: dict[str, None] = {}
        for table in self._tables:
            problems = Problems(str(table))
            for place, cells in table_rows(table):
                row = self._row(place, cells, problems)
                if row is None:
                    continue
                if row.file not in seen:
                    seen[row.file] = row
                elif seen[row.file] == row:
                    faults.add("listed again", f"{row.file} ({place})")
                else:
                    contradicted[row.file] = None
            problems.raise_if_any()
        for file in contradicted:
            faults.add("contradicted", file)
        yield from (row for file, row in seen.items() if file not in contradicted)

    def read(self, row: SourceRow) -> bytes:
        """One picture's file. A link that leads out of the folder is not followed."""
        return read_within(self._folder, row.file)

    def _row(self, place: str, cells: Mapping[str, str], problems: Problems) -> SourceRow | None:
        file = cells["file"]
        if fault := path_fault(file):
            problems.add(place, fault)
            return None
        if self._taxonomy:
            return _translated(place, cells, self._taxonomy, problems)
        return SourceRow(file=file, attributes=attributes_of(cells), **{name: cells.get(name, "") for name in TERMS})


def _translated(place: str, cells: Mapping[str, str], taxonomy: Taxonomy, problems: Problems) -> SourceRow | None:
    """A row with its labels translated into a taxonomy's levels."""
    attributes: dict[str, str] = {}
    for attribute, labels in taxonomy.labels.items():
        if attribute not in cells:
            known = ", ".join(cells) or "none"
            problems.add("line 1", f"has no column {attribute!r}; its columns are {known}")
            return None
        if not cells[attribute]:
            continue  # counted where it is known which attributes matter
        level = labels.get(cells[attribute])
        if level is None:
            hint = did_you_mean(cells[attribute], labels)
            problems.add(place, f"unknown {attribute} {cells[attribute]!r}.{hint}", once=(attribute, cells[attribute]))
            return None
        attributes[attribute] = level
    # Rows can be filtered by other columns, such as FairFace's service_test.
    others = {name: value for name, value in cells.items() if name not in taxonomy.labels and name != "file" and value}
    return SourceRow(
        file=cells["file"],
        attributes=others | attributes,
        licence=taxonomy.licence,
        label_origin=taxonomy.label_origin,
        consent=taxonomy.consent,
    )


class Problems:
    """The problems of one table, raised together."""

    def __init__(self, source: str) -> None:
        self._source = source
        self._listed: list[Problem] = []
        self._more = 0
        self._repeated: Counter[object] = Counter()

    def add(self, place: str, message: str, *, once: object = None) -> None:
        """Note one problem; those with the same `once` are listed the first time only, then counted."""
        key = once or (place if place == "line 1" else None)
        if key is not None:
            self._repeated[key] += 1
            if self._repeated[key] > 1:
                return
        if len(self._listed) >= _MOST_LISTED:
            self._more += 1
        else:
            self._listed.append(Problem(place=place, message=message))

    def raise_if_any(self) -> None:
        """Raise all of them together."""
        if not self._listed:
            return
        again = sum(count - 1 for count in self._repeated.values())
        if self._more + again:
            rest = f"and {self._more + again:,} more rows like these"
            self._listed.append(Problem(place="", message=rest))
        raise InvalidPortraits(self._source, self._listed)


def path_fault(file: str) -> str:
    """What is wrong with a file's name, which must stay within the folder; empty if nothing."""
    if not file:
        return "'file' is empty; name a picture of this folder"
    path = PurePosixPath(file.replace("\\", "/"))
    if path.is_absolute() or ".." in path.parts or ":" in path.parts[0] or "\0" in file:
        return f"{file!r} leaves the folder; copy the picture into it"
    return ""


class NoCandidateFile(UnreadableImage):
    """A file that a table names and no one can read, whatever it holds."""

    def __init__(self, message: str, kind: Kind) -> None:
        super().__init__(message)
        self.kind: Kind = kind


def read_within(folder: Path, file: str) -> bytes:
    """Read a file of `folder`; `UnreadableImage` where it is missing, lies elsewhere or is no plain file."""
    path = folder / file
    try:
        path.stat()  # says at once what is missing; resolving a path costs much more
        if not path.resolve(strict=True).is_relative_to(folder.resolve()):
            raise UnreadableImage(f"{file} leaves the folder; copy the picture into it.")
        if not path.is_file():
            # Reading a pipe or a device could wait for ever.
            raise NoCandidateFile(f"{file} is not a file but a folder, a pipe or a device.", "special")
        return path.read_bytes()
    except FileNotFoundError:
        raise NoCandidateFile(f"{file} does not exist.", "missing") from None
    except (OSError, RuntimeError) as error:  # RuntimeError: a link that leads to itself
        raise UnreadableImage(f"{file} cannot be read ({getattr(error, 'strerror', None) or error}).") from None


def add_unreadable(faults: Faults, file: str, error: UnreadableImage) -> None:
    """Count a picture that could not be read, under what is wrong with it."""
    if isinstance(error, NoCandidateFile):
        faults.add(error.kind, file)
    else:
        faults.add("unusable", file, str(error))
