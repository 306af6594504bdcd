"""What a request asks apart from its editor, and where two sides were asked different things."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from stillme.audit.design import EditorRecord
from stillme.core.types import Request
from stillme.runs import Results, Run

_NAMED = 3
"""Differences named one by one; the rest is counted."""


@dataclass(frozen=True, slots=True)
class Cell:
    """What a request asks, apart from its editor."""

    portraits: tuple[tuple[str, str, frozenset[tuple[str, str]]], ...]
    """Name, hash and labels."""
    prompt: tuple[str, str]
    arm: str
    instruction: str
    seed: int


def cells_of(chosen: Chosen, *, by_place: bool) -> dict[Cell, int]:
    """Each cell with its row. An editor's rows are in the order of its requests."""
    design = chosen.run.design
    index = design.editors.index(chosen.editor)
    rows: list[int] = np.flatnonzero(chosen.results.edits.editor == index).tolist()
    places = {seed: place for place, seed in enumerate(chosen.editor.seeds)}
    return {
        _cell(recorded.request(design), places.get(recorded.seed, 0) if by_place else recorded.seed): row
        for row, recorded in zip(rows, chosen.run.requests(chosen.editor.name), strict=True)
    }


def _cell(request: Request, seed: int) -> Cell:
    return Cell(
        portraits=tuple(
            (portrait.id, portrait.image.sha256, frozenset(portrait.attributes.items()))
            for portrait in request.portraits
        ),
        prompt=(request.prompt.id, request.prompt.text),
        arm=str(request.arm),
        instruction=request.instruction,
        seed=seed,
    )


def differences(first: Sequence[Cell], second: Sequence[Cell]) -> Iterator[str]:
    """Name what differs, from portraits down to requests: a missing portrait explains its missing cells."""
    aspects: tuple[tuple[str, Callable[[Cell], Iterable[object]]], ...] = (
        ("portraits", lambda cell: [portrait[0] for portrait in cell.portraits]),
        ("prompts", lambda cell: [cell.prompt[0]]),
        ("arms", lambda cell: [cell.arm]),
        ("seeds", lambda cell: [cell.seed]),
    )
    explained = False
    for name, of in aspects:
        one, other = ({part for cell in side for part in of(cell)} for side in (first, second))
        if one != other:
            explained = True
            yield f"{name}: {only_in(one - other, other - one)}"
    for name, of_cell in (("pictures", _pictures), ("labels", _labelled), ("prompt texts", _words)):
        one, other = (dict(pair for cell in side for pair in of_cell(cell)) for side in (first, second))
        changed = sorted(key for key in one.keys() & other.keys() if one[key] != other[key])
        if changed:
            explained = True
            yield f"{name}: differ for {_listed(changed)}"
    if set(first) != set(second) and not explained:
        only = (len(set(first) - set(second)), len(set(second) - set(first)))
        yield f"requests: {only[0]:,} only in the first, {only[1]:,} only in the second (another [sample]?)"


def _pictures(cell: Cell) -> Iterator[tuple[str, object]]:
    return ((name, sha256) for name, sha256, _ in cell.portraits)


def _labelled(cell: Cell) -> Iterator[tuple[str, object]]:
    return ((name, labels) for name, _, labels in cell.portraits)


def _words(cell: Cell) -> Iterator[tuple[str, object]]:
    yield cell.prompt[0], cell.prompt[1]
    if cell.instruction != cell.prompt[1]:
        # An arm may give every portrait its own text.
        who = "+".join(name for name, _, _ in cell.portraits)
        yield f"{cell.prompt[0]} ({cell.arm}, {who})", cell.instruction


def only_in(first: Iterable[object], second: Iterable[object]) -> str:
    """`only in the first: a; only in the second: b`."""
    sides = (("the first", sorted(map(str, first))), ("the second", sorted(map(str, second))))
    return "; ".join(f"only in {side}: {_listed(names)}" for side, names in sides if names)


def _listed(names: Sequence[str]) -> str:
    more = f" and {len(names) - _NAMED:,} more" if len(names) > _NAMED else ""
    return ", ".join(names[:_NAMED]) + more


@dataclass(frozen=True, slots=True, kw_only=True)
class Chosen:
    """One editor of one run."""

    run: Run
    editor: EditorRecord

    @property
    def results(self) -> Results:
        """The run's rows, as columns."""
        return self.run.results

    @property
    def label(self) -> str:
        """The editor's name."""
        return self.editor.name
