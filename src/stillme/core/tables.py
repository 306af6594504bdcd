"""Text tables: columns that align. They wrap to a terminal's width, and are complete where they are piped."""

from __future__ import annotations

import io
import shutil
import sys
from collections.abc import Collection, Iterable, Sequence

_UNBOUNDED = 100_000


def aligned(rows: Iterable[Sequence[str]], heads: Sequence[str] = (), *, right: Collection[int] = ()) -> list[str]:
    """Lines of a table, indented by two spaces; the columns `right` hold numbers."""
    from rich.console import Console  # a tenth of a second
    from rich.table import Table
    from rich.text import Text

    cells = [list(row) for row in rows]
    width = shutil.get_terminal_size().columns - 2 if sys.stdout.isatty() else _UNBOUNDED
    table = Table(box=None, show_header=bool(heads), show_edge=False, pad_edge=False, padding=(0, 2, 0, 0))
    for place in range(len(heads) or max(map(len, cells), default=0)):
        head = Text(heads[place]) if heads else ""
        table.add_column(head, justify="right" if place in right else "left", overflow="fold")
    for row in cells:
        table.add_row(*map(Text, row))
    page = io.StringIO()
    Console(file=page, width=width, no_color=True, highlight=False, emoji=False).print(table)
    return [f"  {line}".rstrip() for line in page.getvalue().splitlines()]


def counted(count: int, noun: str, plural: str = "") -> str:
    """`1 portrait`, `1,200 portraits`."""
    return f"{count:,} {noun if count == 1 else plural or f'{noun}s'}"
