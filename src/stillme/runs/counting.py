"""How far a run has come: grouped and counted by the database, and kept for as long as nothing is written."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, cast

from stillme.core.files import write_whole
from stillme.core.home import cache_folder
from stillme.core.rubric.readings import REPEATS
from stillme.core.types import Arm, Failed, Json
from stillme.mitigation.arms import NEEDS_FEATURES
from stillme.mitigation.features import extraction_key
from stillme.runs.run import Run
from stillme.runs.store.summaries import Totals

_KEPT = 50
"""Runs whose counts are kept."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Counts:
    """How far a run has come, by extractor, by editor and by judge."""

    extractors: Mapping[str, Mapping[str, int]]
    editors: Mapping[str, Mapping[str, int]]
    judges: Mapping[str, Mapping[str, int]]
    readers: Mapping[str, Mapping[str, int]] = field(default_factory=dict[str, Mapping[str, int]])
    imported: tuple[str, ...] = ()
    """Judges whose scores are imported: what they left out is not missing."""

    @property
    def complete(self) -> bool:
        """Whether every description, edit and judgement is there."""
        asked = (counts for name, counts in self.judges.items() if name not in self.imported)
        counted = (*self.extractors.values(), *self.editors.values(), *asked, *self.readers.values())
        return all(counts["done"] == counts["total"] for counts in counted)

    def as_json(self) -> dict[str, Any]:
        """For `--json`."""
        return {
            "extractors": [{"name": name, **counts} for name, counts in self.extractors.items()],
            "editors": [{"name": name, **counts} for name, counts in self.editors.items()],
            "judges": [{"name": name, **counts} for name, counts in self.judges.items()],
        } | ({"readers": [{"name": name, **counts} for name, counts in self.readers.items()]} if self.readers else {})


def count(run: Run) -> tuple[Counts, Totals]:
    """Count the run, without disturbing a process that is writing to it; a run that did not change only once."""
    # Before the rows are read: what is written meanwhile is seen the next time.
    state = run.store.state()
    name = str(run.folder.resolve())
    kept = _kept()
    if (entry := kept.pop(name, None)) and entry["state"] == state:
        counts = entry["counts"]
        return Counts(**counts | {"imported": tuple(counts["imported"])}), Totals(**entry["totals"])
    with run.store.snapshot():
        counts, totals = _counts(run), run.store.totals()
    # The latest last. What cannot be kept is counted again.
    kept[name] = {"state": state, "counts": asdict(counts), "totals": asdict(totals)}
    with suppress(OSError):
        _file().parent.mkdir(parents=True, exist_ok=True)
        write_whole(_file(), json.dumps(dict(list(kept.items())[-_KEPT:])))
    return counts, totals


def _counts(run: Run) -> Counts:
    store = run.store
    states: dict[str, Counter[str]] = {editor.name: Counter() for editor in run.design.editors}
    rows, answers = store.progress(run.plan)
    for editor, state, number in rows:
        states[editor][state] += number
    requests = store.requests_by_editor(run.plan)
    pictures = sum(counts["edited"] for counts in states.values())
    return Counts(
        extractors=_descriptions(run),
        editors={
            name: {"total": requests.get(name, 0), "done": counts["edited"] + counts["refused"], **counts}
            for name, counts in states.items()
        },
        judges={
            judge.name: {
                "total": pictures * judge.asked,
                "done": sum(answers.get((judge.spec.key, epoch), 0) for epoch in range(judge.asked)),
            }
            for judge in run.judges
        },
        readers=_readings(run) if run.design.readers else {},
        imported=tuple(judge.name for judge in run.judges if judge.capabilities.given),
    )


def _readings(run: Run) -> dict[str, dict[str, int]]:
    """Pictures of one portrait; a control that is still to be made counts as a picture of its own."""
    edited: set[str] = set()
    controls: set[str] = set()
    keys = {editor.name: editor.spec.key for editor in run.design.editors}
    made = {(editor, portrait): image for editor, portrait, image in run.store.controls()}
    for row in run.rows():
        if not row.image or len(row.request.portraits) != 1:
            continue
        if row.request.arm is Arm.NOOP:
            controls.add(row.image)
            continue
        edited.add(row.image)
        if Arm.NOOP not in run.design.arms:
            place = keys[row.request.editor], row.request.portraits[0]
            controls.add(made.get(place, " ".join(place)))
    wanted = {(image, 0) for image in edited} | {(image, repeat) for image in controls for repeat in range(REPEATS)}
    return {
        reader.name: {
            "total": len(wanted),
            "done": len(wanted & {(image, repeat) for image, repeat, *_ in run.store.readings(reader.spec.key)}),
        }
        for reader in run.design.readers
    }


def _descriptions(run: Run) -> dict[str, dict[str, int]]:
    readers = {editor.name for editor in run.design.editors if editor.capabilities.reads_instruction}
    ids = run.portraits_of(readers, NEEDS_FEATURES) if run.design.extractors else set[str]()
    portraits = [portrait for portrait in run.design.portraits if portrait.id in ids]
    described: dict[str, dict[str, int]] = {}
    for extractor in run.design.extractors:
        keys = sorted({extraction_key(portrait.image, extractor.spec) for portrait in portraits})
        found = run.store.features(keys).values()
        waiting = sum(isinstance(extraction, Failed) for extraction in found)
        kinds = Counter(type(extraction).__name__.lower() for extraction in found if not isinstance(extraction, Failed))
        described[extractor.name] = {"total": len(keys), "done": len(found) - waiting, **kinds}
        described[extractor.name] |= {"to retry": waiting} if waiting else {}
    return described


def _kept() -> dict[str, dict[str, Json]]:
    # A damaged file is an empty one: it only saves time.
    with suppress(OSError, ValueError):
        kept = json.loads(_file().read_text("utf-8"))
        if isinstance(kept, dict):
            return cast("dict[str, dict[str, Json]]", kept)
    return {}


def _file() -> Path:
    return cache_folder() / "counts.json"
