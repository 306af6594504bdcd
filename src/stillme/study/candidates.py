"""What a run offers to be rated: outputs that differ in one thing, or scenes of two people."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal, TypeVar

import numpy as np
from numpy.typing import NDArray

from stillme.core.errors import StillmeError
from stillme.core.types import Arm, Portrait, Prompt
from stillme.estimates.people import draw_unequally
from stillme.runs import RecordedRun, behaviour
from stillme.study.items import Output

Codes = NDArray[np.int64]
T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class OfferedItem:
    """An item that could be drawn."""

    portrait: str
    groups: Mapping[str, str]
    prompt: Prompt
    outputs: tuple[Output, ...]
    """Not blinded yet."""
    second: str = ""
    """The other portrait of a request with two."""
    disputed: bool = False
    """Drawn before the others, because judges differ by more than a point."""
    apart: float = math.nan
    """How far models disagree about its outputs; NaN where that is not known."""
    chance: float | None = None
    """With which it was drawn, where chances are known."""

    @property
    def editors(self) -> str:
        """Who made the outputs."""
        return " + ".join(sorted({output.strata["editor"] for output in self.outputs}))


def draw(candidates: Sequence[OfferedItem], count: int, stream: np.random.Generator) -> list[OfferedItem]:
    """Pick `count` items: disputed ones first, then even over prompts, group cells, editors and portraits (Appendix H).

    No edit is in two items, or it would get more ratings than the others.
    """
    mixed = shuffled(candidates, stream)
    columns = [*_margins(mixed), _codes([candidate.portrait for candidate in mixed])]
    tier = np.array([0 if candidate.disputed else 1 for candidate in mixed], dtype=np.int64)
    sharing = _sharing(mixed)
    free = np.ones(len(mixed), dtype=bool)
    taken = [np.zeros(int(column.max(initial=0)) + 1, dtype=np.int64) for column in columns]
    picked: list[OfferedItem] = []
    while len(picked) < count and free.any():
        best = _least(free, [tier, *(counts[column] for counts, column in zip(taken, columns, strict=True))])
        picked.append(mixed[best])
        for counts, column in zip(taken, columns, strict=True):
            counts[column[best]] += 1
        for output in mixed[best].outputs:
            free[sharing[output.edit]] = False
    return picked


def with_chances(picked: Sequence[OfferedItem], offered: Sequence[OfferedItem]) -> list[OfferedItem]:
    """Each with the chance that an even draw gave it: every group and editor the same share, of a small one all.

    Without a chance where items share edits.
    """
    if any(len(places) > 1 for places in _sharing(offered).values()):
        return list(picked)
    kinds = [str((sorted(each.groups.items()), each.editors)) for each in offered]
    sizes = sorted(Counter(kinds).items(), key=lambda entry: entry[1])
    left, chances = float(len(picked)), dict[str, float]()
    for place, (kind, size) in enumerate(sizes):
        share = min(float(size), left / (len(sizes) - place))
        left -= share
        chances[kind] = share / size
    chance_of = {each.outputs[0].edit: chances[kind] for each, kind in zip(offered, kinds, strict=True)}
    return [replace(each, chance=chance_of[each.outputs[0].edit]) for each in picked]


def draw_informative(candidates: Sequence[OfferedItem], count: int, stream: np.random.Generator) -> list[OfferedItem]:
    """Pick `count` items, likelier where models disagree; the same share of every cell of groups, editor and arm."""
    if any(len(places) > 1 for places in _sharing(candidates).values()):
        raise StillmeError(
            "Items of more than two editors share edits, so the chance of an edit is not known. "
            "Use --choose informative with `--compare none`."
        )
    made = [sorted(tuple(output.strata.values()) for output in each.outputs) for each in candidates]
    strata = _codes([str((sorted(each.groups.items()), by)) for each, by in zip(candidates, made, strict=True)])
    apart = np.array([candidate.apart for candidate in candidates])
    chosen = draw_unequally(apart, strata.astype(np.intp), min(count, len(candidates)), stream)
    rows: list[int] = chosen.rows.tolist()
    return [replace(candidates[row], chance=float(chosen.chances[row])) for row in rows]


def shuffled(things: Sequence[T], stream: np.random.Generator) -> list[T]:
    """The same things in random order."""
    return [things[int(index)] for index in stream.permutation(len(things))]


def share_out(items: Sequence[OfferedItem], size: int, stream: np.random.Generator) -> list[int]:
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


def _margins(candidates: Sequence[OfferedItem]) -> list[Codes]:
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


def _sharing(candidates: Sequence[OfferedItem]) -> dict[str, list[int]]:
    """By edit, the candidates that show it."""
    sharing: dict[str, list[int]] = {}
    for index, candidate in enumerate(candidates):
        for output in candidate.outputs:
            sharing.setdefault(output.edit, []).append(index)
    return sharing


Compare = Literal["auto", "arms", "editors", "none", "roles"]
Choose = Literal["random", "informative", "disputed"]


def candidates(run: RecordedRun, compare: Compare, choose: Choose) -> tuple[str, list[OfferedItem]]:
    """The comparison that was made, and every item it offers."""
    edits = dict(_edits(run))
    if not edits:
        raise StillmeError(
            f"{run.folder} has no edited pictures yet. `stillme run {run.folder} --only edit` makes them."
        )
    found = behaviour.between(run) if choose == "disputed" else []
    disputed = {run.results.edits.keys[dispute.row] for dispute in found}
    apart = _disagreements(run) if choose == "informative" else {}
    ways = ("arms", "editors", "none", "roles") if compare == "auto" else (compare,)
    for way in ways:
        offers = _scenes(run, edits) if way == "roles" else _grouped(run, edits, way)
        offered = [
            OfferedItem(
                portrait=portrait.id,
                second=second.id if second else "",
                groups={factor: portrait.attributes.get(factor, "") for factor in run.design.factors},
                prompt=prompt,
                outputs=outputs,
                disputed=any(made.edit in disputed for made in outputs),
                apart=float(np.mean([apart[made.edit] for made in outputs if made.edit in apart] or [math.nan])),
            )
            for portrait, second, prompt, outputs in offers
        ]
        if offered and way == "roles" and choose == "informative":
            raise StillmeError(
                "Which of two people was drawn is not a score that ratings correct; leave out --choose informative."
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
Offer = tuple[Portrait, Portrait | None, Prompt, tuple[Output, ...]]
"""Who is shown, the second person if there is one, what was asked, and what came of it."""


def _edits(run: RecordedRun) -> Iterator[tuple[Place, Output]]:
    for row in run.rows():
        request = row.request
        if row.image:
            place = (tuple(request.portraits), request.prompt, str(request.arm), request.editor, request.seed)
            strata = {"editor": request.editor, "arm": str(request.arm)}
            yield place, Output(file="", edit=request.key, sha256=row.image, strata=strata)


def _scenes(run: RecordedRun, edits: Mapping[Place, Output]) -> Iterator[Offer]:
    """Every edit of two people, each by itself."""
    portraits = run.design.portrait_by_id
    prompts = {prompt.id: prompt for _, prompt in run.design.treatments}
    for (people, prompt, *_), output in edits.items():
        if len(people) == 2:
            yield portraits[people[0]], portraits[people[1]], prompts[prompt], (output,)


def _grouped(run: RecordedRun, edits: Mapping[Place, Output], way: str) -> Iterator[Offer]:
    seeds = {editor.name: editor.seeds for editor in run.design.editors}
    names = list(seeds)
    for portrait, prompt in itertools.product(run.design.portraits, run.design.prompts):

        def made(arm: Arm, editor: str, seed: int, who: str = portrait.id, what: str = prompt.id) -> Output | None:
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


def _disagreements(run: RecordedRun) -> dict[str, float]:
    """By edit: how far models' answers are apart."""
    apart = behaviour.disagreements(run)
    known: list[int] = np.flatnonzero(~np.isnan(apart)).tolist()
    if not known:
        raise StillmeError(
            f"--choose informative needs two judges in {run.folder} that rated the same edits, or one that was asked "
            "more than once (`epochs`). Add one to audit.toml, or leave it out."
        )
    return {run.results.edits.keys[row]: float(apart[row]) for row in known}
