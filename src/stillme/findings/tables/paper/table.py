"""A table of the paper: rows of cells, each a number with its interval, a count, words, or the reason for none.

It is written as CSV, Markdown and LaTeX: the same table gives the same bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from pathlib import Path
from string import ascii_lowercase
from typing import Literal, assert_never

from stillme.core.files import csv_text, write_whole
from stillme.core.types import Interval, NotEstimable
from stillme.estimates import numbers

Form = Literal["score", "change", "rate", "points"]
"""A mean on a scale, a difference of means, a share in percent, a difference of shares in points."""
MARK = "†"
"""Stands behind a number whose judge failed calibration or never had one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Number:
    """An estimate."""

    outcome: Interval
    form: Form
    portraits: int
    edits: int
    note: str = ""
    """What calibration says of the judge; empty where it passed."""
    paper: str = ""
    """The number that the paper prints in this cell; empty where it has none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Count:
    """How many there are. Counted, not estimated, so it has no interval."""

    value: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Share:
    """A part of what was counted."""

    value: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Words:
    """What the numbers beside it say."""

    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Absent:
    """There is no honest number here."""

    reason: str


Cell = Number | Count | Share | Words | Absent


@dataclass(frozen=True, slots=True, kw_only=True)
class TableRow:
    """One line of a table."""

    label: str
    cells: tuple[Cell, ...]
    section: str = ""
    """Rows of one section stand together under its name."""
    summary: bool = False
    """Whether the row sums up those above it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PaperTable:
    """One table, ready to be written in any format."""

    number: int
    """In the paper."""
    caption: str
    head: tuple[str, ...]
    """The first is above the rows' labels."""
    rows: tuple[TableRow, ...]
    notes: tuple[str, ...] = ()
    absent: str = ""
    """Why the whole table cannot be made; empty where it can."""
    appendix: str = ""
    """Where the paper has these numbers in a sentence instead of a table, such as `G.6`."""

    @property
    def place(self) -> str:
        """Where the paper has its numbers."""
        return f"Appendix {self.appendix}" if self.appendix else f"Table {self.number}"

    @property
    def heading(self) -> str:
        """What stands before the caption."""
        return f"{self.place} of the paper"

    @property
    def stem(self) -> str:
        """The name of its files."""
        return f"appendix-{self.appendix.lower()}" if self.appendix else f"table-{self.number:02}"

    def _repr_html_(self) -> str:
        from markdown_it import MarkdownIt

        return MarkdownIt("commonmark", {"html": False}).enable("table").render(as_markdown(self))


def number(outcome: Interval | NotEstimable, form: Form, portraits: int, edits: int, note: str = "") -> Cell:
    """A cell for an estimate, or the reason why there is none."""
    if isinstance(outcome, NotEstimable):
        return Absent(reason=outcome.reason)
    return Number(outcome=outcome, form=form, portraits=portraits, edits=edits, note=note)


def complement(cell: Cell) -> Cell:
    """One minus a rate."""
    if not isinstance(cell, Number):
        return cell
    followed = cell.outcome
    outcome = replace(followed, value=1 - followed.value, low=1 - followed.high, high=1 - followed.low)
    return replace(cell, outcome=outcome)


def text_of(value: float, form: Form) -> str:
    """A number with the decimals of the paper."""
    match form:
        case "score":
            return numbers.decimal(value, 2)
        case "change":
            return numbers.decimal(value, 2, plus=bool(round(value, 2)))
        case "rate":
            return numbers.percent(value)
        case "points":
            return numbers.points(value)
        case never:
            assert_never(never)


