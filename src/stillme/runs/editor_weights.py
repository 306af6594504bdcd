"""Which weights edits were made with: the same throughout?"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from stillme.core.types import Json
from stillme.runs.run import Run
from stillme.runs.store.summaries import EditingWeights

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
