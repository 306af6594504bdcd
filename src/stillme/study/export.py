"""Write a study's data for other programs: long tables with pseudonyms, a codebook, and who was excluded why."""

from __future__ import annotations

import importlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, Literal

from stillme.core import rubric
from stillme.core.errors import MissingExtra
from stillme.core.files import whole, write_csv, write_json_lines, write_whole
from stillme.runs.gathering import chosen_how
from stillme.study.answers import CANNOT_TELL
from stillme.study.assignment import EXCLUDED
from stillme.study.items import anchors
from stillme.study.opening import Study
from stillme.study.progress import agreements
from stillme.study.quality import check_answers, pseudonym, rater_qualities, raters, ratings
from stillme.web.database import Transaction

Format = Literal["csv", "jsonl", "parquet"]
Row = Mapping[str, Any]


def export_study(study: Study, folder: Path, kind: Format) -> list[Path]:
    """Write the tables and `codebook.md`; each whole or not at all."""
    folder.mkdir(parents=True, exist_ok=True)
    with study.database.reading() as connection:
        tables = {
            "ratings": list(_ratings(study, connection)),
            "items": list(_items(study)),
            "raters": list(_raters(study, connection)),
            "checks": check_answers(study, connection),
            "comments": comments(study, connection),
            "agreement": agreements(study, connection),
            "exclusions": list(_exclusions(study, connection)),
        }
    files = [_WRITERS[kind](folder / f"{name}.{kind}", rows) for name, rows in tables.items()]
    return [*files, write_whole(folder / "codebook.md", codebook_of(study))]


def _ratings(study: Study, connection: Transaction) -> Iterator[Row]:
    for row in ratings(study, connection, raters(study, connection)):
        yield {
            "rater": row.rater.name,
            "item": row.item.id,
            "kind": row.item.kind,
            "repeats": row.item.repeats,
            "position": row.position + 1,
            "side": "AB"[row.side],
            "output": row.output + 1,
            "edit": row.item.outputs[row.output].edit,
            "axis": row.axis,
            "score": row.value if row.is_score else None,
            "cannot_tell": int(row.value == CANNOT_TELL),
            "first_answer": row.first,
            "neither": int(row.value != CANNOT_TELL and not row.is_score),
            # A time of day could be matched with a platform's records; the time since the start cannot.
            # Never below zero, as the server's clock may have been set back.
            "seconds": max(0.0, round(row.at - row.rater.begun, 1)),
            "shown": row.shown,
            "version": row.rater.version,
            "finished": int(row.rater.finished),
            "excluded": row.rater.excluded,
        }


_DEVICE = ("width", "height", "ratio", "full_brightness", "no_colour_filter")


def _raters(study: Study, connection: Transaction) -> Iterator[Row]:
    """Quality, and what the device check noted."""
    devices = {row["participant"]: row for row in connection.execute("SELECT * FROM device")}
    known = {rater.name: devices.get(rater.participant) for rater in raters(study, connection)}
    for quality in rater_qualities(study, connection):
        device = known[quality.rater]
        yield {**asdict(quality), **{name: device[name] if device else None for name in _DEVICE}}


def comments(study: Study, connection: Transaction) -> list[Row]:
    """What raters wrote, under their pseudonyms."""
    by_slot = {rater.slot: rater.name for rater in raters(study, connection)}
    rows = connection.execute(
        "SELECT slot, p.item, text FROM comment LEFT JOIN presentation p USING (slot, position) WHERE text <> '' "
        "ORDER BY slot, position"
    )
    return [
        {"rater": by_slot[row["slot"]], "item": row["item"] or "", "comment": row["text"]}
        for row in rows
        if row["slot"] in by_slot
    ]


def _items(study: Study) -> Iterator[Row]:
    for item in study.drawn.items:
        for number, output in enumerate(item.outputs, start=1):
            yield {
                "item": item.id,
                "kind": item.kind,
                "batch": item.batch,
                "output": number,
                "edit": output.edit,
                "image": output.sha256,
                "editor": output.strata.get("editor", ""),
                "arm": output.strata.get("arm", ""),
                "prompt_text": item.prompt,
                "chance": item.chance,
                "strata": json.dumps(dict(item.strata), ensure_ascii=False),
                "expected": json.dumps(output.expected) if output.expected else "",
            }


def _exclusions(study: Study, connection: Transaction) -> Iterator[Row]:
    """The answers that do not count, and why."""
    lost = connection.execute(
        "SELECT s.participant, s.reason, p.excluded, count(a.slot) AS answers FROM slot s "
        "JOIN participant p ON p.id = s.participant LEFT JOIN answer a ON a.slot = s.id "
        "WHERE s.state = 'void' OR p.excluded IS NOT NULL GROUP BY s.id ORDER BY s.begun"
    )
    for row in lost:
        by_study = row["reason"] not in (None, EXCLUDED)
        yield {
            "rater": pseudonym(study, row["participant"]),
            "reason": row["reason"] if by_study else row["excluded"],
            "by": "study" if by_study else "researcher",
            "answers": row["answers"],
        }
    if withdrawn := connection.value("SELECT withdrawn FROM study"):
        yield {"rater": f"{withdrawn} in all", "reason": "withdrawn, data deleted", "by": "participant", "answers": 0}


