"""What differs between a bundle and what it should be."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """One thing that is not as it should be, and where."""

    file: str
    what: str
    row: int | None = None
    """Counted from 1, without a header."""
    column: str = ""
    expected: str = ""
    found: str = ""

    def __str__(self) -> str:
        place = self.file + (f", row {self.row}" if self.row else "") + (f", {self.column}" if self.column else "")
        values = f": expected {self.expected}, found {self.found}" if self.expected or self.found else ""
        return f"{place} ({self.what}){values}"
