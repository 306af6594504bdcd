"""What differs between a bundle and what it should be."""

from __future__ import annotations

from dataclasses import dataclass


def one_line(text: str) -> str:
    """Text from a bundle as one line: line breaks and control characters would let it print a verdict of its own."""
    return "".join(each if each.isprintable() else each.encode("unicode_escape").decode() for each in text)


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
        return one_line(f"{place} ({self.what}){values}")
