"""What instruments measure, and their validity cards: on which data, and how far to trust each."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

from stillme.core.files import packaged_toml

SKIN = ("skin_delta_l", "skin_delta_e", "skin_delta_ita")
IDENTITY = ("identity_distance", "identity_drift", "identity_swap")
DESCRIBED = (*IDENTITY, "age_delta_years", "gender_delta")
REGIONS = ("changed_face", "changed_hair", "changed_clothes", "changed_background")
CHANGED = ("changed_area", "mean_delta_e", "visible_change", *REGIONS)
NOT_VISIBLE, VISIBLE = 1.0, 2.0
"""The answers of `visible_change`."""
QUANTITIES = (*SKIN, *DESCRIBED, *CHANGED)
SCALES = ("skin_tone", "gender_change", "age_change")
"""The paper's scales that a measurement decides."""
SOURCE_SKIN = "source_skin_l"
"""How light the portrait's skin is: not a change, but on which skin the judge must be validated."""


_NAMES = ("face", "skin", "change", "identity", "age", "gender", "race")
_READ = ("age", "gender", "race")
"""Read by heads, whose numbers are cross-validated where they are trained."""


@dataclass(frozen=True, slots=True, kw_only=True)
class InstrumentCard:
    """What one instrument measures, and how far to trust it."""

    name: str
    title: str
    axes: tuple[str, ...]
    """The axes that it answers."""
    measures: str
    unit: str
    method: str
    networks: tuple[str, ...]
    licence: str
    data: str
    noise_floor: str
    abstains: str
    failures: tuple[str, ...]
    columns: Mapping[str, str]
    """The titles of the table's columns."""
    table: Mapping[str, Mapping[str, float]]
    """Measured numbers by group; `all` is everyone."""
    notes: Mapping[str, Any]
    """Further measured numbers, such as confusions of apparent race."""

    @property
    def paragraphs(self) -> Mapping[str, str]:
        """Everything but the numbers, in reading order."""
        return {
            "Measures": self.measures,
            "Unit": self.unit,
            "Method": self.method,
            "Licence": self.licence,
            "Data": self.data,
            "Noise": self.noise_floor,
            "Abstains": self.abstains,
            "Fails": " ".join(self.failures),
        }

    @property
    def rows(self) -> list[list[str]]:
        """The table as text; the first row names the columns."""
        head = ["group", *self.columns.values()]
        return [
            head,
            *([group, *(_number(row.get(name)) for name in self.columns)] for group, row in self.table.items()),
        ]

    def text(self) -> str:
        """Write the card for a terminal."""
        widths = [max(len(row[column]) for row in self.rows) for column in range(len(self.rows[0]))]
        table = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) for row in self.rows]
        words = [f"  {name}: {value}" for name, value in self.paragraphs.items()]
        return "\n".join([self.title, *words, *(f"  {line}" for line in table)])


@cache
def cards() -> tuple[InstrumentCard, ...]:
    """All cards of this version, with the numbers that `tools/models` measured."""
    measured, read = _read("measured"), _read("heads_measured")
    tables = measured | {name: read[name] for name in _READ}
    return tuple(_card(name, tables, _notes(name, read)) for name in _NAMES)


def _notes(name: str, read: Mapping[str, Any]) -> Mapping[str, Any]:
    """What was measured beside the table: differences that are known, and confusions."""
    return {key: value for key, value in read.items() if key.startswith(f"{name}_")} if name in _READ else {}


def _card(name: str, measured: Mapping[str, Any], notes: Mapping[str, Any]) -> InstrumentCard:
    entry = _read(name)
    lists = {key: tuple(entry.pop(key)) for key in ("axes", "networks", "failures")}
    return InstrumentCard(name=name, table=measured[entry.pop("table")], notes=notes, **lists, **entry)


def _read(name: str) -> dict[str, Any]:
    return packaged_toml("stillme.instruments", "cards", f"{name}.toml")


def _number(value: float | None) -> str:
    if value is None:
        return "–"
    return f"{value:,}" if isinstance(value, int) else f"{value:g}"
