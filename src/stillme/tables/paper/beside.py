"""A run's numbers beside the paper's, as a table and as rows."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from stillme import numbers
from stillme.estimates.standing import Standing
from stillme.files import csv_text, write_whole
from stillme.paper import Published
from stillme.results import Run
from stillme.results.beside import Beside, PaperComparison, TestBeside, beside_paper, published_text
from stillme.tables.paper.making import Chosen, check_names
from stillme.tables.paper.table import Cell, Form, PaperTable, Row, Words, number
from stillme.tables.paper.writing import as_latex, as_markdown
from stillme.types import Interval

_LAYOUTS = {"role_pair": "two people", "role_single": "one person"}
_NOTHING = "nothing in this run answers a number of the paper"


def compare_with_paper(run: Run, chosen: Chosen) -> PaperComparison:
    """The run's numbers beside the paper's, by the judge and the attribute that are chosen."""
    check_names(run, chosen)
    return beside_paper(run, judge=chosen.judge, factor=chosen.factor)


def beside_table(comparison: PaperComparison, standing: Standing) -> PaperTable:
    """Yours, the paper's, the difference, and where the paper's number lies."""
    compared = bool(comparison.numbers or comparison.tests)
    reasons = dict.fromkeys(reason for published, reason in comparison.left_out if not published.unanswered)
    return PaperTable(
        number=0,
        title="Beside the paper",
        caption="Your numbers and those that the paper prints, on edits by the paper's prompts.",
        head=("", "yours", "paper", "yours − paper", "reading"),
        rows=(*map(_row, comparison.numbers), *map(_test_row, comparison.tests)),
        notes=(*comparison.differences, *comparison.doubts(standing), *_remarks(comparison)),
        absent="" if compared else f"{_NOTHING}: {'; '.join(reasons)}",
    )


def write_beside(comparison: PaperComparison, standing: Standing, folder: Path) -> list[Path]:
    """Write it into `folder`/tables/paper: all numbers of the paper as CSV, those with one of yours as the rest."""
    place = folder / "tables" / "paper"
    place.mkdir(parents=True, exist_ok=True)
    table = beside_table(comparison, standing)
    texts = {"csv": beside_csv(comparison), "md": as_markdown(table), "tex": as_latex(table)}
    return [write_whole(place / f"{table.stem}.{ending}", text) for ending, text in texts.items()]


def beside_csv(comparison: PaperComparison) -> str:
    """One line for each number of the paper, with yours or the reason why there is none."""
    rows = list(beside_rows(comparison))
    columns = list(dict.fromkeys(name for row in rows for name in row))
    return csv_text(columns, ({name: _text(value) for name, value in row.items()} for row in rows))


def beside_rows(comparison: PaperComparison) -> Iterator[Mapping[str, object]]:
    """The same as plain values."""
    yield from (_entry(row) for row in comparison.numbers)
    yield from (_test_entry(row) for row in comparison.tests)
    yield from (_paper_entry(published) | {"left_out": reason} for published, reason in comparison.left_out)


def _row(row: Beside) -> Row:
    published = row.published
    form = _form(published)
    difference = ""
    if row.difference is not None:
        written = [_signed(end, form) for end in (row.difference.value, row.difference.low, row.difference.high)]
        difference = f"{written[0]} [{written[1]}, {written[2]}]"
    cells: tuple[Cell, ...] = (
        number(row.yours, form, row.portraits, row.edits),
        Words(text=published_text(published)),
        Words(text=difference),
        Words(text=row.reading if isinstance(row.yours, Interval) else ""),
    )
    return Row(label=_label(row), cells=cells, section=published.place)


def _test_row(row: TestBeside) -> Row:
    published = row.published
    statistic, _, what = published.statistic.rpartition(" ")
    yours = row.statistic if what == "H" else row.p
    written = "" if yours is None else f"H = {yours:.1f}" if what == "H" else numbers.p_value(yours)
    portrait = "" if row.portrait_p is None else f"with the portrait as the unit: {numbers.p_value(row.portrait_p)}"
    label = f"{statistic}, {numbers.title(published.quantity)}{f', {published.group}' if published.group else ''}"
    cells = (
        Words(text=f"{written} ({row.portraits:,}; {row.edits:,})" if written else row.reason),
        Words(text=f"{what} {'' if published.sign else '= '}{published_text(published)}"),
        Words(text=""),
        Words(text=portrait),
    )
    return Row(label=f"{label}, {row.judge}", cells=cells, section="Tests that count every edit as independent")


def _label(row: Beside) -> str:
    published = row.published
    what = published.statistic if published.quantity == "adherence" else numbers.title(published.quantity)
    kind = {"max - min": "max − min", "change": "feature − baseline", "bias": "models − people"}
    arm = published.arm if published.sample == "mitigation" and published.statistic == "mean" else ""
    parts = (
        row.editor,
        published.group,
        what,
        kind.get(published.statistic, ""),
        arm,
        _LAYOUTS.get(row.layout, ""),
        "people" if published.judge == "people" else "",
    )
    return ", ".join(part for part in parts if part)


def _form(published: Published) -> Form:
    if published.unit == "share":
        return "points" if published.statistic == "max - min" else "rate"
    return "change" if published.unit == "1-5 points" else "score"


def _signed(value: float, form: Form) -> str:
    return numbers.points(value, plus=True) if form in ("rate", "points") else numbers.decimal(value, 2, plus=True)


def _remarks(comparison: PaperComparison) -> Iterator[str]:
    """What the paper's own numbers leave open, each once."""
    remarks: dict[tuple[str, str], list[Published]] = {}
    for row in comparison.numbers:
        if note := row.published.note:
            remarks.setdefault((row.published.place, note), []).append(row.published)
    for (place, note), about in remarks.items():
        yield f"{', '.join((place, *_subject(about)))}: {note}."


