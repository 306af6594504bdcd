"""The number that the paper prints, in the cell of its own table."""

from __future__ import annotations

from dataclasses import replace

from stillme.core.paper import Published
from stillme.findings.tables.paper.diagnosis import AXES
from stillme.findings.tables.paper.source import axis_title
from stillme.findings.tables.paper.table import Cell, Number, PaperTable, Row
from stillme.runs.paper_names import PaperNames, published_text

_AXES = {axis_title(axis): axis for axis in AXES}
_RATES = {"Edit Succ.": "success", "Soft Eras.": "soft_erasure", "Race Change": "race_changed"}
_CHANGES = {
    "Δ Race Change (↓)": "race_change",
    "Δ Race": "race_change",
    "Δ Gender": "gender_change",
    "Δ Skin": "skin_tone",
    "Δ": "race_change",
}
_ARMS = {"Baseline Drift": "baseline", "w/ Feature": "feature"}


def with_paper(table: PaperTable, names: PaperNames | None) -> PaperTable:
    """The table with what the paper has in the same cells, and why the two are not the same measurement."""
    if names is None:
        return table
    rows = tuple(
        replace(
            row,
            cells=tuple(
                _cell(cell, _number(table, row, column, names))
                for column, cell in zip(table.head[1:], row.cells, strict=True)
            ),
        )
        for row in table.rows
    )
    compared = any(isinstance(cell, Number) and cell.paper for row in rows for cell in row.cells)
    return replace(table, rows=rows, notes=(*table.notes, *(names.differences if compared else ())))


def _cell(cell: Cell, known: Published | None) -> Cell:
    return replace(cell, paper=published_text(known)) if known and isinstance(cell, Number) else cell


def _number(table: PaperTable, row: Row, column: str, names: PaperNames) -> Published | None:
    place = table.place
    if table.appendix:
        wanted = (
            {"judge": "people", "statistic": "change"} if row.section.startswith("people") else {"statistic": "bias"}
        )
        place = place if row.section.startswith("people") else "§5.3"
        return names.number(place, "all" if column == "all editors" else column, _AXES[row.label], **wanted)
    match table.number:
        case 4 | 6 if row.section != "models − people":
            wanted = {"judge": row.section} if table.number == 6 else {}
            return names.number(place, row.label, _AXES[column], **wanted)
        case 19 if column in _RATES:
            return names.number(place, row.label, _RATES[column])
        case 20:
            gap = {"statistic": "max - min"} if row.summary else {"group": row.label}
            return names.number(place, column, "race_changed", **gap)
        case 5 | 21 | 26 if not row.summary:
            wanted = {"group": row.label} | _mitigated(column)
            quantity = wanted.pop("quantity", "")
            return names.number(place, row.section, quantity, **wanted)
        case 7 if row.section == "two people":
            return names.number(place, row.label, "adherence", statistic=column.lower())
        case _:
            return None


def _mitigated(column: str) -> dict[str, str]:
    if arm := _ARMS.get(column):
        return {"quantity": "race_change", "arm": arm, "statistic": "mean"}
    return {"quantity": _CHANGES.get(column, ""), "statistic": "change"}