_COLUMNS: Sequence[str] = (
    "table",
    "section",
    "row",
    "column",
    "value",
    "low",
    "high",
    "confidence",
    "unit",
    "portraits",
    "edits",
    "method",
    "words",
    "not_estimable",
    "judge_note",
    "paper",
)
_UNITS = {"score": "1-5", "change": "1-5 points", "rate": "share", "points": "difference of shares"}
_LEGEND = "In brackets: {confidence:.0%} interval, the portrait as the unit. In parentheses: portraits; edits."
_LATEX = {
    "\\": r"\textbackslash{}",
    "&": r"\&",
    "%": r"\%",
    "$": r"\$",
    "#": r"\#",
    "_": r"\_",
    "{": r"\{",
    "}": r"\}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "Δ": r"$\Delta$",
    "−": r"$-$",
    "×": r"$\times$",
    "↓": r"$\downarrow$",
    "≥": r"$\geq$",
    "≤": r"$\leq$",
    "–": "--",
    "’": "'",
    "…": r"\ldots{}",
    "§": r"\S{}",
    MARK: r"$\dagger$",
}


def write(table: PaperTable, folder: Path) -> list[Path]:
    """Write a table in all three formats into `folder`/tables/paper."""
    place = folder / "tables" / "paper"
    place.mkdir(parents=True, exist_ok=True)
    return [write_whole(place / f"{table.stem}.{ending}", FORMATS[ending](table)) for ending in FORMATS]


def as_csv(table: PaperTable) -> str:
    """One line per cell, with everything that is known of it."""
    return csv_text(_COLUMNS, _entries(table))


def as_markdown(table: PaperTable) -> str:
    """A table whose source is aligned too."""
    title = f"**{table.heading}.** {table.caption}"
    if table.absent:
        return f"{title}\n\nNot estimable: {table.absent}.\n"
    notes = _Notes()
    lines: list[tuple[str, ...]] = []
    for section, rows in _sections(table):
        if section:
            lines.append((f"*{_plain(section)}*", *("" for _ in table.head[1:])))
        for row in rows:
            cells = [_plain(row.label), *(_cell(cell, notes) for cell in row.cells)]
            lines.append(tuple(f"**{cell}**" if row.summary and cell else cell for cell in cells))
    head = tuple(_plain(name) for name in table.head)
    widths = [max(3, *(len(line[place]) for line in (head, *lines))) for place in range(len(head))]
    shown = [_markdown_row(head, widths), _markdown_row(["-" * width for width in widths], widths)]
    shown += [_markdown_row(line, widths) for line in lines]
    below = [f"- {note}" for note in (*_legend(table), *notes.lines(), *map(_plain, table.notes))]
    return "\n".join([title, "", *shown, "", *below]).rstrip("\n") + "\n"


def as_latex(table: PaperTable) -> str:
    """A table for a paper; needs the package booktabs."""
    label = f"\\label{{tab:stillme-{table.number}}}"
    opening = ["% needs \\usepackage{booktabs}", "\\begin{table*}[t]", "\\centering", "\\small"]
    caption = f"\\caption{{{_latex(table.caption)} ({table.heading}.)}}"
    if table.absent:
        body = [f"Not estimable: {_latex(table.absent)}."]
        return "\n".join([*opening, *body, caption, label, "\\end{table*}"]) + "\n"
    notes = _Notes()
    lines: list[str] = []
    for section, rows in _sections(table):
        if section:
            lines += [f"\\multicolumn{{{len(table.head)}}}{{l}}{{\\textit{{{_latex(section)}}}}} \\\\"]
        for row in rows:
            # After a line break LaTeX takes a bracket or a star for its own.
            shield = "{}" if row.label[:1] in ("[", "*") else ""
            cells = [shield + _latex(row.label), *(_latex(_cell(cell, notes)) for cell in row.cells)]
            shown = [f"\\textbf{{{cell}}}" if row.summary and cell else cell for cell in cells]
            lines.append(" & ".join(shown) + r" \\")
    below = [_latex(note) for note in (*_legend(table), *notes.lines(), *table.notes)]
    return (
        "\n".join(
            [
                *opening,
                f"\\begin{{tabular}}{{l{'c' * (len(table.head) - 1)}}}",
                "\\toprule",
                " & ".join(_latex(name) for name in table.head) + r" \\",
                "\\midrule",
                *lines,
                "\\bottomrule",
                "\\end{tabular}",
                *([f"\\par\\smallskip\\footnotesize {' '.join(below)}"] if below else []),
                caption,
                label,
                "\\end{table*}",
            ]
        )
        + "\n"
    )