def _subject(about: Sequence[Published]) -> Iterator[str]:
    """The editor and the quantity, where all of these numbers share one."""
    editors, quantities = {number.editor for number in about}, {number.quantity for number in about}
    if len(editors) == 1 and not editors & {"all", "each"}:
        yield from editors
    if len(quantities) == 1:
        yield from map(numbers.title, quantities)


def _paper_entry(published: Published) -> dict[str, object]:
    return {
        "place": published.place,
        "quantity": published.quantity,
        "statistic": published.statistic,
        "group": published.group,
        "arm": published.arm,
        "sample": published.sample,
        "paper_editor": published.editor,
        "paper_judge": published.judge,
        "paper_sign": published.sign,
        "paper": published.value,
        "paper_high": published.high,
        "paper_n": published.n,
        "unit": published.unit,
        "paper_note": published.note,
    }


def _entry(row: Beside) -> dict[str, object]:
    entry = _paper_entry(row.published) | {"editor": row.editor, "judge": row.judge, "layout": row.layout}
    if isinstance(row.yours, Interval):
        entry |= {
            "yours": row.yours.value,
            "low": row.yours.low,
            "high": row.yours.high,
            "confidence": row.yours.confidence,
            "method": row.yours.method,
        }
    if row.difference is not None:
        ends = row.difference
        entry |= {"difference": ends.value, "difference_low": ends.low, "difference_high": ends.high}
    return entry | {"portraits": row.portraits, "edits": row.edits, "reading": row.reading}


def _test_entry(row: TestBeside) -> dict[str, object]:
    return _paper_entry(row.published) | {
        "editor": row.editor,
        "judge": row.judge,
        "statistic_on_edits": row.statistic,
        "p_on_edits": row.p,
        "p_by_portrait": row.portrait_p,
        "portraits": row.portraits,
        "edits": row.edits,
        "reading": row.reason,
    }


def _text(value: object) -> str:
    if value is None:
        return ""
    return numbers.machine(value) if isinstance(value, float) else str(value)
