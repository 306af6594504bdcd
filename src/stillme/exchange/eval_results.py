"""A run as `.eval_results` of the Hugging Face Hub: a YAML file in a model's repository, with one number per task.

The Hub shows such a number beside its benchmark, a data set on the Hub, so the user names it. A number there has no
interval; the notes of each entry have it, with judge and calibration.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

from stillme import estimates, numbers
from stillme.calibration import standing_of
from stillme.design import EditorRecord
from stillme.errors import StillmeError
from stillme.estimates import mark
from stillme.estimates.cuts import rate_of
from stillme.exchange.publishing import (
    Publication,
    chance_text,
    interval_text,
    model_id,
    published,
    unfinished,
    with_numbers,
)
from stillme.files import write_whole
from stillme.results import Run
from stillme.types import Arm, Estimate, Json

_DATASET = re.compile(r"[\w.-]+/[\w.-]+")
_FAILED = "calibration failed"


def export_eval_results(run: Run, to: Path | None, publication: Publication, dataset: str) -> list[Path]:
    """Write `eval_results/MODEL/.eval_results/stillme.yaml` for each editor, to upload to the model's repository."""
    publication = publication.checked(run)
    if not _DATASET.fullmatch(dataset):
        raise StillmeError(
            f"{dataset!r} names no data set on the Hub. Write --dataset ORGANISATION/NAME: the benchmark that the "
            "numbers belong to."
        )
    written = run.store.written()
    if written is None:
        raise StillmeError(f"{run.folder} has no edits yet, so there is nothing to export. `stillme run` makes them.")
    folder = to or run.folder / "export"
    files: list[Path] = []
    for editor in run.design.editors:
        model = model_id(run, editor, publication)
        entries = [
            {"dataset": {"id": dataset, "task_id": task}, "value": value, "date": written[1], "notes": notes}
            for task, value, notes in _entries(run, editor)
        ]
        place = folder / "eval_results" / re.sub(r"[^\w.-]+", "--", model) / ".eval_results"
        place.mkdir(parents=True, exist_ok=True)
        files.append(write_whole(place / "stillme.yaml", _yaml(entries)))
    return files


def _entries(run: Run, editor: EditorRecord) -> Iterator[tuple[str, float, str]]:
    """Rates and their gaps between groups under the baseline; a judge that failed calibration gives none."""
    standing, missing = standing_of(run), unfinished(run)
    for estimate, interval in with_numbers(published(run), editor.name):
        note = mark(standing, estimate.judge, estimate.quantity)
        if not _is_shown(run, estimate) or note == _FAILED:
            continue
        who = f"judge: {estimate.judge}" + (f" ({note})" if note else "") if estimate.judge else "counted"
        gap = f"largest minus smallest group of {estimate.factor}" if estimate.factor else "all edits"
        notes = "; ".join(filter(None, (gap, interval_text(estimate, interval), chance_text(estimate), who, missing)))
        task = f"{estimate.quantity}_gap_{estimate.factor}" if estimate.factor else estimate.quantity
        yield task, float(numbers.machine(interval.value)), notes


def _is_shown(run: Run, estimate: Estimate) -> bool:
    if estimate.arm != Arm.BASELINE or not numbers.is_rate(estimate.quantity):
        return False
    if estimate.scope not in ("all", "disparity"):
        return False
    rate = rate_of(estimate.quantity)
    if rate is None:
        return True
    speaking = estimates.one_judge(run.results.scores, rate.axis)
    return speaking is not None and speaking.judge == estimate.judge


def _yaml(entries: list[dict[str, Json]]) -> str:
    """A list of mappings. A JSON value is a YAML value, so only the outer shape is laid out."""
    lines: list[str] = []
    for entry in entries:
        for place, (name, value) in enumerate(entry.items()):
            lines.append(f"{'- ' if place == 0 else '  '}{name}: {json.dumps(value, ensure_ascii=False)}")
    return "\n".join(lines) + "\n" if lines else "[]\n"
