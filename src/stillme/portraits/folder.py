"""Read a folder of pictures with a CSV of labels."""

from __future__ import annotations

import csv
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path

from stillme.core import images
from stillme.core.errors import InvalidPortraits, Problem, UnreadableImage
from stillme.core.files import unmarked, wrong_separator
from stillme.core.types import ImageFile, Portrait

TABLE = "portraits.csv"
"""The file of attributes inside a folder of portraits."""

TERMS = ("licence", "label_origin", "consent")
"""The columns that say who may use a picture, who labelled it, and what the person agreed to."""

OWN_COLUMNS = frozenset({"id", "file", "sha256", "block", *TERMS})
"""Columns with a meaning of their own; every other column is an attribute."""


NO_ROWS = Problem(place="", message="has no rows; list at least one picture under the column 'file'")


def load(folder: Path) -> tuple[Portrait, ...]:
    """All portraits of `folder`, in the order of its CSV. Pictures are hashed here, decoded by `check`.

    Columns: `file` (needed), `id` (else the file's stem), `licence`, `label_origin`, `consent`, `block`, `sha256`;
    all others are attributes. Every problem is reported, not only the first.
    """
    if not folder.is_dir():
        raise InvalidPortraits(str(folder), [Problem(place="", message="is not a folder")])
    table = folder / TABLE
    problems: list[Problem] = []
    portraits: dict[str, Portrait] = {}
    for place, row in table_rows(table):
        portrait = _portrait(folder, place, row, problems)
        if portrait and portrait.id in portraits:
            problems.append(Problem(place=place, message=f"the id {portrait.id!r} is used twice; ids must differ"))
        elif portrait:
            portraits[portrait.id] = portrait
    if not portraits and not problems:
        problems.append(NO_ROWS)
    if problems:
        raise InvalidPortraits(str(table), problems)
    return tuple(portraits.values())


def check(portraits: tuple[Portrait, ...]) -> list[Problem]:
    """Decode every picture once; those that cannot be read are named."""
    problems: list[Problem] = []
    for portrait in portraits:
        try:
            images.check(portrait.image.path)
        except UnreadableImage as error:
            problems.append(Problem(place=f"portrait {portrait.id!r}", message=str(error)))
    return problems


def colour_note(portraits: tuple[Portrait, ...]) -> str:
    """A sentence about readable portraits whose colour profile is not applied; empty if there are none."""
    problems: dict[str, str] = {}
    for portrait in portraits:
        with suppress(UnreadableImage):  # `check` names these
            if problem := images.colour_problem(portrait.image.path):
                problems[portrait.id] = problem
    if not problems:
        return ""
    portrait, problem = next(iter(problems.items()))
    others = f" and {len(problems) - 1:,} more" if len(problems) > 1 else ""
    return (
        f"Taken for sRGB: the portrait {portrait!r}{others} ({problem}). "
        "Its colours may be off; save it as sRGB to be sure."
    )


def table_rows(table: Path) -> Iterator[tuple[str, dict[str, str]]]:
    """The rows of a CSV with a column `file`, one at a time, each with its place in the file."""
    try:
        if table.exists() and not table.is_file():
            raise _fault(table, 0, "is not a file; name a CSV")
        with table.open(encoding="utf-8-sig", newline="") as stream:
            reader = csv.DictReader(stream, strict=True)
            columns = reader.fieldnames = [unmarked(name) for name in reader.fieldnames or ()]
            if fault := wrong_separator(columns):
                raise _fault(table, 1, fault)
            if "file" not in columns:
                raise _fault(table, 1, f"has no column 'file'; its columns are {', '.join(columns) or 'none'}")
            if repeated := [name for name, count in Counter(columns).items() if count > 1]:
                raise _fault(table, 1, f"has the column {repeated[0]!r} twice; give each its own name")
            try:
                for cells in reader:
                    if None in cells:
                        raise csv.Error("more cells than the header")
                    yield (
                        f"line {reader.line_num}",
                        {name: unmarked((value or "").strip()) for name, value in cells.items()},
                    )
            except csv.Error as error:
                raise _fault(table, reader.line_num, f"cannot be read ({error})") from None
    except FileNotFoundError:
        columns = "file, licence, label_origin, consent and your attributes"
        raise _fault(table, 0, f"is missing; write one with the columns {columns}") from None
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise _fault(table, 0, f"cannot be read ({error})") from None


def attributes_of(row: Mapping[str, str]) -> dict[str, str]:
    """The attributes of a table's row."""
    return {name: value for name, value in row.items() if name not in OWN_COLUMNS and value}


def _fault(table: Path, line: int, message: str) -> InvalidPortraits:
    return InvalidPortraits(str(table), [Problem(place=f"line {line}" if line else "", message=message)])


def _portrait(folder: Path, place: str, row: Mapping[str, str], problems: list[Problem]) -> Portrait | None:
    path = folder / row["file"]
    if not row["file"]:
        problems.append(Problem(place=place, message="'file' is empty; name a picture of this folder"))
        return None
    if not path.resolve().is_relative_to(folder.resolve()):
        problems.append(Problem(place=place, message=f"{row['file']!r} leaves the folder; copy the picture into it"))
        return None
    if path.exists() and not path.is_file():
        problems.append(Problem(place=place, message=f"{row['file']!r} is not a file; name a picture of this folder"))
        return None
    try:
        image = ImageFile.of(path)
    except OSError as error:
        problems.append(Problem(place=place, message=f"{row['file']!r} cannot be read ({error.strerror})"))
        return None
    if row.get("sha256") and row["sha256"] != image.sha256:
        problems.append(Problem(place=place, message=f"{row['file']!r} is not the picture that its sha256 names"))
        return None
    return Portrait(
        id=row.get("id") or path.stem,
        image=image,
        attributes=attributes_of(row),
        label_origin=row.get("label_origin") or "not stated",
        licence=row.get("licence") or "not stated",
        block=row.get("block", ""),
    )
