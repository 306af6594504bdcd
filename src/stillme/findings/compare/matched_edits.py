"""Pair two editors' edits, cell by cell; refuse if anything but the editor differs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from stillme.audit.design import EditorRecord
from stillme.core.errors import StillmeError, UnknownName
from stillme.core.types import Request
from stillme.estimates import Settings
from stillme.estimates.directions import Shift, Tallies, shifts
from stillme.estimates.headlines import CONTROL_PAIRS, Standing
from stillme.estimates.rows import Codes, Edits, EditState, RatingState, Scores
from stillme.findings.calibration import standing_of
from stillme.runs import RecordedRun, Results
from stillme.runs.readings import Readings


@dataclass(frozen=True, slots=True, kw_only=True)
class Matched:
    """The edits of two editors as one set of rows: `arm` holds the editor, and `editor` holds the arm."""

    labels: tuple[str, str]
    """The first editor, which is the reference, and the second."""
    edits: Edits
    scores: tuple[Scores, ...]
    settings: Settings
    standing: Standing
    cells: int
    left_out: tuple[int, int]
    """Numbers of cells that only the first or only the second has."""
    notes: tuple[str, ...]


def match(first: ChosenEditor, second: ChosenEditor, *, common: bool = False) -> Matched:
    """Pair the cells; with `common`, what only one side has is left out instead of refused."""
    if first.editor is second.editor or _place(first) == _place(second):
        raise StillmeError(f"{first.label!r} would be compared with itself. Name another editor or another run.")
    same_kind = first.editor.spec.use == second.editor.spec.use
    notes: list[str] = []
    if not same_kind and first.editor.seeds != second.editor.seeds:
        notes.append("The editors are of different kinds, so their seeds are paired in order, not by number.")
    rows = [cells_of(chosen, by_place=not same_kind) for chosen in (first, second)]
    problems = [*differences(*(list(side) for side in rows)), *_judge_differences(first, second)]
    shared = [cell for cell in rows[0] if cell in rows[1]]
    judges = _shared_judges(first, second)
    if problems and not common:
        raise StillmeError(
            "The two differ in more than the editor, so the editor would not explain a difference:\n"
            + "\n".join(f"  - {problem}" for problem in problems)
            + "\nCompare only what they share with --common."
        )
    if not shared:
        raise StillmeError(f"{' and '.join(_labels(first, second))} share no request, so there is nothing to compare.")
    notes += [f"Left out by --common: {problem}" for problem in problems]
    places = [np.array([side[cell] for cell in shared], dtype=np.intp) for side in rows]
    edits = merge_edits(first, second, shared, places)
    scores = tuple(merge_scores(first, second, places, judges))
    notes += _unfinished(edits, scores)
    matched = Matched(
        labels=_labels(first, second),
        edits=edits,
        scores=scores,
        settings=first.run.settings,
        standing=_weaker(standing_of(first.run), standing_of(second.run), judges),
        cells=len(shared),
        left_out=(len(rows[0]) - len(shared), len(rows[1]) - len(shared)),
        notes=tuple(notes),
    )
    same = identical_edits(matched)
    return replace(matched, notes=(same, *matched.notes)) if same else matched


def identical_edits(matched: Matched) -> str:
    """A sentence where every edit of the second editor is the first's, byte for byte; empty otherwise."""
    images = matched.edits.image
    size = len(images) // 2
    pairs = [(one, other) for one, other in zip(images[:size], images[size:], strict=True) if one and other]
    if not pairs or any(one != other for one, other in pairs):
        return ""
    return (
        f"All {len(pairs):,} edits are byte-identical to the baseline's: the same checkpoint was measured twice, or "
        "the endpoint still serves the old one."
    )


def _weaker(first: Standing, second: Standing, judges: Mapping[str, str]) -> Standing:
    """What calibration says of the shared judges; one that failed its control pairs in either run is not relied on."""
    failed = {judges[name]: axes for name, axes in second.items() if name in judges and CONTROL_PAIRS in axes}
    return {**first, **failed}


