"""What a run offers to be rated: outputs that differ in one thing, or scenes of two people."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from statistics import fmean
from typing import Literal

import numpy as np

from stillme import rubric
from stillme.errors import StillmeError
from stillme.results import Run, disputes
from stillme.study.sampling import Candidate, EditedOutput
from stillme.types import Arm, Portrait, Prompt

Compare = Literal["auto", "arms", "editors", "none", "roles"]
First = Literal["nothing", "disputed", "flagged"]
Choose = Literal["random", "informative"]

_FINDINGS = ("soft_erasure", "skin_lightened", "skin_darkened", "race_changed", "gender_changed")
"""Rates whose cases count as flagged."""


def candidates(run: Run, compare: Compare, first: First, choose: Choose = "random") -> tuple[str, list[Candidate]]:
    """The comparison that was made, and every item it offers."""
    edits = dict(_edits(run))
    if not edits:
        raise StillmeError(
            f"{run.folder} has no edited pictures yet. `stillme run {run.folder} --only edit` makes them."
        )
    urgent = _urgent(run, first)
    apart = _disagreements(run) if choose == "informative" else {}
    ways = ("arms", "editors", "none", "roles") if compare == "auto" else (compare,)
    for way in ways:
        offered = [
            Candidate(
                portrait=portrait.id,
                second=second.id if second else "",
                groups={factor: portrait.attributes.get(factor, "") for factor in run.design.factors},
                prompt=prompt,
                outputs=outputs,
                urgent=any(made.edit in urgent for made in outputs),
                apart=_mean([apart[made.edit] for made in outputs if made.edit in apart]),
            )
            for portrait, second, prompt, outputs in _offers(run, edits, way)
        ]
        if offered and way == "roles" and choose == "informative":
            raise StillmeError(
                "Who of two people was drawn is no score that people's answers correct; leave out --choose informative."
            )
        if offered:
            return way, offered
    needs = {
        "arms": "edits of one request in the arms `baseline` and `feature`",
        "editors": "two editors on one portrait and prompt",
        "none": "edits of one portrait",
        "roles": "edits of two people in one request",
    }
    raise StillmeError(
        f"{run.folder} has no {needs.get(compare, 'edits to rate')}. Choose another comparison with `--compare`."
    )


Place = tuple[tuple[str, ...], str, str, str, int]
"""Portraits, prompt, arm, editor, seed."""
Offer = tuple[Portrait, Portrait | None, Prompt, tuple[EditedOutput, ...]]
"""Who is shown, the second person if there is one, what was asked, and what came of it."""


def _edits(run: Run) -> Iterator[tuple[Place, EditedOutput]]:
    for row in run.rows():
        request = row.request
        if row.image:
            place = (tuple(request.portraits), request.prompt, str(request.arm), request.editor, request.seed)
            yield place, EditedOutput(edit=request.key, image=row.image, editor=request.editor, arm=str(request.arm))


def _offers(run: Run, edits: Mapping[Place, EditedOutput], way: str) -> Iterator[Offer]:
    return _scenes(run, edits) if way == "roles" else _grouped(run, edits, way)


def _scenes(run: Run, edits: Mapping[Place, EditedOutput]) -> Iterator[Offer]:
    """Every edit of two people, each by itself."""
    portraits = run.design.portrait_by_id
    prompts = {prompt.id: prompt for _, prompt in run.design.treatments}
    for (people, prompt, *_), output in edits.items():
        if len(people) == 2:
            yield portraits[people[0]], portraits[people[1]], prompts[prompt], (output,)


def _grouped(run: Run, edits: Mapping[Place, EditedOutput], way: str) -> Iterator[Offer]:
    seeds = {editor.name: editor.seeds for editor in run.design.editors}
    names = list(seeds)
    for portrait, prompt in itertools.product(run.design.portraits, run.design.prompts):

        def made(
            arm: Arm, editor: str, seed: int, who: str = portrait.id, what: str = prompt.id
        ) -> EditedOutput | None:
            return edits.get(((who,), what, str(arm), editor, seed))

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
                pairs = [(made(arm, one, seed),) for arm in run.design.arms for one in names for seed in seeds[one]]
        for pair in pairs:
            outputs = tuple(output for output in pair if output is not None)
            if len(outputs) == len(pair):
                yield portrait, None, prompt, outputs


def _urgent(run: Run, first: First) -> set[str]:
    """Edits that the judges dispute, or of which one reports a failure."""
    if first == "nothing":
        return set()
    keys = run.results.edits.keys
    if first == "disputed":
        return {keys[dispute.row] for dispute in disputes.between(run)}
    marked = np.zeros(len(keys), dtype=bool)
    rates = rubric.load().rates
    for score, rate in itertools.product(disputes.raters(run), (rates[name] for name in _FINDINGS)):
        if score.axis == rate.axis:
            marked |= np.array([bool(rate.holds(float(value))) for value in score.value])
    return {keys[int(index)] for index in np.flatnonzero(marked)}


def _disagreements(run: Run) -> dict[str, float]:
    """By edit: how far models' answers are apart."""
    apart = disputes.disagreements(run)
    known: list[int] = np.flatnonzero(~np.isnan(apart)).tolist()
    if not known:
        raise StillmeError(
            f"--choose informative needs two judges in {run.folder} that rated the same edits, or one that was asked "
            "more than once (`epochs`). Add one to audit.toml, or leave it out."
        )
    return {run.results.edits.keys[row]: float(apart[row]) for row in known}


def _mean(values: Sequence[float]) -> float:
    return fmean(values) if values else math.nan
