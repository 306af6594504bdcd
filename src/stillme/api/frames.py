"""Rows for a notebook: they show themselves, and become a data frame of pandas or polars, whichever is there."""

from __future__ import annotations

import html
import importlib
import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal

from stillme.core.errors import MissingExtra
from stillme.core.files import write_csv
from stillme.estimates import numbers

Library = Literal["pandas", "polars"]
_SHOWN = 20


class Rows:
    """A table that is read when it is needed. Iterate over its rows, or take it as a data frame."""

    def __init__(self, title: str, read: Callable[[], Iterable[Mapping[str, object]]]) -> None:
        self.title = title
        self._read = read

    def __iter__(self) -> Iterator[Mapping[str, object]]:
        return iter(self._read())

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def __repr__(self) -> str:
        return f"<{self.title}: {len(self):,} rows>"

    @property
    def columns(self) -> list[str]:
        """Every column that any row has, in the order of appearance."""
        return list(dict.fromkeys(name for row in self for name in row))

    def to_frame(self, library: Library | None = None) -> Any:
        """A data frame of pandas or polars: of the library named, else of the one that is installed, pandas first."""
        columns = self.columns
        rows = [{name: row.get(name) for name in columns} for row in self]
        offered: tuple[Library, ...] = ("pandas", "polars")
        chosen = library or next((name for name in offered if find_spec(name)), None)
        if chosen is None or not find_spec(chosen):
            raise MissingExtra(f"A frame needs {chosen or 'pandas or polars'}. Run `pip install {chosen or 'pandas'}`.")
        module: Any = importlib.import_module(chosen)
        if chosen == "pandas":
            return module.DataFrame(rows, columns=columns)
        return module.DataFrame(rows, schema=columns, infer_schema_length=None)

    def to_csv(self, path: str | Path) -> Path:
        """Write the rows as CSV."""
        return write_csv(
            Path(path), self.columns, ({n: "" if v is None else v for n, v in row.items()} for row in self)
        )

    def _repr_html_(self) -> str:
        return self.as_html()

    def as_html(self) -> str:
        """The first rows as a table, which notebooks show."""
        rows = list(itertools.islice(self, _SHOWN + 1))
        columns = list(dict.fromkeys(name for row in rows for name in row))
        head = "".join(f"<th>{html.escape(name)}</th>" for name in columns)
        body = "".join(
            "<tr>" + "".join(f"<td>{html.escape(_shown(row.get(name)))}</td>" for name in columns) + "</tr>"
            for row in rows[:_SHOWN]
        )
        more = f"<p>… and {len(self) - _SHOWN:,} more rows</p>" if len(rows) > _SHOWN else ""
        return (
            f"<p><b>{html.escape(self.title)}</b></p><table><thead><tr>{head}</tr></thead>"
            f"<tbody>{body}</tbody></table>{more}"
        )


def records_of(frame: Any) -> list[dict[str, Any]]:
    """The rows of whatever a user has: a frame of pandas or polars, a list of mappings, or the path of a CSV file."""
    if isinstance(frame, str | Path):
        import csv

        with Path(frame).open(encoding="utf-8-sig", newline="") as stream:
            return [dict(row) for row in csv.DictReader(stream)]
    if hasattr(frame, "to_dicts"):
        return list(frame.to_dicts())
    if hasattr(frame, "to_dict"):
        return list(frame.to_dict("records"))
    return [dict(row) for row in frame]


def _shown(value: object) -> str:
    if value is None:
        return ""
    return numbers.machine(value) if isinstance(value, float) else str(value)