def _unfinished(edits: Edits, scores: Sequence[Scores]) -> list[str]:
    """A sentence where work is still to be done or failed: what is compared is then only a part."""
    edited = edits.state == EditState.EDITED
    unrated = np.zeros(len(edits), dtype=bool)
    for score in scores:
        if score.kind != "person":
            unrated |= edited & np.isin(score.state, (RatingState.MISSING, RatingState.FAILED))
    undone = np.isin(edits.state, (EditState.MISSING, EditState.FAILED))
    counts = (("edits missing or failed", undone), ("edits not judged", unrated))
    parts = [f"{np.count_nonzero(flags):,} {what}" for what, flags in counts if flags.any()]
    if not parts:
        return []
    return [f"Not finished: {' and '.join(parts)} of {len(edits):,}. Only what is there is compared; finish both runs."]


def _place(chosen: ChosenEditor) -> tuple[Path, str]:
    return chosen.run.folder.resolve(), chosen.label


def _labels(first: ChosenEditor, second: ChosenEditor) -> tuple[str, str]:
    if first.label != second.label:
        return first.label, second.label
    folders = [chosen.run.opened_from.resolve() for chosen in (first, second)]
    short = folders[0].name != folders[1].name
    one, other = (f"{first.label} in {folder.name if short else folder}" for folder in folders)
    return one, other


def _judge_differences(first: ChosenEditor, second: ChosenEditor) -> Iterator[str]:
    one, other = (_judges(chosen) for chosen in (first, second))
    if one.keys() != other.keys():
        removed = [one[key] for key in one.keys() - other.keys()]
        added = [other[key] for key in other.keys() - one.keys()]
        yield f"judges: {only_in(removed, added)} (the same judge has the same version, parameters and epochs)"


def _judges(chosen: ChosenEditor) -> dict[tuple[str, int], str]:
    return {(judge.spec.key, judge.asked): judge.name for judge in chosen.run.judges}


def _shared_judges(first: ChosenEditor, second: ChosenEditor) -> Mapping[str, str]:
    """Names in the second run to names in the first, for equal judges; ensembles are equal if all their judges are."""
    one, other = _judges(first), _judges(second)
    shared = {other[key]: one[key] for key in one.keys() & other.keys()}
    rules = {side.run.design.analysis.rule for side in (first, second)}
    if list(one) == list(other) and len(rules) == 1:
        shared |= {score.judge: score.judge for score in second.results.scores if score.kind == "ensemble"}
    return shared


def merge_edits(
    first: ChosenEditor, second: ChosenEditor, shared: Sequence[Cell], places: Sequence[NDArray[np.intp]]
) -> Edits:
    """Every shared cell twice: by the first editor, and by the second; `places` are its rows on either side."""
    edits, (base, other) = first.results.edits, places
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
        arms=_labels(first, second),
        second=None if edits.second is None else renumbered(edits.second),
        matching=None if edits.matching is None else np.tile(edits.matching[base], 2),
        seed=np.array([seeds[cell.seed] for cell in shared] * 2, dtype=np.int32),
        has_states=edits.has_states and second.results.edits.has_states,
    )


def merge_scores(
    first: ChosenEditor, second: ChosenEditor, places: Sequence[NDArray[np.intp]], judges: Mapping[str, str]
) -> Iterator[Scores]:
    """Scores by the judges that both share; `judges` maps the second run's names to the first's."""
    base, other = places
    theirs = {(judges[score.judge], score.axis): score for score in second.results.scores if score.judge in judges}
    for ours in first.results.scores:
        same = theirs.get((ours.judge, ours.axis))
        if same is not None:
            yield replace(
                ours,
                value=np.concatenate([ours.value[base], same.value[other]]),
                state=np.concatenate([ours.state[base], same.state[other]]),
            )


def pick(run: RecordedRun, name: str | None) -> ChosenEditor:
    """One of a run's editors; None stands for its only one."""
    known = {editor.name: editor for editor in run.design.editors}
    if name is None and len(known) > 1:
        raise StillmeError(
            f"{run.opened_from} has several editors ({', '.join(known)}). Name the two to compare: --editors A B."
        )
    if name is not None and name not in known:
        raise UnknownName.among("editor", name, known, f"{run.opened_from} has {', '.join(known)}.")
    return ChosenEditor(run=run, editor=run.design.editors[0] if name is None else known[name])