def codebook_of(study: Study) -> str:
    """What every column means, with the exact wording that raters saw."""
    axes = rubric.load().axes
    versions = "\n".join(
        f"## Version {number}: configuration {config.hash}\n"
        f"Questions: {', '.join(config.questions)}. "
        f'{"With" if config.can_abstain else "Without"} the answer "cannot tell".\n\n'
        f"### Consent of version {number}, exactly as shown\n{config.consent_shown}"
        for number, config in study.versions.items()
    )
    questions = "\n".join(
        f"### {name}: {axes[name].title}\n{axes[name].question}\n\n"
        + "\n".join(f"{value}. {text}" for value, text in enumerate(anchors(name), start=1))
        + "\n"
        for name in study.questions
    )
    design = study.drawn.design
    items = sum(item.kind == "real" for item in study.drawn.items)
    how, _ = chosen_how([str(design.get("draw", ""))])
    return _CODEBOOK.format(
        title=study.config.title,
        rubric=rubric.load().version,
        raters=study.config.raters,
        design=json.dumps(dict(design), ensure_ascii=False),
        audit=study.drawn.audit,
        chosen=f"{items:,} of {design.get('possible', items):,} possible items, {how}",
        questions=questions,
        versions=versions,
    )


def _write_csv(file: Path, rows: Sequence[Row]) -> Path:
    if not rows:
        return write_whole(file, "")
    lists_as_text = (
        {name: json.dumps(value) if isinstance(value, tuple) else value for name, value in row.items()} for row in rows
    )
    return write_csv(file, list(rows[0]), lists_as_text)


def _write_parquet(file: Path, rows: Sequence[Row]) -> Path:
    try:
        pa: Any = importlib.import_module("pyarrow")
        pq: Any = importlib.import_module("pyarrow.parquet")
    except ModuleNotFoundError:
        raise MissingExtra('Parquet needs pyarrow: run `pip install "stillme[parquet]"`, or choose csv.') from None
    with whole(file) as draft:
        pq.write_table(pa.Table.from_pylist(rows), draft)
    return file


_WRITERS = {"csv": _write_csv, "jsonl": write_json_lines, "parquet": _write_parquet}

_CODEBOOK = """\
# Codebook: {title}

Rubric {rubric}, {raters} raters per item.
Drawn from the run with configuration {audit}: {design}.
The edits are {chosen}.
Raters are pseudonyms; nothing here names a participant or the time of day at which they took part.

## ratings
One row per answer of every rater who holds or has finished a task.

| column | meaning |
|---|---|
| rater | pseudonym |
| item, output | what was rated; see `items` |
| kind | real; repeat (an item shown again, see `repeats`); gold, attention (known answers) |
| position, side | where the rater saw it: the place in the task, A or B; of two people, where the first stood |
| edit | the edit's key in the run; empty for pictures made for a check |
| axis, score | the question, and 1 to 5; for `role_target` the first or second person of the request, not A or B |
| cannot_tell | 1 if the rater could not tell; there is no score then |
| first_answer | what was answered before it was corrected in the review, 0 for "cannot tell"; empty if it was not |
| neither | 1 if neither of two people is drawn as the target; there is no score then |
| seconds | since the rater began |
| shown | the smallest side of the item's pictures on the rater's screen, in CSS pixels; all were decoded |
| version | what the rater agreed to and was asked; see the versions below |
| finished | 1 if the rater finished the task; only those count |
| excluded | why the researcher excluded this rater; empty if not |

## items
One row per output: editor, arm, prompt and strata (as JSON), which raters never saw; `expected` has the right answers.
`chance` is the chance with which an item was drawn, empty where items were chosen by their outcome.

## raters
Quality measures. `attention` [passed, seen]; `gold` share right; `seconds` median active time per item; `fast` share
too fast; `cannot_tell` share of questions; `straight` share of outputs with one number throughout; `entropy` in bits;
`agreement` correlation with the mean of the others; `repeat` mean difference on repeats, where both times could tell;
`side` mean of A minus mean of B; `shown` median size of the pictures on the screen, in CSS pixels;
`flags` are advice and exclude no one. `width`, `height` and `ratio` (screen pixels per page pixel) of the window;
`full_brightness` and `no_colour_filter` are what the rater said, 1 for yes.

## checks
One row per answer to an attention or gold item: `given`, the right answers from `lowest` to `highest`, and `right`.

## comments
What raters wrote, about an item or, with `item` empty, at the end. Ids that we knew are replaced by [id].

## agreement
Krippendorff's alpha and Fleiss' kappa by question, with 95 % intervals over portraits, or why there is none.

## exclusions
Places that were given up, excluded raters, and how many withdrew.

## Questions, exactly as shown
{questions}
{versions}
"""
