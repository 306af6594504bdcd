"""Read the tables of the photographed runs: what is frozen, and what may be renewed with a reason."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from click.testing import CliRunner

import stillme
from stillme.cli import cli
from stillme.estimates import EditState, RatingState
from stillme.findings.tables.analyses import ANALYSES
from stillme.findings.tables.estimates import row_of
from stillme.findings.tables.paper import PaperTable
from stillme.findings.tables.paper.table import Absent, Cell, Count, Number, Share, Words
from stillme.runs import injected

Document = dict[str, Any]
Row = Mapping[str, object]

RUNS: Mapping[str, Sequence[str]] = {
    "diagnosis": ("contrasts", "cuts", "intersections", "agreement"),
    "mitigation": ("mitigation", "above_floor"),
    "roles": ("roles",),
    "role pairs, counterbalanced": ("roles",),
    "imported rows": ("contrasts", "pooled", "agreement", "against_people", "corrected"),
    "refusals, failures, abstentions": ("contrasts",),
    "before": ("prompts", "subcategories"),
    "study": ("agreement", "against_people", "corrected"),
}
"""By run: the analyses of which a photograph is taken. Estimates and the paper's tables are taken of every run."""

GATES = {
    "passed": "soft_erasure <= 0.9",
    "failed": "soft_erasure <= 0.05",
    "inconclusive": "soft_erasure <= 30%",
    "without data": "success#c >= 0",
}
_PAPERS_TABLES_OF = ("diagnosis", "mitigation", "roles", "study")
_LEAVING = ("race_changed_strict", "gender_changed_strict", "hair_changed")
"""Quantities that the second edition does not have."""
_SHOWN = ("soft_erasure", "skin_tone", "race_change", "race_changed", "role_target", "refused", "failed")
_SHOWN += ("race_change>=2", "skin_delta_l", "unchanged")
"""Quantities and axes whose rows are kept; the others are counted."""
_DROPPED = ("low", "high", "method", "confidence", "mean", "note", "null", "permutation", "levels", "t")
"""Ends of column names that are no part of the photograph: intervals, what chance alone does, calibration's notes."""
_SAID = ("excluded", "lowest", "highest")
"""Columns of text that are no names: they follow from the numbers."""
_WORDS = ("p", "q", "holm", "omnibus", "verdict", "adjusted", "estimable", "equivalent", "worse", "significant")
"""Ends of the names of columns that may be renewed."""
_VOLATILE = frozenset(
    {
        "audit",
        "bytes",
        "dollars",
        "file",
        "files",
        "folder",
        "low",
        "high",
        "made",
        "method",
        "report",
        "root",
        "seconds",
    }
    | {"made", "sealed_by", "signature", "verified_by", "changes", "gaps", "cost", "per_second", "not_verified"}
)
"""Keys of `--json` that differ from machine to machine, or are photographed as a table."""
_DIGITS = 6


def photograph(runs: Mapping[str, Path]) -> tuple[Document, Document]:
    """What is frozen, and what may be renewed: by run, table and row."""
    numbers: Document = {}
    words: Document = {}
    for name, folder in runs.items():
        numbers[name], words[name] = _of_demo(folder) if name == "demo" else _of_run(name, folder)
    numbers["comparison"], words["comparison"] = _comparison(runs["before"], runs["after"])
    numbers["gate"], words["gate"] = _gates(runs["after"])
    words["bundle"] = _bundle(runs["before"])
    return numbers, words


# -- one run ---------------------------------------------------------------------------------------------------------


def _of_run(name: str, folder: Path) -> tuple[Document, Document]:
    numbers: Document = {}
    words: Document = {"status --json": _command("status", folder)}
    with stillme.open(folder) as run:
        numbers["states"] = _states(run)
        numbers["estimates"], words["estimates"] = _split(run.estimates(all=True))
        for analysis in RUNS.get(name, ()):
            rows = [row_of(result) for result in ANALYSES[analysis](run)]
            assert rows, f"{name} has no {analysis}"
            numbers[analysis], words[analysis] = _split(rows)
        for table in run.tables() if name in _PAPERS_TABLES_OF else ():
            key = f"paper's table {table.number}"
            numbers[key], words[key] = _paper_table(table)
    return numbers, {table: rows for table, rows in words.items() if rows}


def _of_demo(folder: Path) -> tuple[Document, Document]:
    """Instruments read pictures: what they say may be renewed. What was injected is frozen."""
    with stillme.open(folder) as run:
        gaps = list(injected.gaps(run))
        numbers = {
            "states": _states(run, judges=False),
            "injected": {
                " · ".join((gap.editor, gap.quantity, f"{gap.factor} {gap.group}")): _rounded(gap.planted)
                for gap in gaps
            },
        }
        read, words = _split(run.estimates(all=True))
        return numbers, {"instruments": read, "estimates": words, "status --json": _command("status", folder)}


def _states(run: stillme.Run, *, judges: bool = True) -> Document:
    """How many edits, and ratings of each axis, came out how."""
    edits, scores = run.results.edits, run.results.scores
    counts: Document = {
        f"{editor} · {arm}": _counted(EditState, edits.state[(edits.editor == e) & (edits.arm == a)])
        for e, editor in enumerate(edits.editors)
        for a, arm in enumerate(edits.arms)
    }
    for score in scores if judges else ():
        counts[f"{score.judge} · {score.axis}"] = _counted(RatingState, score.state)
    return counts


def _counted(kind: type[EditState] | type[RatingState], state: np.ndarray[Any, Any]) -> Document:
    return {each.name.lower(): int((state == each).sum()) for each in kind if (state == each).any()}


# -- rows ------------------------------------------------------------------------------------------------------------


