"""Draw items evenly over prompts, editors and groups, and distribute them over tasks just as evenly."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from stillme.errors import StillmeError
from stillme.estimates.agreement import draw_unequally
from stillme.types import Prompt

Codes = NDArray[np.int64]
T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class EditedOutput:
    """One edit of the run that has a picture."""

    edit: str
    image: str
    editor: str
    arm: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """An item that could be drawn."""

    portrait: str
    groups: Mapping[str, str]
    prompt: Prompt
    outputs: tuple[EditedOutput, ...]
    second: str = ""
    """The other portrait of a request with two."""
    urgent: bool = False
    """Drawn before the others."""
    apart: float = math.nan
    """How far models disagree about its outputs; NaN where that is not known."""
    chance: float | None = None
    """With which it was drawn, where chances are known."""

    @property
    def editors(self) -> str:
        """Who made the outputs."""
        return " + ".join(sorted({output.editor for output in self.outputs}))


def draw(candidates: Sequence[Candidate], count: int, stream: np.random.Generator) -> list[Candidate]:
    """Pick `count` items: urgent ones first, then even over prompts, group cells, editors and portraits (Appendix H).

    No edit is in two items, or it would get more ratings than the others.
    """
    mixed = shuffled(candidates, stream)
    columns = [*_margins(mixed), _codes([candidate.portrait for candidate in mixed])]
    tier = np.array([0 if candidate.urgent else 1 for candidate in mixed], dtype=np.int64)
    sharing = _sharing(mixed)
    free = np.ones(len(mixed), dtype=bool)
    taken = [np.zeros(int(column.max(initial=0)) + 1, dtype=np.int64) for column in columns]
    picked: list[Candidate] = []
    while len(picked) < count and free.any():
        best = _least(free, [tier, *(counts[column] for counts, column in zip(taken, columns, strict=True))])
        picked.append(mixed[best])
        for counts, column in zip(taken, columns, strict=True):
            counts[column[best]] += 1
        for output in mixed[best].outputs:
            free[sharing[output.edit]] = False
    return picked


def draw_informative(candidates: Sequence[Candidate], count: int, stream: np.random.Generator) -> list[Candidate]:
    """Pick `count` items, likelier where models disagree; the same share of every cell of groups, editor and arm."""
    if any(len(places) > 1 for places in _sharing(candidates).values()):
        raise StillmeError(
            "Items of more than two editors share edits, so the chance of an edit is not known. "
            "Use --choose informative with `--compare none`."
        )
    made = [sorted((output.editor, output.arm) for output in candidate.outputs) for candidate in candidates]
    strata = _codes([str((sorted(each.groups.items()), by)) for each, by in zip(candidates, made, strict=True)])
    apart = np.array([candidate.apart for candidate in candidates])
    chosen = draw_unequally(apart, strata.astype(np.intp), min(count, len(candidates)), stream)
    rows: list[int] = chosen.rows.tolist()
    return [replace(candidates[row], chance=float(chosen.chances[row])) for row in rows]


def shuffled(things: Sequence[T], stream: np.random.Generator) -> list[T]:
    """The same things in random order."""
    return [things[int(index)] for index in stream.permutation(len(things))]


def share_out(items: Sequence[Candidate], size: int, stream: np.random.Generator) -> list[int]:
    """The task of each item: tasks of `size` or one less, each with as many prompts, groups and editors as it can."""
    tasks = -(-len(items) // size)
    room = np.full(tasks, len(items) // tasks, dtype=np.int64)
    room[: len(items) % tasks] += 1
    columns = _margins(items)
    held = [np.zeros((int(column.max(initial=0)) + 1, tasks), dtype=np.int64) for column in columns]
    placed = [0] * len(items)
    tie = stream.permutation(len(items))
    by_prompt = sorted(range(len(items)), key=lambda index: (columns[0][index], tie[index]))
    for index in by_prompt:
        prompt, *others = [table[column[index]] for table, column in zip(held, columns, strict=True)]
        task = _least(room > 0, [prompt, -room, *others])
        placed[index] = task
        room[task] -= 1
        for table, column in zip(held, columns, strict=True):
            table[column[index], task] += 1
    return placed


def _margins(candidates: Sequence[Candidate]) -> list[Codes]:
    """What a choice is to be even over, most important first: prompts, cells of groups, each grouping, editors."""
    factors = sorted({name for candidate in candidates for name in candidate.groups})
    return [
        _codes([candidate.prompt.id for candidate in candidates]),
        _codes([str(sorted(candidate.groups.items())) for candidate in candidates]),
        *(_codes([candidate.groups.get(factor, "") for candidate in candidates]) for factor in factors),
        _codes([candidate.editors for candidate in candidates]),
    ]


def _least(allowed: NDArray[np.bool_], keys: Sequence[Codes]) -> int:
    """The first allowed place that is smallest by the first key, then by the second, and so on."""
    places = np.flatnonzero(allowed)
    for key in keys:
        values = key[places]
        places = places[values == values.min()]
    return int(places[0])


def _codes(names: Sequence[str]) -> Codes:
    known = {name: index for index, name in enumerate(sorted(set(names)))}
    return np.array([known[name] for name in names], dtype=np.int64)


def _sharing(candidates: Sequence[Candidate]) -> dict[str, list[int]]:
    """By edit, the candidates that show it."""
    sharing: dict[str, list[int]] = {}
    for index, candidate in enumerate(candidates):
        for output in candidate.outputs:
            sharing.setdefault(output.edit, []).append(index)
    return sharing
