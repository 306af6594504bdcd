"""Where candidates come from: a folder with a CSV, FairFace as published, or a dataset of the Hugging Face hub.

A source lists all of its rows, cheaply, and reads single pictures when asked: sampling some hundreds of FairFace's
100,000 pictures opens some hundreds of files.
"""

from __future__ import annotations

import csv
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Protocol

from stillme.curation.taxonomy import Taxonomy, taxonomy
from stillme.errors import InvalidPortraits, Problem, StillmeError, UnreadableImage, did_you_mean
from stillme.portraits.folder import TABLE

FAIRFACE_TABLES = {"train": "fairface_label_train.csv", "val": "fairface_label_val.csv"}
"""FairFace's splits, and the tables of its published layout."""
HUB = "hf:"
"""What a source on the Hugging Face hub begins with."""

_MEANT = ("licence", "label_origin", "consent")
_SHOWN = 12
"""Problems listed one by one; the rest are counted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One picture of a source, not yet opened."""

    file: str
    """Its name within the source; a row's order depends on this and on nothing else."""
    attributes: Mapping[str, str]
    licence: str
    label_origin: str
    consent: str


class Source(Protocol):
    """Something that candidates can be drawn from."""

    @property
    def title(self) -> str:
        """What it is, for the record of the draw."""
        ...

    @property
    def levels(self) -> Mapping[str, tuple[str, ...]]:
        """The attributes and levels of its own design; empty where it has none."""
        ...

    def rows(self) -> Iterator[Row]:
        """All rows, pictures unopened. Raises `InvalidPortraits` with every problem found."""
        ...

    def read(self, row: Row) -> bytes:
        """One picture's file as it is. Raises `UnreadableImage`."""
        ...


def open_source(
    where: str, *, table: Path | None = None, splits: Sequence[str] = (), configuration: str = "1.25"
) -> Source:
    """Find out what `where` is: `hf:REPO`, FairFace as published, or a folder with a CSV."""
    if where.startswith(HUB):
        from stillme.curation.hub import HubSource

        return HubSource(where.removeprefix(HUB), configuration=configuration, splits=tuple(splits) or ("train",))
    folder = Path(where)
    if not folder.is_dir():
        raise StillmeError(f"{where} is not a folder. Name one with a {TABLE}, a copy of FairFace, or hf:REPO.")
    published = {split: folder / name for split, name in FAIRFACE_TABLES.items() if (folder / name).is_file()}
    if table is None and published:
        return FolderSource(folder, tables=_chosen(published, splits), taxonomy=taxonomy("fairface"))
    if splits:
        raise StillmeError(f"--split goes with FairFace or the hub; {where} has no {FAIRFACE_TABLES['train']}.")
    return FolderSource(folder, tables=(_within(folder, table),), taxonomy=None)


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

    def rows(self) -> Iterator[Row]:
        """All rows of all tables; a file that is listed twice counts once if its labels agree."""
        seen: dict[str, Row] = {}
        for table in self._tables:
            problems = Problems(str(table))
            for place, cells in table_rows(table):
                row = self._row(place, cells, problems)
                if row is None:
                    continue
                if row.file not in seen:
                    seen[row.file] = row
                elif seen[row.file] != row:
                    problems.add(place, f"{row.file!r} is listed twice, with different labels")
            problems.settle()
        yield from seen.values()

    def read(self, row: Row) -> bytes:
        """One picture's file. A link that leads out of the folder is not followed."""
        return read_within(self._folder, row.file)

    def _row(self, place: str, cells: Mapping[str, str], problems: Problems) -> Row | None:
        file = cells["file"]
        if fault := leaves(file):
            problems.add(place, fault)
            return None
        if self._taxonomy is None:
            attributes = {name: value for name, value in cells.items() if name not in _NOT_ATTRIBUTES and value}
            given = {name: cells.get(name, "") for name in _MEANT}
            return Row(file=file, attributes=attributes, **given)
        return translated(file, place, cells, self._taxonomy, problems)


_NOT_ATTRIBUTES = frozenset({"file", "id", "sha256", "block", *_MEANT})


