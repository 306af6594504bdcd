"""What a run offers to be rated: pairs of outputs that differ in one thing."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from typing import Literal

import numpy as np

from stillme import results, rubric
from stillme.audit import Audit
from stillme.errors import StillmeError
from stillme.results import disputes
from stillme.store import Store
from stillme.study.sampling import Candidate, Made
from stillme.types import Arm, Portrait, Prompt

Compare = Literal["auto", "arms", "editors", "none"]
First = Literal["nothing", "disputed", "flagged"]

_CHUNK = 500
_FINDINGS = ("soft_erasure", "skin_lightened", "skin_darkened", "race_changed", "gender_changed")
"""Rates whose cases count as flagged."""


def candidates(audit: Audit, store: Store, compare: Compare, first: First) -> tuple[str, list[Candidate]]:
    """The comparison that was made, and every item it offers."""
    edits = dict(_edits(audit, store))
    if not edits:
        raise StillmeError(f"{audit.folder} has no edited pictures yet. `stillme edit {audit.folder}` makes them.")
    urgent = _urgent(audit, store, first)
    ways = ("arms", "editors", "none") if compare == "auto" else (compare,)
    for way in ways:
        found = [
            Candidate(
                portrait=portrait.id,
                groups={factor: portrait.attributes.get(factor, "") for factor in audit.factors},
                prompt=prompt,
                outputs=outputs,
                urgent=any(made.edit in urgent for made in outputs),
            )
            for portrait, prompt, outputs in _grouped(audit, edits, way)
        ]
        if found:
            return way, found
    needs = {
        "arms": "edits of one request in the arms `baseline` and `feature`",
        "editors": "two editors on one portrait and prompt",
    }
    raise StillmeError(
        f"{audit.folder} has no {needs.get(compare, 'edits to rate')}. Choose another comparison with `--compare`."
    )


Place = tuple[str, str, str, str, int]
"""Portrait, prompt, arm, editor, seed."""


def _edits(audit: Audit, store: Store) -> Iterator[tuple[Place, Made]]:
    for named in audit.editors:
        requests = (request for request in audit.requests(named) if len(request.portraits) == 1)
        while chunk := list(itertools.islice(requests, _CHUNK)):
            stored = store.edits([request.key for request in chunk])
            for request in chunk:
                row = stored.get(request.key)
                if row and row.image:
                    arm = str(request.arm)
                    place = (request.portraits[0].id, request.prompt.id, arm, named.name, request.seed)
                    yield place, Made(edit=request.key, image=row.image, editor=named.name, arm=arm)


def _grouped(
    audit: Audit, edits: Mapping[Place, Made], way: str
) -> Iterator[tuple[Portrait, Prompt, tuple[Made, ...]]]:
    seeds = {named.name: named.seeds for named in audit.editors}
    names = list(seeds)
    for portrait, prompt in itertools.product(audit.portraits, audit.prompts):

        def made(arm: Arm, editor: str, seed: int, who: str = portrait.id, what: str = prompt.id) -> Made | None:
            return edits.get((who, what, str(arm), editor, seed))

        match way:
            case "arms":
                pairs = [
                    (made(Arm.BASELINE, editor, seed), made(Arm.FEATURE, editor, seed))
                    for editor in names
                    for seed in seeds[editor]
                ]
            case "editors":
                # Editors may count their seeds differently; the first of one goes with the first of the other.
                pairs = [
                    (made(Arm.BASELINE, one, a), made(Arm.BASELINE, other, b))
                    for one, other in itertools.combinations(names, 2)
                    for a, b in zip(seeds[one], seeds[other], strict=False)
                ]
            case _:
                pairs = [(made(arm, one, seed),) for arm in audit.config.arms for one in names for seed in seeds[one]]
        for pair in pairs:
            outputs = tuple(each for each in pair if each is not None)
            if len(outputs) == len(pair):
                yield portrait, prompt, outputs


def _urgent(audit: Audit, store: Store, first: First) -> set[str]:
    """Edits that the judges dispute, or of which one reports a failure."""
    if first == "nothing":
        return set()
    gathered = results.gather(audit, store)
    if first == "disputed":
        return {gathered.edits.keys[dispute.row] for dispute in disputes.between(audit, gathered)}
    marked = np.zeros(len(gathered.edits), dtype=bool)
    known = rubric.load()
    for each, rate in itertools.product(disputes.raters(audit, gathered), (known.rates[name] for name in _FINDINGS)):
        if each.axis == rate.axis:
            marked |= np.array([bool(rate.holds(float(value))) for value in each.value])
    return {gathered.edits.keys[int(index)] for index in np.flatnonzero(marked)}
