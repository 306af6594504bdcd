"""The rows of both sides as one set: `arm` holds the editor, and `editor` holds the arm."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np

from stillme.estimates.rows import Codes, Edits, Scores
from stillme.findings.compare.cells import Cell
from stillme.findings.compare.choosing import Chosen


def merge_edits(
    first: Chosen,
    second: Chosen,
    labels: tuple[str, str],
    shared: Sequence[Cell],
    rows: Sequence[Mapping[Cell, int]],
) -> Edits:
    """Every shared cell twice: by the first editor, and by the second."""
    edits = first.results.edits
    base = np.array([rows[0][cell] for cell in shared], dtype=np.intp)
    other = np.array([rows[1][cell] for cell in shared], dtype=np.intp)
    people: set[int] = set(edits.portrait[base].tolist())
    if edits.second is not None:
        people |= set(edits.second[base].tolist()) - {-1}
    used = sorted(people)
    new_place = {place: index for index, place in enumerate(used)}

    def renumbered(codes: Codes) -> Codes:
        return np.array([new_place.get(code, -1) for code in codes[base].tolist()] * 2, dtype=np.int32)

    size = len(shared)
    seeds = {seed: place for place, seed in enumerate(sorted({cell.seed for cell in shared}))}
    sides = ((first.results.edits, base), (second.results.edits, other))
    images = [part.image[int(row)] for part, chosen in sides for row in chosen]
    return Edits(
        keys=[f"{edits.keys[row]}/{side}" for side in range(2) for row in base.tolist()],
        portrait=renumbered(edits.portrait),
        prompt=np.tile(edits.prompt[base], 2),
        editor=np.tile(edits.arm[base], 2),
        arm=np.repeat(np.arange(2, dtype=np.int32), size),
        state=np.concatenate([part.state[chosen] for part, chosen in sides]),
        image=images,
        portraits=tuple(edits.portraits[place] for place in used),
        prompts=edits.prompts,
        editors=edits.arms,
        arms=labels,
        second=None if edits.second is None else renumbered(edits.second),
        matching=None if edits.matching is None else np.tile(edits.matching[base], 2),
        seed=np.array([seeds[cell.seed] for cell in shared] * 2, dtype=np.int32),
        has_states=edits.has_states and second.results.edits.has_states,
    )


def merge_scores(
    first: Chosen,
    second: Chosen,
    shared: Sequence[Cell],
    rows: Sequence[Mapping[Cell, int]],
    judges: Mapping[str, str],
) -> Iterator[Scores]:
    """Scores by the judges that both share; `judges` maps the second run's names to the first's."""
    base, other = ([side[cell] for cell in shared] for side in rows)
    theirs = {(judges[score.judge], score.axis): score for score in second.results.scores if score.judge in judges}
    for ours in first.results.scores:
        same = theirs.get((ours.judge, ours.axis))
        if same is not None:
            yield replace(
                ours,
                value=np.concatenate([ours.value[base], same.value[other]]),
                state=np.concatenate([ours.state[base], same.state[other]]),
            )