def _split(rows: Iterable[Row]) -> tuple[Document, Document]:
    """A table by the names in its rows: the numbers, and the words. Each has its columns once."""
    every = [row for row in rows if row.get("quantity") not in _LEAVING and row.get("measure") != "cliffs_delta"]
    kept = _headline(every)
    columns = list(dict.fromkeys(name for row in kept for name in row if not _is_dropped(name)))
    told = [name for name in columns if _ends(name, _WORDS) or any(isinstance(row.get(name), bool) for row in kept)]
    texts = {name for name in columns if any(isinstance(row.get(name), str) for row in kept)} - {*_SAID}
    counted = [name for name in columns if name not in told and name not in texts]
    named = [name for name in columns if name not in told and name in texts]
    keys = [" · ".join(str(row[name]) for name in named if row.get(name)) for row in kept]
    assert len(set(keys)) == len(keys), "two rows have the same name"
    numbers = {key: [_rounded(row.get(name)) for name in counted] for key, row in zip(keys, kept, strict=True)}
    words = {
        key: said
        for key, row in zip(keys, kept, strict=True)
        if (said := {name: _rounded(row[name], 3) for name in told if row.get(name) not in ("", None)})
    }
    return {"row count": len(every), "columns": counted, "rows": numbers}, words


def _headline(rows: Sequence[Row]) -> list[Row]:
    """Rows about a few quantities, of the ensemble where there is one and else of the first judge."""
    judges = [str(row["judge"]) for row in rows if row.get("judge")]
    headline = next((judge for judge in judges if judge.startswith("ensemble")), judges[0] if judges else "")
    return [
        row
        for row in rows
        if row.get("judge", headline) in ("", headline)
        and (row.get("quantity") or row.get("axis") or "role_target") in _SHOWN
    ]


def _is_dropped(name: str) -> bool:
    return _ends(name, _DROPPED) or name.endswith("smallest_p")


def _ends(name: str, ends: Sequence[str]) -> bool:
    return name.rpartition("_")[2] in ends


def _rounded(value: object, digits: int = _DIGITS) -> Any:
    if isinstance(value, float | np.floating):
        return None if np.isnan(value) else float(f"{value:.{digits}g}") + 0.0
    return int(value) if isinstance(value, np.integer) else value


def _paper_table(table: PaperTable) -> tuple[Document, Document]:
    numbers: Document = {"columns": list(table.head)}
    words: Document = {"absent": table.absent} if table.absent else {}
    for row in table.rows:
        key = f"{row.section} · {row.label}" if row.section else row.label
        numbers[key] = [_paper_cell(cell) for cell in row.cells]
        said = [_paper_words(cell) for cell in row.cells]
        if any(said):
            words[key] = said
    return numbers, words


def _paper_cell(cell: Cell) -> Any:
    match cell:
        case Number():
            return [_rounded(cell.outcome.value), cell.portraits, cell.edits]
        case Count() | Share():
            return _rounded(cell.value)
        case Words() | Absent():
            return None


def _paper_words(cell: Cell) -> str:
    return cell.text if isinstance(cell, Words) else cell.reason if isinstance(cell, Absent) else ""


# -- release decisions -----------------------------------------------------------------------------------------------


def _comparison(before: Path, after: Path) -> tuple[Document, Document]:
    answer = _command("compare", before, after)
    shown = _asked("compare", before, after)
    numbers: Document = {name: answer["json"].pop(name) for name in ("pairs", "portraits", "left_out", "tested")}
    for name in ("changes", "gaps"):
        rows = [_flat(row) for row in shown[name]]
        numbers[name], answer[name] = _split(rows)
    return numbers, answer


def _flat(row: Mapping[str, Any]) -> dict[str, object]:
    """Lists as text, and what is nested left out: the largest growth is an interval."""
    texts = {name: " - ".join(value) for name, value in row.items() if isinstance(value, list)}
    return {name: value for name, value in (row | texts).items() if not isinstance(value, dict)}


def _gates(run: Path) -> tuple[Document, Document]:
    numbers: Document = {}
    words: Document = {}
    for name, rule in GATES.items():
        arguments = ("gate", run, "--rule", rule, "--allow-uncalibrated")
        words[name] = _command(*arguments)
        numbers[name] = [
            {part: _rounded(check[part]) for part in ("value", "portraits", "edits", "excluded")}
            for decided in _asked(*arguments)["rules"]
            for check in decided["checks"]
        ]
    words["not calibrated"] = _command("gate", run, "--rule", GATES["failed"])
    return numbers, words


def _bundle(run: Path) -> Document:
    file = run.parent / "evidence.zip"
    sealed = _command("export", run, "--bundle", file)
    verified = _command("verify", file)
    with stillme.open(file) as opened, stillme.open(run) as folder:
        same = _split(opened.estimates(all=True)) == _split(folder.estimates(all=True))
    return {"export --bundle": sealed["exit code"], "verify": verified, "gives the same estimates": same}


# -- commands --------------------------------------------------------------------------------------------------------


def _command(*words: object) -> Document:
    """A command's exit code and its `--json`, without what differs from machine to machine."""
    done = CliRunner().invoke(cli, [*map(str, words), "--json"])
    return {"exit code": done.exit_code, "json": dict(_steady(json.loads(done.stdout)))}


def _asked(*words: object) -> Document:
    return json.loads(CliRunner().invoke(cli, [*map(str, words), "--json"]).stdout)


def _steady(value: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    for name, item in value.items():
        if name in _VOLATILE:
            continue
        if isinstance(item, Mapping):
            yield name, dict(_steady(item))
        elif isinstance(item, list):
            yield name, [dict(_steady(each)) if isinstance(each, Mapping) else _rounded(each, 3) for each in item]
        else:
            yield name, _rounded(item, 3)
