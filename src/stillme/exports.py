"""A run's rows as tables that other programs read, with a codebook."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

from stillme import audit as audits
from stillme.errors import StillmeError
from stillme.estimates.tables import harmless
from stillme.store import Store

_EDITS = """
    SELECT e.key AS edit, p.id AS portrait, p.sha256 AS portrait_sha256, p.attributes, p.label_origin, p.block,
           t.id AS prompt, t.category, t.subcategory, e.arm, i.text AS instruction,
           s.use AS editor, s.version AS editor_version, s.parameters AS editor_parameters, e.editor AS editor_key,
           e.seed, e.outcome, e.final, e.image, e.message, e.effective, e.truth, e.attempts, e.seconds, e.cost, e.at
    FROM edit e
    JOIN portrait p ON p.key = json_extract(e.portraits, '$[0]')
    JOIN prompt t ON t.key = e.prompt
    JOIN instruction i ON i.key = e.instruction
    JOIN spec s ON s.key = e.editor
    ORDER BY e.id
"""
_JUDGEMENTS = """
    SELECT a.edit, s.use AS judge, s.version AS judge_version, s.parameters AS judge_parameters, a.judge AS judge_key,
           a.epoch, j.axis, j.outcome, j.score, j.reason, a.final, a.raw, a.effective,
           a.attempts, a.seconds, a.cost, a.at
    FROM assessment a
    JOIN judgement j ON j.assessment = a.id
    JOIN spec s ON s.key = a.judge
    ORDER BY a.id, j.axis
"""
_CODEBOOK = """\
# Codebook

Every row ever written to this run, of every configuration; `final` = 0 marks failures that were or will be retried.

## edits
| column | meaning |
|---|---|
| edit | key of the request: the hash of everything that can change its outcome |
| portrait, portrait_sha256, block | the source picture; portraits of one block differ only by design |
| attributes, label_origin | labels as JSON, and who or what gave them; labels, not truth |
| prompt, category, subcategory, arm, instruction | what was asked, and in which words |
| editor, editor_version, editor_parameters, editor_key, seed | who edited, with every setting |
| outcome | edited, refused (the editor declined) or failed (something broke) |
| image | SHA-256 of the picture, in images/ |
| message | the refusal's or failure's own words |
| effective | what really applied, as JSON |
| truth | what a known-answer editor planted, as JSON |
| attempts, seconds, cost, at | tries, work time, US dollars, when (UTC) |

## judgements
| column | meaning |
|---|---|
| edit | the edit that was judged |
| judge, judge_version, judge_parameters, judge_key, epoch | who judged, with every setting; repeats count up from 0 |
| axis | the question or measured quantity |
| outcome | rated, abstained (looked and would not say) or failed |
| score | 1 to 5, or the value in the axis's own unit; empty unless rated |
| reason | evidence, reason of the abstention, or error |
| raw, effective | the judge's answer as it came; what really applied |
"""


def export_run(path: Path, out: Path | None, kind: str, to: Path | None) -> list[Path]:
    """Write `edits` and `judgements` as CSV or JSONL, and `codebook.md`; streams, so any size fits."""
    loaded = audits.load(path, out=out, ready=False)
    if not Store.exists(loaded.folder):
        raise StillmeError(f"{loaded.folder} has no run yet. `stillme run {path}` starts it.")
    folder = to or loaded.folder / "export"
    folder.mkdir(parents=True, exist_ok=True)
    written: list[Path] = []
    with Store.reading(loaded.folder) as store:
        for name, query in (("edits", _EDITS), ("judgements", _JUDGEMENTS)):
            file = folder / f"{name}.{kind}"
            with _whole(file) as stream:
                _WRITERS[kind](stream, _rows(store, query))
            written.append(file)
    codebook = folder / "codebook.md"
    codebook.write_text(_CODEBOOK, "utf-8")
    return [*written, codebook]


@contextmanager
def _whole(file: Path) -> Generator[IO[str]]:
    """A file that appears under its name only when it is complete."""
    partial = file.with_name(f".{file.name}.partial")
    with partial.open("w", encoding="utf-8", newline="") as stream:
        yield stream
    partial.replace(file)


def _rows(store: Store, query: str) -> Iterator[dict[str, Any]]:
    cursor = store.query(query)
    names = [column[0] for column in cursor.description]
    for values in cursor:
        yield dict(zip(names, values, strict=True))


def _write_csv(stream: IO[str], rows: Iterator[Mapping[str, Any]]) -> None:
    writer: csv.DictWriter[str] | None = None
    for row in rows:
        if writer is None:
            writer = csv.DictWriter(stream, fieldnames=list(row), lineterminator="\n")
            writer.writeheader()
        writer.writerow({name: harmless(value) if isinstance(value, str) else value for name, value in row.items()})


def _write_jsonl(stream: IO[str], rows: Iterator[Mapping[str, Any]]) -> None:
    for row in rows:
        unpacked = {name: json.loads(value) if name in _JSON and value else value for name, value in row.items()}
        stream.write(json.dumps(unpacked, ensure_ascii=False) + "\n")


_JSON = frozenset({"attributes", "editor_parameters", "judge_parameters", "effective", "truth"})
_WRITERS: Mapping[str, Callable[[IO[str], Iterator[Mapping[str, Any]]], None]] = {
    "csv": _write_csv,
    "jsonl": _write_jsonl,
}
