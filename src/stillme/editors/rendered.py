"""Pairs rendered with one parameter changed: changes that pixel operations cannot make.

A calibration folder holds `manifest.csv` with the columns `subject`, `axis`, `amount` and `changed_file`, and a
`portraits.csv` of the sources, whose ids are the subjects. The generator in `tools/portraits` makes one.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from stillme.core.errors import StillmeError
from stillme.core.protocols import Capabilities, Editor, Parameters
from stillme.core.types import Edited, EditOutcome, Failed, Portrait, Prompt, Request

MANIFEST = "manifest.csv"

_KINDS = {"skin_tone": "tone", "identity": "swapped", "none": ""}
"""The manifest's names where ours differ; empty for changes that pixel operations make as well."""


class RenderedParameters(Parameters):
    """Where the pairs are."""

    folder: Path


class Rendered(Editor):
    """Returns renders that differ in one parameter by a known amount, for calibrating judges."""

    Parameters = RenderedParameters
    capabilities = Capabilities(batching="per_item", batch=8, seed="exact")

    def __init__(self, parameters: RenderedParameters) -> None:
        super().__init__(parameters)
        self._folder = parameters.folder

    def problems(self, portraits: Sequence[Portrait], prompts: Sequence[Prompt]) -> Iterator[str]:
        """A folder that cannot be read, and pairs that it lacks."""
        try:
            files = self._files
        except StillmeError as error:
            yield str(error)
            return
        cells = [(portrait.id, prompt.id) for portrait in portraits for prompt in prompts]
        missing = [cell for cell in cells if cell not in files]
        if missing:
            (portrait, prompt), more = missing[0], len(missing) - 1
            others = f", and {more} more are missing" if more else ""
            yield f"{self._folder} has no picture of {prompt} for {portrait!r}{others}"

    def edit_one(self, request: Request) -> EditOutcome:
        """The render of the subject and change."""
        name = self._files.get((request.portraits[0].id, request.prompt.id))
        try:
            return Edited(image=(self._folder / str(name)).read_bytes())
        except OSError as error:
            return Failed(error=f"{name} of {self._folder} cannot be read ({error.strerror})", retryable=False)

    @cached_property
    def _files(self) -> Mapping[tuple[str, str], str]:
        return {(row["subject"], _name(row)): row["changed_file"] for row in _rows(self._folder) if _kind(row)}


@dataclass(frozen=True, slots=True, kw_only=True)
class RenderedChange:
    """A render that differs from its subject's source in one parameter."""

    subject: str
    kind: str
    amount: float
    file: str


def changes(folder: Path) -> tuple[RenderedChange, ...]:
    """Every change that the folder holds."""
    return tuple(
        RenderedChange(subject=row["subject"], kind=_kind(row), amount=float(row["amount"]), file=row["changed_file"])
        for row in _rows(folder)
        if _kind(row)
    )


def prompts(folder: Path) -> tuple[Prompt, ...]:
    """One prompt per change that the folder holds for every subject."""
    rows = [row for row in _rows(folder) if _kind(row)]
    subjects = {row["subject"] for row in rows}
    complete = [
        name for name in dict.fromkeys(map(_name, rows)) if sum(_name(row) == name for row in rows) == len(subjects)
    ]
    kinds = {_name(row): _kind(row) for row in rows}
    text = "Dress the person in a dark suit."
    return tuple(Prompt(id=name, text=text, category="calibration", subcategory=kinds[name]) for name in complete)


def _rows(folder: Path) -> list[dict[str, str]]:
    try:
        with (folder / MANIFEST).open(encoding="utf-8", newline="") as stream:
            rows = list(csv.DictReader(stream))
    except OSError as error:
        raise StillmeError(
            f"{folder / MANIFEST} cannot be read ({error.strerror}); name the folder of a calibration set."
        ) from None
    missing = {"subject", "axis", "amount", "changed_file"} - set(rows[0] if rows else ())
    if missing:
        raise StillmeError(f"{folder / MANIFEST} lacks the columns {', '.join(sorted(missing))}; add them.")
    return rows


def _kind(row: Mapping[str, str]) -> str:
    return _KINDS.get(row["axis"], row["axis"])


def _name(row: Mapping[str, str]) -> str:
    return f"{_kind(row)}{float(row['amount']):+g}"
