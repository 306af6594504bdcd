"""Which model really answered as a judge: the one that was asked, and the same one throughout?"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from stillme.core.types import Json
from stillme.runs.run import Run
from stillme.runs.store.summaries import EditingWeights

_DATED = re.compile(r"[-@](\d{4}-\d{2}-\d{2}|\d{2}-\d{4}|\d{8}|\d{3})")
"""How vendors name a snapshot: `-2026-01-10`, `-09-2026`, `-20260110`, `@20260110`, `-001`."""
_FLOATING = "-latest"
_PREFIX = "models/"


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelNames:
    """One judge: the model that it asks for, and those that answered, the earliest first."""

    judge: str
    asked: str
    answered: tuple[Answered, ...]

    @property
    def total(self) -> int:
        """Answers that name their model."""
        return sum(model.answers for model in self.answered)

    @property
    def others(self) -> tuple[Answered, ...]:
        """Models that are neither the one asked for nor a dated snapshot of it."""
        return tuple(model for model in self.answered if not is_snapshot(model.name, of=self.asked))

    @property
    def changed(self) -> bool:
        """Whether different models answered. The bare name and one snapshot of it need not be different."""
        return len({model.name for model in self.answered} - {self.asked}) > 1

    @property
    def drifted(self) -> bool:
        """Whether a reader must know."""
        return self.changed or bool(self.others)

    def __str__(self) -> str:
        models = "; ".join(f"{model.name} ({model.answers:,}, first {_minute(model.first)})" for model in self.answered)
        what = "the model changed during the run" if self.changed else "another model answered"
        return f"{self.judge} asked for {self.asked}, and {what}: {models}"

    def as_json(self) -> dict[str, Json]:
        """For `--json`."""
        return {
            "judge": self.judge,
            "asked": self.asked,
            "drifted": self.drifted,
            "answered": [
                {"model": model.name, "answers": model.answers, "first": model.first} for model in self.answered
            ],
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Answered:
    """A model that answered."""

    name: str
    answers: int
    first: str
    """When it answered first."""


def model_names(run: Run) -> list[ModelNames]:
    """Every judge of the run whose answers say which model gave them."""
    answering = run.store.answering_models()
    return [
        ModelNames(
            judge=judge.name,
            asked=str(judge.spec.parameters.get("model", "")),
            answered=tuple(
                Answered(name=model.name, answers=model.answers, first=model.first)
                for model in answering
                if model.judge == judge.spec.key
            ),
        )
        for judge in run.judges
        if any(model.judge == judge.spec.key for model in answering)
    ]


def drifted(names: Sequence[ModelNames]) -> Iterator[ModelNames]:
    """Judges that were not the same model throughout, or not the one asked for."""
    return (judge for judge in names if judge.drifted)


def _minute(at: str) -> str:
    return at[:16].replace("T", " ")


def is_snapshot(name: str, *, of: str) -> bool:
    """Whether a model is the one asked for, or a dated snapshot of it."""
    asked = of.removeprefix(_PREFIX).removesuffix(_FLOATING)
    rest = name.removeprefix(_PREFIX)
    if not rest.startswith(asked):
        return False
    return rest.removeprefix(asked) in ("", _FLOATING) or bool(_DATED.fullmatch(rest.removeprefix(asked)))


_SHOWN = 12
"""Characters of a commit."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EditorWeights:
    """One editor: the weights of its edits, the earliest first."""

    editor: str
    used: tuple[EditingWeights, ...]

    @property
    def mixed(self) -> bool:
        """Whether its edits were made with different weights, and must not be pooled."""
        return len(self.used) > 1

    def __str__(self) -> str:
        return "; ".join(f"{_named(used.weights)} ({used.edits:,} edits)" for used in self.used)

    def as_json(self) -> dict[str, Json]:
        """For `--json`."""
        return {
            "editor": self.editor,
            "mixed": self.mixed,
            "used": [{"weights": dict(used.weights), "edits": used.edits} for used in self.used],
        }


def editor_weights(run: Run) -> list[EditorWeights]:
    """Every editor of the run that records its weights."""
    recorded = run.store.editing_weights()
    weights = (
        EditorWeights(editor=editor.name, used=tuple(used for used in recorded if used.editor == editor.spec.key))
        for editor in run.design.editors
    )
    return [entry for entry in weights if entry.used]


def _named(weights: Mapping[str, Json]) -> str:
    return " + ".join(f"{part.get('repo')} at {_short(str(part.get('revision')))}" for part in _parts(weights))


def _parts(weights: Mapping[str, Json]) -> Iterator[Mapping[str, Json]]:
    yield weights
    yield from weights.get("others", ())


def _short(revision: str) -> str:
    kind, _, value = revision.rpartition(":")
    return f"{kind}:{value[:_SHOWN]}" if kind else value[:_SHOWN]