def translated(file: str, place: str, cells: Mapping[str, str], taxonomy: Taxonomy, problems: Problems) -> Row | None:
    """A row whose labels are put into a taxonomy's levels."""
    attributes: dict[str, str] = {}
    for attribute, labels in taxonomy.labels.items():
        if attribute not in cells:
            known = ", ".join(cells) or "none"
            problems.add("line 1", f"has no column {attribute!r}; its columns are {known}")
            return None
        level = labels.get(cells[attribute])
        if level is None:
            hint = did_you_mean(cells[attribute], labels)
            problems.add(place, f"unknown {attribute} {cells[attribute]!r}.{hint}", once=(attribute, cells[attribute]))
            return None
        attributes[attribute] = level
    # Other columns can be chosen by, such as FairFace's service_test.
    others = {name: value for name, value in cells.items() if name not in taxonomy.labels and name != "file" and value}
    return Row(
        file=file,
        attributes=others | attributes,
        licence=taxonomy.licence,
        label_origin=taxonomy.label_origin,
        consent=taxonomy.consent,
    )


class Problems:
    """What is wrong with one table; raised together."""

    def __init__(self, source: str) -> None:
        self._source = source
        self._found: list[Problem] = []
        self._more = 0
        self._repeated: Counter[object] = Counter()

    def add(self, place: str, message: str, *, once: object = None) -> None:
        """Note one problem; those with the same `once` are listed the first time only, then counted."""
        key = once or (place if place == "line 1" else None)
        if key is not None:
            self._repeated[key] += 1
            if self._repeated[key] > 1:
                return
        if len(self._found) >= _SHOWN:
            self._more += 1
        else:
            self._found.append(Problem(place=place, message=message))

    def settle(self) -> None:
        """Raise if there were any."""
        if not self._found:
            return
        again = sum(count - 1 for count in self._repeated.values())
        if self._more + again:
            rest = f"and {self._more + again:,} more rows like these"
            self._found.append(Problem(place="", message=rest))
        raise InvalidPortraits(self._source, self._found)


def table_rows(table: Path) -> Iterator[tuple[str, dict[str, str]]]:
    """The lines of a CSV with a column `file`, one at a time, each with its place."""
    try:
        with table.open(encoding="utf-8-sig", newline="") as stream:
            reader = csv.DictReader(stream, strict=True)
            columns = list(reader.fieldnames or ())
            if "file" not in columns:
                hint = f"has no column 'file'; its columns are {', '.join(columns) or 'none'}"
                raise InvalidPortraits(str(table), [Problem(place="line 1", message=hint)])
            if twice := [name for name, count in Counter(columns).items() if count > 1]:
                hint = f"has the column {twice[0]!r} twice; give each its own name"
                raise InvalidPortraits(str(table), [Problem(place="line 1", message=hint)])
            for cells in reader:
                if None in cells:
                    raise csv.Error("a row has more cells than the header")
                yield f"line {reader.line_num}", {name: (value or "").strip() for name, value in cells.items()}
    except FileNotFoundError:
        hint = "is missing; write one with the columns file, licence, label_origin, consent and your attributes"
        raise InvalidPortraits(str(table), [Problem(place="", message=hint)]) from None
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise InvalidPortraits(str(table), [Problem(place="", message=f"cannot be read ({error})")]) from None


def leaves(file: str) -> str:
    """What is wrong with a file's name, or nothing: it must name something within the folder."""
    if not file:
        return "'file' is empty; name a picture of this folder"
    path = PurePosixPath(file.replace("\\", "/"))
    if path.is_absolute() or ".." in path.parts or ":" in path.parts[0] or "\0" in file:
        return f"{file!r} leaves the folder; copy the picture into it"
    return ""


def read_within(folder: Path, file: str) -> bytes:
    """Read a file of `folder`; one sentence where it is not there or lies elsewhere."""
    path = folder / file
    try:
        if not path.resolve(strict=True).is_relative_to(folder.resolve()):
            raise UnreadableImage(f"{file} leaves the folder; copy the picture into it.")
        return path.read_bytes()
    except FileNotFoundError:
        raise UnreadableImage(f"{file} does not exist.") from None
    except IsADirectoryError:
        raise UnreadableImage(f"{file} is a folder, not a picture.") from None
    except OSError as error:
        raise UnreadableImage(f"{file} cannot be read ({error.strerror}).") from None


def _chosen(published: Mapping[str, Path], splits: Sequence[str]) -> tuple[Path, ...]:
    for split in splits:
        if split not in published:
            raise StillmeError(f"There is no split {split!r} here; found: {', '.join(published)}.")
    return tuple(path for split, path in published.items() if not splits or split in splits)


def _within(folder: Path, table: Path | None) -> Path:
    if table is None:
        return folder / TABLE
    return folder / table if not table.is_absolute() and not table.is_file() else table
