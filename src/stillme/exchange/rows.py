"""A run from rows of scores alone: no audit.toml, no editor and no picture is needed.

Every reader works on such a run: estimates, tables, report (without pictures), compare and gate.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from stillme.errors import Problem, StillmeError, did_you_mean
from stillme.exchange.columns import ColumnMapping, InvalidJudgements, Layout, Unreadable
from stillme.exchange.row_run import write_run
from stillme.exchange.row_table import ABSTAINED, MORE_COLUMNS, RATED, STATES, RowsAsked, RowTable
from stillme.exchange.table_files import columns_of, read


def _no_watch(_rows: int) -> None:
    pass


@dataclass(frozen=True, slots=True, kw_only=True)
class RowsSummary:
    """What became of the rows."""

    file: Path
    into: Path
    edits: int
    refused: int
    failed: int
    scores: int
    abstained: int
    portraits: int
    unlabelled: Mapping[str, int]
    """By group column: how many portraits say nothing there. They are in no group."""
    editors: tuple[str, ...]
    judges: tuple[str, ...]
    has_states: bool
    """Whether the rows say which edits were refused or failed."""
    left_out: int
    unread: tuple[str, ...]
    already: bool
    """Whether the run was there already, made of the same rows."""

    def as_json(self) -> dict[str, Any]:
        """For `--json`."""
        names = ("edits", "refused", "failed", "scores", "abstained", "portraits", "has_states", "left_out", "already")
        return {name: getattr(self, name) for name in names} | {
            "file": str(self.file),
            "into": str(self.into),
            "editors": list(self.editors),
            "judges": list(self.judges),
            "unread_columns": list(self.unread),
            "unlabelled": dict(self.unlabelled),
        }

    def as_text(self) -> str:
        """For people."""
        if self.already:
            return f"{self.into} holds exactly these rows already; nothing was changed."
        lost = f" ({self.refused:,} refused, {self.failed:,} failed)" if self.has_states else ""
        lines = [
            f"{self.edits:,} edits of {self.portraits:,} portraits by {', '.join(self.editors)}{lost}",
            f"{self.scores:,} scores by {', '.join(self.judges) or 'nobody'} ({self.abstained:,} abstained)",
        ]
        lines += [
            f"{count:,} of {self.portraits:,} portraits have no {group}; they count for everyone and in no group of it."
            for group, count in self.unlabelled.items()
        ]
        if not self.has_states:
            lines.append("There is no column `state`, so refusals and failures are not known and not estimated.")
        if self.left_out:
            lines.append(f"{self.left_out:,} rows were left out by --where.")
        if self.unread:
            lines.append(f"Columns that were not read: {', '.join(self.unread)}.")
        return "\n".join(lines)


def import_rows(
    file: Path,
    into: Path,
    asked: RowsAsked,
    mapping: ColumnMapping,
    *,
    watch: Callable[[int], None] = _no_watch,
) -> RowsSummary:
    """Make the run `into` of the rows in `file`: all of them, or none."""
    layout = Layout(columns_of(file), mapping, str(file), more=(*MORE_COLUMNS, *asked.groups))
    for group in asked.groups:
        if group not in layout.columns and group not in mapping.names:
            near = did_you_mean(group, layout.columns)
            raise StillmeError(f"{file} has no column {group!r}.{near} It has {', '.join(layout.columns)}.")
    table = RowTable(layout, asked)
    problems: list[Problem] = []
    rows = left_out = 0
    for row in read(file):
        if not layout.selects(row):
            left_out += 1
            continue
        rows += 1
        try:
            table.add(row)
        except Unreadable as error:
            problems.append(Problem(place=row.place, message=str(error)))
        if rows % 100_000 == 0:
            watch(rows)
    if not rows:
        raise StillmeError(f"{file} has no rows" + (" that match --where." if left_out else "."))
    if problems:
        raise InvalidJudgements(str(file), problems)
    _require_names(table, asked)
    written = write_run(table, file, into, asked, mapping)
    states, outcomes = np.asarray(table.states), np.asarray(table.outcome)
    return RowsSummary(
        file=file,
        into=into,
        edits=len(states),
        refused=int((states == STATES.index("refused")).sum()),
        failed=int((states == STATES.index("failed")).sum()),
        scores=int((outcomes == RATED).sum()),
        abstained=int((outcomes == ABSTAINED).sum()),
        portraits=len(table.portraits),
        unlabelled=table.unlabelled,
        editors=tuple(table.editors),
        judges=tuple(table.judges),
        has_states=table.has_states,
        left_out=left_out,
        unread=layout.unread,
        already=not written,
    )


def _require_names(table: RowTable, asked: RowsAsked) -> None:
    """What the user names must be in the rows: a run whose reference does not exist could never be estimated."""
    for name in asked.people:
        if name not in table.judges:
            near = did_you_mean(name, table.judges)
            raise StillmeError(f"No row is by a judge {name!r}.{near} The rows have {', '.join(table.judges)}.")
    for factor, level in asked.reference.items():
        if factor not in asked.groups:
            near = did_you_mean(factor, asked.groups)
            raise StillmeError(f"--reference names {factor!r}, which is no --group.{near}")
        levels = sorted({portrait.attributes.get(factor, "") for portrait in table.portraits.values()} - {""})
        if level not in levels:
            near = did_you_mean(level, levels)
            raise StillmeError(f"No portrait has {factor} {level!r}.{near} The rows have {', '.join(levels)}.")