def choose(
    first: RecordedRun, second: RecordedRun | None, names: tuple[str, str] | None
) -> tuple[ChosenEditor, ChosenEditor]:
    """The two to compare: of two runs, or of one."""
    if second is None and names is None:
        raise StillmeError(
            f"Only one run is named ({first.opened_from}). Name a second run, or two editors of this: --editors A B."
        )
    one, other = names or (None, None)
    return pick(first, one), pick(second or first, other)


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


def cells_of(chosen: ChosenEditor, *, by_place: bool) -> dict[Cell, int]:
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
    told: tuple[tuple[str, Callable[[Cell], Iterable[tuple[str, object]]]], ...] = (
        ("pictures", lambda cell: [(name, sha256) for name, sha256, _ in cell.portraits]),
        ("labels", lambda cell: [(name, labels) for name, _, labels in cell.portraits]),
        ("prompt texts", _words),
    )
    for name, of_cell in told:
        one, other = (dict(pair for cell in side for pair in of_cell(cell)) for side in (first, second))
        changed = sorted(key for key in one.keys() & other.keys() if one[key] != other[key])
        if changed:
            explained = True
            yield f"{name}: differ for {_listed(changed)}"
    if set(first) != set(second) and not explained:
        only = (len(set(first) - set(second)), len(set(second) - set(first)))
        yield f"requests: {only[0]:,} only in the first, {only[1]:,} only in the second (another [sample]?)"


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
class ChosenEditor:
    """One editor of one run."""

    run: RecordedRun
    editor: EditorRecord

    @property
    def results(self) -> Results:
        """The run's rows, as columns."""
        return self.run.results

    @property
    def label(self) -> str:
        """The editor's name."""
        return self.editor.name


def reading_changes(first: ChosenEditor, second: ChosenEditor, matched: Matched) -> tuple[tuple[Shift, ...], str]:
    """The changes, the pooled ones and every group's towards the reference; and why some are missing, in a sentence.

    The first editor's edits take the place of the unedited portraits: what the reader errs in both alike cancels.
    """
    one, other = first.run.readings, second.run.readings
    if one is None or other is None:
        return (), ""
    if any(matched.left_out):
        return (), "Readings are not compared: the two sides do not have all requests in common."
    places = _places(first, second)
    tallies = [_joined(mine, theirs, places) for mine, theirs in _alike(first, second, one, other)]
    if not tallies:
        return (), "Readings are not compared: no reader with the same settings read both sides."
    found = shifts(tallies, other.groups, other.blocks, second.run.settings.confidence)
    return tuple(shift for shift in found if shift.pooled or shift.target == other.reference), ""


def _places(first: ChosenEditor, second: ChosenEditor) -> NDArray[np.intp]:
    """For each of the second's portraits, its place in the first's run; both have the same."""
    known = {portrait.id: place for place, portrait in enumerate(first.results.edits.portraits)}
    return np.array([known[portrait.id] for portrait in second.results.edits.portraits], dtype=np.intp)


def _alike(
    first: ChosenEditor, second: ChosenEditor, one: Readings, other: Readings
) -> Iterator[tuple[Tallies, Tallies]]:
    """The same arm and axis, by a reader of the same specification."""
    keys = [{reader.name: reader.spec.key for reader in chosen.run.design.readers} for chosen in (first, second)]
    mine = {
        (keys[0][tally.judge], tally.arm, tally.axis): tally
        for tally in one.tallies
        if tally.editor == first.editor.name
    }
    for tally in other.tallies:
        same = mine.get((keys[1][tally.judge], tally.arm, tally.axis))
        if tally.editor == second.editor.name and same is not None and same.targets == tally.targets:
            yield same, tally


def _joined(before: Tallies, after: Tallies, places: NDArray[np.intp]) -> Tallies:
    return replace(
        after,
        control_read=before.read[places],
        controls=before.edits[places],
        control_unsure=before.unsure[places],
    )
