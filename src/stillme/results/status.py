"""A run's progress."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from stillme.design import ExtractorRecord
from stillme.mitigation import NEEDS_FEATURES, extraction_key
from stillme.results.behaviour import Gaps, gaps
from stillme.results.drift import sentence
from stillme.results.editor_weights import EditorWeights, editor_weights
from stillme.results.model_names import ModelNames, drifted, model_names
from stillme.results.run import CHUNK, Run
from stillme.sentinels.reading import KnownAnswers, answered_by
from stillme.store import StoredEdit, Totals
from stillme.store.summaries import Failure
from stillme.types import IN_WORDS, Failed

_SHOWN = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Status:
    """A run's progress, by extractor, by editor and by judge."""

    folder: Path
    extractors: Mapping[str, Mapping[str, int]]
    editors: Mapping[str, Mapping[str, int]]
    judges: Mapping[str, Mapping[str, int]]
    totals: Totals
    imported: frozenset[str] = frozenset()
    """Judges whose scores are imported: what they left out is not missing."""
    failures: tuple[Failure, ...] = ()
    drift: tuple[str, ...] = ()
    """How this machine's audit.toml, plugins and files differ from what was recorded."""
    models: tuple[ModelNames, ...] = ()
    """Which models really answered."""
    weights: tuple[EditorWeights, ...] = ()
    """Which weights edits were made with."""
    gaps: Gaps | None = None
    """Combined scores that lack a judge."""
    known_answers: tuple[KnownAnswers, ...] = ()
    """What judges said to hidden pairs of known truth."""
    pictures: str = ""
    """Where new pictures are kept; empty for the run folder."""

    @property
    def complete(self) -> bool:
        """Whether every description, edit and judgement is there."""
        asked = (counts for name, counts in self.judges.items() if name not in self.imported)
        counted = (*self.extractors.values(), *self.editors.values(), *asked)
        return all(counts["done"] == counts["total"] for counts in counted)

    def as_json(self) -> dict[str, Any]:
        """For `--json`."""
        return {
            "folder": str(self.folder),
            "pictures": self.pictures or None,
            "extractors": [{"name": name, **counts} for name, counts in self.extractors.items()],
            "editors": [{"name": name, **counts} for name, counts in self.editors.items()],
            "judges": [{"name": name, **counts} for name, counts in self.judges.items()],
            "cost": self.totals.cost,
            "unpriced": self.totals.unpriced,
            "seconds": self.totals.seconds,
            "failures": [
                {"stage": failure.stage, "reason": failure.reason, "count": failure.count} for failure in self.failures
            ],
            "drift": list(self.drift),
            "models": [judge.as_json() for judge in self.models],
            "weights": [editor.as_json() for editor in self.weights],
            "combined": self.gaps.as_json() if self.gaps else None,
            "known_answers": [answers.as_json() for answers in self.known_answers],
            "alarms": [answers.alarm for answers in self.known_answers if answers.alarm],
        }

    def as_text(self) -> str:
        """For people."""
        lines = [f"{self.folder}"]
        for kind, entries in (("describe", self.extractors), ("edit", self.editors), ("judge", self.judges)):
            for name, counts in entries.items():
                rest = ", ".join(f"{n:,} {word}" for word, n in counts.items() if word not in ("total", "done") and n)
                done, total = counts["done"], counts["total"]
                share = f"{done / total:4.0%}" if total else "  –"
                lines.append(f"  {kind:<9}{name:<20}{share}  {done:,} of {total:,}{f' ({rest})' if rest else ''}")
        lines.append(f"  cost     {self.totals.cost_text}, {self.totals.seconds:,.0f} s of work")
        if self.pictures:
            lines.append(f"  pictures {self.pictures}")
        lines += [f"  weights  {entry.editor:<20}{entry}" for entry in self.weights]
        lines += [f"  {failure}" for failure in self.failures[:_SHOWN]]
        if len(self.failures) > _SHOWN:
            lines.append(f"  and {len(self.failures) - _SHOWN:,} more reasons; `stillme export` lists all")
        lines += [f"  warning: {judge}" for judge in drifted(self.models)]
        lines += [
            f"  warning: the edits of {entry.editor} were made with different weights and must not be pooled"
            for entry in self.weights
            if entry.mixed
        ]
        if self.gaps:
            lines.append(f"  {self.gaps}")
        lines += [line for answers in self.known_answers for line in answers.lines()]
        if self.drift:
            lines.append(sentence(self.drift))
        return "\n".join(lines)


def status_of(run: Run, drift: Sequence[str] = ()) -> Status:
    """Count the rows of a run, without disturbing a process that is writing them."""
    store = run.store
    editors = {editor.name: Counter(total=0, done=0) for editor in run.design.editors}
    judges = {judge.name: Counter(total=0, done=0) for judge in run.judges}
    requests = run.asked()
    while chunk := list(itertools.islice(requests, CHUNK)):
        edits = store.edits([asked.key for asked in chunk])
        for asked in chunk:
            counts = editors[asked.editor]
            counts["total"] += asked.counts
            if edit := edits.get(asked.key):
                counts["done"] += edit.final
                counts[_word(edit)] += 1
        pictures = [(asked.key, edit.image) for asked in chunk if (edit := edits.get(asked.key)) and edit.image]
        for judge in run.judges:
            keys = [key for edit, image in pictures for key, _ in judge.assessments(edit, image)]
            judges[judge.name].update(total=len(keys), done=len(store.finished_assessments(keys)))
    for judge in run.judges:
        if tickets := store.tickets.open(judge.spec.key):
            judges[judge.name]["in a batch"] = sum(len(ticket.questions) for ticket in tickets)
    return Status(
        folder=run.folder,
        extractors={extractor.name: _described(run, extractor) for extractor in run.design.extractors},
        editors=editors,
        judges=judges,
        totals=run.totals(),
        imported=frozenset(judge.name for judge in run.judges if judge.capabilities.given),
        failures=tuple(store.failures()),
        drift=tuple(drift),
        models=tuple(model_names(run)),
        weights=tuple(editor_weights(run)),
        gaps=gaps(run),
        known_answers=tuple(answered_by(store, run.judges)),
        pictures=store.places.current,
    )


def _word(edit: StoredEdit) -> str:
    if edit.final:
        return edit.outcome
    return "answered in words" if edit.status == IN_WORDS else "to retry"


def _described(run: Run, extractor: ExtractorRecord) -> Mapping[str, int]:
    """How many of its portraits an extractor has described."""
    readers = {editor.name for editor in run.design.editors if editor.capabilities.reads_instruction}
    needed = (request for request in run.requests() if request.arm in NEEDS_FEATURES and request.editor in readers)
    ids = {name for request in needed for name in request.portraits}
    portraits = (portrait for portrait in run.design.portraits if portrait.id in ids)
    keys = {extraction_key(portrait.image, extractor.spec) for portrait in portraits}
    counts = Counter(total=len(keys), done=0)
    for extraction in run.store.features(sorted(keys)).values():
        waits = isinstance(extraction, Failed)
        counts["done"] += not waits
        counts["to retry" if waits else type(extraction).__name__.lower()] += 1
    return counts
