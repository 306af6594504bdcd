"""Read a folder of pictures with a CSV that says who gave which label."""

from __future__ import annotations

import csv
from collections.abc import Iterator, Mapping
from pathlib import Path

from stillme import images
from stillme.errors import InvalidPortraits, Problem, UnreadableImage
from stillme.types import ImageFile, Portrait

TABLE = "portraits.csv"
"""The file of attributes inside a folder of portraits."""

_OWN = frozenset({"id", "file", "sha256", "licence", "label_origin", "consent", "block"})
"""Columns with a meaning of their own; every other column is an attribute."""


def load(folder: Path) -> tuple[Portrait, ...]:
    """All portraits of `folder`, in the order of its CSV. Pictures are hashed here, decoded by `check`.

    Columns: `file` (needed), `id` (else the file's stem), `licence`, `label_origin`, `consent`, `block`, `sha256`;
    all others are attributes. Every problem is reported, not only the first.
    """
    table = folder / TABLE
    problems: list[Problem] = []
    found: dict[str, Portrait] = {}
    for place, row in _rows(folder, table):
        portrait = _portrait(folder, place, row, problems)
        if portrait and portrait.id in found:
            problems.append(Problem(place=place, message=f"the id {portrait.id!r} is used twice; ids must differ"))
        elif portrait:
            found[portrait.id] = portrait
    if not found and not problems:
        problems.append(Problem(place="", message="has no rows; list at least one picture under the column 'file'"))
    if problems:
        raise InvalidPortraits(str(table), problems)
    return tuple(found.values())


def check(portraits: tuple[Portrait, ...]) -> list[Problem]:
    """Decode every picture once; those that cannot be read are named."""
    problems: list[Problem] = []
    for portrait in portraits:
        try:
            images.check(portrait.image.path)
        except UnreadableImage as error:
            problems.append(Problem(place=f"portrait {portrait.id!r}", message=str(error)))
    return problems


def _rows(folder: Path, table: Path) -> Iterator[tuple[str, Mapping[str, str]]]:
    if not folder.is_dir():
        raise InvalidPortraits(str(folder), [Problem(place="", message="is not a folder")])
    try:
        text = table.read_text("utf-8-sig")
    except FileNotFoundError:
        hint = "is missing; write one with the columns file, licence, label_origin and your attributes"
        raise InvalidPortraits(str(table), [Problem(place="", message=hint)]) from None
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidPortraits(str(table), [Problem(place="", message=f"cannot be read ({error})")]) from None
    reader = csv.DictReader(text.splitlines(), strict=True)
    if "file" not in (reader.fieldnames or ()):
        hint = f"has no column 'file'; its columns are {', '.join(reader.fieldnames or ()) or 'none'}"
        raise InvalidPortraits(str(table), [Problem(place="line 1", message=hint)])
    try:
        for row in reader:
            if None in row:
                raise csv.Error("a row has more cells than the header")
            yield f"line {reader.line_num}", {name: (value or "").strip() for name, value in row.items()}
    except csv.Error as error:
        raise InvalidPortraits(str(table), [Problem(place=f"line {reader.line_num}", message=str(error))]) from None


def _portrait(folder: Path, place: str, row: Mapping[str, str], problems: list[Problem]) -> Portrait | None:
    path = folder / row["file"]
    if not row["file"]:
        problems.append(Problem(place=place, message="'file' is empty; name a picture of this folder"))
        return None
    if not path.resolve().is_relative_to(folder.resolve()):
        problems.append(Problem(place=place, message=f"{row['file']!r} leaves the folder; copy the picture into it"))
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
        attributes={name: value for name, value in row.items() if name not in _OWN and value},
        label_origin=row.get("label_origin") or "not stated",
        licence=row.get("licence") or "not stated",
        block=row.get("block", ""),
    )
