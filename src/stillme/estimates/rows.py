"""An audit's rows as columns: what every estimate is computed from."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from enum import IntEnum
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from stillme.core import rubric
from stillme.core.types import TIMES, Arm, Portrait, Prompt

Codes = NDArray[np.int32]
Flags = NDArray[np.bool_]


ALL = "all"
"""Stands for the editor where all are taken together."""

JudgeKind = Literal["model", "instrument", "person", "ensemble"]


class EditState(IntEnum):
    """What became of a request."""

    MISSING = 0
    EDITED = 1
    REFUSED = 2
    FAILED = 3
    WITHHELD = 4
    """Never asked for: the arm needs a feature prompt, and the portrait has none."""


class RatingState(IntEnum):
    """What became of a question to a judge."""

    MISSING = 0
    RATED = 1
    ABSTAINED = 2
    FAILED = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Edits:
    """One entry per request of the audit, in the audit's own order. Codes index the name tuples."""

    keys: Sequence[str]
    portrait: Codes
    """Index into `portraits`: the first portrait of the request, which is the unit of every estimate."""
    prompt: Codes
    editor: Codes
    arm: Codes
    state: Codes
    """`EditState` values."""
    image: Sequence[str]
    """SHA-256 of the edited image, empty where there is none."""
    portraits: tuple[Portrait, ...]
    prompts: tuple[Prompt, ...]
    editors: tuple[str, ...]
    """The names that the audit gives its editors."""
    arms: tuple[str, ...]
    second: Codes | None = None
    """Index into `portraits` of a request's second portrait, -1 where it has one; None where no request has two."""
    matching: Codes | None = None
    """Role requests with two portraits: whether the first (1) or the second (2) shows the gender that the prompt's
    stereotype expects; 0 elsewhere; None where no request has two."""
    seed: Codes | None = None
    """Each request's seed, so that arms are paired seed by seed; None where every request had the same."""
    has_states: bool = True
    """False where rows from elsewhere list only edits that were made: then the number of refusals is unknown."""

    def __len__(self) -> int:
        return len(self.keys)

    def levels(self, factor: str) -> tuple[tuple[str, ...], Codes]:
        """The levels of an attribute, sorted, and each portrait's level (-1 where it has none)."""
        values = [portrait.attributes.get(factor, "") for portrait in self.portraits]
        names = tuple(sorted({value for value in values if value}))
        place = {name: index for index, name in enumerate(names)}
        return names, np.array([place.get(value, -1) for value in values], dtype=np.int32)

    @property
    def treated(self) -> tuple[str, ...]:
        """Arms that are compared with the baseline; the no-op arm asks for something else."""
        others = (arm for arm in self.arms if arm not in (Arm.BASELINE, Arm.NOOP))
        return tuple(others) if Arm.BASELINE in self.arms else ()

    def where(self, rows: Flags) -> Edits:
        """Only these rows; the names stay."""
        chosen = np.flatnonzero(rows)
        places: list[int] = chosen.tolist()
        return replace(
            self,
            keys=[self.keys[row] for row in places],
            portrait=self.portrait[chosen],
            prompt=self.prompt[chosen],
            editor=self.editor[chosen],
            arm=self.arm[chosen],
            state=self.state[chosen],
            image=[self.image[row] for row in places],
            second=None if self.second is None else self.second[chosen],
            matching=None if self.matching is None else self.matching[chosen],
            seed=None if self.seed is None else self.seed[chosen],
        )

    def crossed(self, factors: Iterable[str]) -> Edits:
        """The same rows, with the intersection of these attributes as one more attribute of each portrait."""
        parts = tuple(factors)
        return replace(
            self,
            portraits=tuple(
                replace(portrait, attributes={**portrait.attributes, TIMES.join(parts): _intersection(portrait, parts)})
                for portrait in self.portraits
            ),
        )

    def counting(self, axis: str) -> Flags:
        """Rows that count on an axis: not those whose prompt asks for the very change, such as thirty years more."""
        known = rubric.load().axes.get(axis)
        counts = [known is None or not known.requested(prompt) for prompt in self.prompts]
        return np.array(counts, dtype=np.bool_)[self.prompt]

    def pooled(self, name: str = ALL) -> Edits:
        """The same rows, as if one editor had made them all; two editors' edits of one request stay two."""
        seed = np.zeros(len(self), dtype=np.int32) if self.seed is None else self.seed
        own = (seed * len(self.editors) + self.editor).astype(np.int32)
        return replace(self, editor=np.zeros(len(self), dtype=np.int32), editors=(name,), seed=own)


def _intersection(portrait: Portrait, factors: tuple[str, ...]) -> str:
    values = [portrait.attributes.get(factor, "") for factor in factors]
    return TIMES.join(values) if all(values) else ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scores:
    """One judge's answers on one axis, aligned with `Edits`."""

    judge: str
    """The name that the audit gives the judge."""
    axis: str
    value: NDArray[np.float64]
    """NaN unless rated."""
    state: Codes
    """`RatingState` values."""
    kind: JudgeKind = "model"

    def where(self, rows: Flags) -> Scores:
        """Only these rows."""
        return replace(self, value=self.value[rows], state=self.state[rows])

    def counting(self, edits: Edits) -> Scores:
        """The same, without answers that do not count on the axis."""
        counts = edits.counting(self.axis)
        if counts.all():
            return self
        state = np.where(counts, self.state, RatingState.MISSING).astype(np.int32)
        return replace(self, value=np.where(counts, self.value, np.nan), state=state)


def headline(scores: Sequence[Scores]) -> tuple[Scores, ...]:
    """Whose scores count where no judge is named.

    On each axis the ensemble, else every model and instrument, else people.
    """
    ranked = (("ensemble",), ("model", "instrument"), ("person",))
    chosen: list[Scores] = []
    for axis in dict.fromkeys(score.axis for score in scores):
        offered = [score for score in scores if score.axis == axis]
        for kinds in ranked:
            if speaking := [score for score in offered if score.kind in kinds]:
                chosen += speaking
                break
    return tuple(chosen)


def one_judge(scores: Sequence[Scores], axis: str, judge: str = "") -> Scores | None:
    """The scores that a table shows on an axis: the named judge's, else the first headline's that are no person's."""
    offered = [score for score in scores if score.axis == axis]
    if judge:
        return next((score for score in offered if score.judge == judge), None)
    return next((score for score in headline(offered) if score.kind != "person"), None)
