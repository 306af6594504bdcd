"""A run's progress."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from stillme.runs.counting import Counts, count
from stillme.runs.model_names import EditorWeights, ModelNames, drifted, editor_weights, model_names
from stillme.runs.run import Run
from stillme.runs.store import Totals
from stillme.runs.store.summaries import Failure

if TYPE_CHECKING:  # both need numpy, and most runs have neither
    from stillme.runs.behaviour import Gaps
    from stillme.runs.control_pairs.reading import KnownAnswers

_SHOWN = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Status:
    """A run's progress, and what a reader should know of it."""

    folder: Path
    counts: Counts
    totals: Totals
    failures: tuple[Failure, ...] = ()
    models: tuple[ModelNames, ...] = ()
    """Which models really answered."""
    weights: tuple[EditorWeights, ...] = ()
    """Which weights edits were made with."""
    gaps: Gaps | None = None
    """Combined scores that lack a judge."""
    known_answers: tuple[KnownAnswers, ...] = ()
    """What judges said to hidden pairs of known truth."""
    made: Mapping[str, tuple[str, str]] = field(default_factory=dict[str, tuple[str, str]])
    """When the first and the last edit of each editor were made, UTC."""
    pictures: str = ""
    """Where new pictures are kept; empty for the run folder."""

    @property
    def complete(self) -> bool:
        """Whether every description, edit and judgement is there."""
        return self.counts.complete

    def as_json(self) -> dict[str, Any]:
        """For `--json`."""
        return {
            "folder": str(self.folder),
            "pictures": self.pictures or None,
            **self.counts.as_json(),
            "cost": self.totals.cost,
            "unpriced": self.totals.unpriced,
            "seconds": self.totals.seconds,
            "failures": _as_json(self.failures),
            "models": [judge.as_json() for judge in self.models],
            "made": {editor: {"first": first, "last": last} for editor, (first, last) in self.made.items()},
            "weights": [editor.as_json() for editor in self.weights],
            "combined": self.gaps.as_json() if self.gaps else None,
            "known_answers": [answers.as_json() for answers in self.known_answers],
            "alarms": [answers.alarm for answers in self.known_answers if answers.alarm],
        }

    def as_text(self) -> str:
        """For people."""
        lines = [f"{self.folder}"]
        done_by = self.counts
        for kind, entries in (
            ("describe", done_by.extractors),
            ("edit", done_by.editors),
            ("judge", done_by.judges),
            ("read", done_by.readers),
        ):
            for name, counts in entries.items():
                rest = ", ".join(f"{n:,} {word}" for word, n in counts.items() if word not in ("total", "done") and n)
                done, total = counts["done"], counts["total"]
                share = f"{done / total:4.0%}" if total else "  –"
                lines.append(f"  {kind:<9}{name:<20}{share}  {done:,} of {total:,}{f' ({rest})' if rest else ''}")
        lines.append(f"  cost     {self.totals.cost_text}, {self.totals.seconds:,.0f} s of work")
        if self.pictures:
            lines.append(f"  pictures {self.pictures}")
        lines += [f"  made     {editor:<20}{_period(first, last)}" for editor, (first, last) in self.made.items()]
        lines += [f"  weights  {entry.editor:<20}{entry}" for entry in self.weights]
        lines += _reasons(self.failures)
        lines += [f"  warning: {judge}" for judge in drifted(self.models)]
        lines += [
            f"  warning: the edits of {entry.editor} were made with different weights and must not be pooled"
            for entry in self.weights
            if entry.mixed
        ]
        if self.gaps:
            lines.append(f"  {self.gaps}")
        lines += [line for answers in self.known_answers for line in answers.lines()]
        return "\n".join(lines)


def _as_json(failures: Sequence[Failure]) -> list[dict[str, Any]]:
    return [{"stage": failure.stage, "reason": failure.reason, "count": failure.count} for failure in failures]


def _reasons(failures: Sequence[Failure]) -> Iterator[str]:
    yield from (f"  {failure}" for failure in failures[:_SHOWN])
    if len(failures) > _SHOWN:
        yield f"  and {len(failures) - _SHOWN:,} more reasons; `stillme export` lists all"


def _period(first: str, last: str) -> str:
    """When, to the minute, UTC."""
    begin, end = (moment[:16].replace("T", " ") for moment in (first, last))
    return f"{begin} UTC" if begin == end else f"{begin} to {end} UTC"


def status_of(run: Run) -> Status:
    """Count the rows of a run, without disturbing a process that is writing them."""
    store = run.store
    counts, totals = count(run)
    times = store.editing_times()
    return Status(
        folder=run.folder,
        counts=counts,
        totals=totals,
        failures=tuple(store.failures()),
        models=tuple(model_names(run)),
        weights=tuple(editor_weights(run)),
        gaps=_gaps(run),
        known_answers=_known_answers(run),
        made={editor.name: times[editor.spec.key] for editor in run.design.editors if editor.spec.key in times},
        pictures=store.places.current,
    )


def _gaps(run: Run) -> Gaps | None:
    if len(run.design.analysis.combined) < 2:
        return None
    from stillme.runs.behaviour import gaps

    return gaps(run)


def _known_answers(run: Run) -> tuple[KnownAnswers, ...]:
    if not any(run.store.sentinels(judge.spec.key) for judge in run.judges):
        return ()
    from stillme.runs.control_pairs.reading import answered_by

    return tuple(answered_by(run.store, run.judges))