FORMATS: Mapping[str, Callable[[PaperTable], str]] = {"csv": as_csv, "md": as_markdown, "tex": as_latex}


class _Notes:
    """Reasons for empty cells, each once, by letter."""

    def __init__(self) -> None:
        self._letters: dict[str, str] = {}

    def letter(self, reason: str) -> str:
        count = len(self._letters)
        letter = ascii_lowercase[count % 26] * (count // 26 + 1)
        return self._letters.setdefault(reason, letter)

    def lines(self) -> Iterator[str]:
        yield from (f"({letter}) not estimable: {_plain(reason)}." for reason, letter in self._letters.items())


def _cell(cell: Cell, notes: _Notes) -> str:
    match cell:
        case Number(outcome=outcome, form=form):
            value, low, high = (text_of(number, form) for number in (outcome.value, outcome.low, outcome.high))
            mark = MARK if cell.note else ""
            paper = f"; paper {cell.paper}" if cell.paper else ""
            return f"{value}{mark} [{low}, {high}] ({cell.portraits:,}; {cell.edits:,}){paper}"
        case Count(value=count):
            return f"{count:,}"
        case Share(value=share):
            return f"{100 * share:.1f}"
        case Words(text=text):
            return _plain(text)
        case Absent(reason=reason):
            return f"– ({notes.letter(reason)})"
        case never:
            assert_never(never)


def _legend(table: PaperTable) -> Iterator[str]:
    numbers = [cell for row in table.rows for cell in row.cells if isinstance(cell, Number)]
    if numbers:
        yield _LEGEND.format(confidence=numbers[0].outcome.confidence)


def _entries(table: PaperTable) -> Iterator[Mapping[str, str]]:
    if table.absent:
        yield {"table": str(table.number), "not_estimable": table.absent}
    for row in table.rows:
        for column, cell in zip(table.head[1:], row.cells, strict=True):
            place = {"table": str(table.number), "section": row.section, "row": row.label, "column": column}
            yield {**place, **_fields(cell)}


def _fields(cell: Cell) -> Mapping[str, str]:
    match cell:
        case Number(outcome=outcome, form=form):
            return {
                "value": f"{outcome.value:.9g}",
                "low": f"{outcome.low:.9g}",
                "high": f"{outcome.high:.9g}",
                "confidence": f"{outcome.confidence:g}",
                "unit": _UNITS[form],
                "portraits": str(cell.portraits),
                "edits": str(cell.edits),
                "method": outcome.method,
                "judge_note": cell.note,
                "paper": cell.paper,
            }
        case Count(value=count):
            return {"value": str(count), "unit": "count"}
        case Share(value=share):
            return {"value": f"{share:.9g}", "unit": "share"}
        case Words(text=text):
            return {"words": text}
        case Absent(reason=reason):
            return {"not_estimable": reason}
        case never:
            assert_never(never)


def _sections(table: PaperTable) -> Iterator[tuple[str, list[TableRow]]]:
    yield from ((name, list(rows)) for name, rows in groupby(table.rows, key=lambda row: row.section))


def _markdown_row(cells: Sequence[str], widths: Sequence[int]) -> str:
    return "| " + " | ".join(cell.ljust(width) for cell, width in zip(cells, widths, strict=True)) + " |"


def _plain(text: str) -> str:
    """On one line, and with no bar that would end a cell."""
    return " ".join(text.split()).replace("|", "\\|")


def _latex(text: str) -> str:
    return "".join(_LATEX.get(letter, letter) for letter in " ".join(text.split()))
