"""A run's rows, gathered into the columns that estimates are computed from.

Some numbers no judge can tell from one edit, because they need the same editor's other edits:

- `identity_drift` is in units of the editor's own floor, where the no-op arm shows one above the instrument's noise.
- `skip` says whether an edit was skipped: within what the editor changes when asked for nothing, in area and in colour,
  while the same prompt changed most of the others. It needs no idea of what the prompt means.
"""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from enum import StrEnum
from typing import TYPE_CHECKING, Literal

import numpy as np
from numpy.typing import NDArray

from stillme.audit.design import Design
from stillme.core import rubric
from stillme.core.rubric import load_limits
from stillme.core.types import Arm, Json, Prompt
from stillme.estimates.behaviour import Repeats
from stillme.estimates.rows import Edits, EditState, JudgeKind, RatingState, Scores
from stillme.judges.ensemble import Combined, combine

if TYPE_CHECKING:
    from stillme.runs.run import RecordedRun, Row

_CHUNK = 500
SOURCE_SKIN = "source_skin_l"
"""The axis that says how light a portrait's skin is, not what an edit did: it decides whose licence counts."""
_STATES: Mapping[str, EditState] = {
    "edited": EditState.EDITED,
    "refused": EditState.REFUSED,
    "failed": EditState.FAILED,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Results:
    """A run's requests as columns, with what each judge said of them."""

    edits: Edits
    scores: tuple[Scores, ...]
    truths: tuple[Scores, ...]
    """What known-answer editors planted, in the shape of a judge's scores."""
    repeats: tuple[Repeats, ...] = ()
    """Every single answer of the models that were asked more than once about each edit."""
    people: tuple[Scores, ...] = ()
    """People's single ratings: one column for each place among an edit's raters."""
    chances: NDArray[np.float64] | None = None
    """With which chance each edit was drawn for people, 0 where that is not known; None where all had the same."""
    draws: Mapping[str, frozenset[str]] = field(default_factory=dict[str, frozenset[str]])
    """By judge that is people: how studies chose the edits, `SampleKind` values; empty where that is not recorded."""
    tones: Mapping[str, str] = field(default_factory=dict[str, str])
    """The skin-tone group of each portrait, by id, where an instrument measured it."""


def gather(run: RecordedRun) -> Results:
    """Read the rows of what the run asks; rows of earlier configurations stay out."""
    with run.store.snapshot():
        return _gather(run)


def _gather(run: RecordedRun) -> Results:
    table = _Table(run)
    rows = run.rows()
    while chunk := list(itertools.islice(rows, _CHUNK)):
        places: dict[str, tuple[int, str, int]] = {}
        for row in chunk:
            index = table.add(row)
            if row.image:
                for judge in run.judges:
                    places.update(
                        (key, (index, judge.name, epoch))
                        for key, epoch in judge.assessments(row.request.key, row.image)
                    )
        for key, axis, outcome, score in run.store.judgements(list(places)):
            table.rate(*places[key], axis, outcome, score)
    results = table.results()
    return _with_draws(run, results)


def _with_draws(run: RecordedRun, results: Results) -> Results:
    """How studies chose the edits. An edit counts in each study that drew it, by the chance there."""
    drawn: dict[str, dict[str, float]] = {}
    draws: dict[str, set[str]] = {}
    for judge in run.judges:
        if judge.capabilities.kind == "person":
            for edit, _, said in run.store.answers_by(judge.spec.key):
                draws.setdefault(judge.name, set()).add(str(said.get("draw", "")))
                known, chance = drawn.setdefault(edit, {}), said.get("chance")
                if isinstance(chance, int | float) and 0 < chance <= 1 and said.get("draw") != SampleKind.OUTCOME:
                    known[str(said.get("study", ""))] = float(chance)
    results = replace(results, draws={judge: frozenset(kinds) for judge, kinds in draws.items()})
    weights = {edit: sum(1 / chance for chance in known.values()) for edit, known in drawn.items()}
    uneven = any({SampleKind.OUTCOME, SampleKind.INFORMATIVE} & kinds for kinds in draws.values())
    # Rounded: chances of equal groups may differ in the last bit.
    if len({round(weight, 9) for weight in weights.values()}) <= 1 and not uneven:
        return results
    chances = [1 / weight if (weight := weights.get(key, 0.0)) else 0.0 for key in results.edits.keys]
    return replace(results, chances=np.array(chances))


class SampleKind(StrEnum):
    """How a study chose the edits that people rated."""

    ALL = "all"
    STRATIFIED = "stratified"
    """At random, evenly over prompts, groups and editors."""
    INFORMATIVE = "informative"
    """At random with known chances, larger where models disagree."""
    OUTCOME = "outcome"
    """By what judges said of them."""


def chosen_how(draws: Collection[str]) -> tuple[str, bool]:
    """How the edits were chosen, in words, and whether they stand for those that were not."""
    if SampleKind.OUTCOME in draws:
        return "chosen by their outcome, so they do not stand for the others", False
    if not draws or not set(draws) <= {kind.value for kind in SampleKind}:
        return "and how they were chosen is not recorded", False
    return "drawn at random" + (" with known chances" if SampleKind.INFORMATIVE in draws else ""), True


def joined(one: Results, other: Results) -> Results:
    """Two audits by the same judges, as if they were one."""
    a, b = one.edits, other.edits
    edits = Edits(
        keys=[*a.keys, *b.keys],
        portrait=np.concatenate([a.portrait, b.portrait + len(a.portraits)]).astype(np.int32),
        prompt=np.concatenate([a.prompt, b.prompt + len(a.prompts)]).astype(np.int32),
        editor=np.concatenate([a.editor, b.editor + len(a.editors)]).astype(np.int32),
        arm=np.concatenate([a.arm, b.arm + len(a.arms)]).astype(np.int32),
        state=np.concatenate([a.state, b.state]),
        image=[*a.image, *b.image],
        portraits=(*a.portraits, *b.portraits),
        prompts=(*a.prompts, *b.prompts),
        editors=(*a.editors, *b.editors),
        arms=(*a.arms, *b.arms),
        second=_one_after_the_other(a, b, "second", -1, len(a.portraits)),
        matching=_one_after_the_other(a, b, "matching", 0),
        seed=_one_after_the_other(a, b, "seed", 0),
        has_states=a.has_states and b.has_states,
    )
    return Results(
        edits=edits,
        scores=_joined_scores(one.scores, other.scores, len(a), len(b)),
        truths=_joined_scores(one.truths, other.truths, len(a), len(b)),
    )


def _one_after_the_other(
    a: Edits, b: Edits, column: Literal["second", "matching", "seed"], absent: int, shift: int = 0
) -> NDArray[np.int32] | None:
    """An optional column of both; rows of an audit without it hold `absent`."""
    first: NDArray[np.int32] | None = getattr(a, column)
    then: NDArray[np.int32] | None = getattr(b, column)
    if first is None and then is None:
        return None
    one = first if first is not None else np.full(len(a), absent, dtype=np.int32)
    other = np.where(then >= 0, then + shift, then) if then is not None else np.full(len(b), absent)
    return np.concatenate([one, other]).astype(np.int32)


def _joined_scores(first: Sequence[Scores], then: Sequence[Scores], before: int, after: int) -> tuple[Scores, ...]:
    """Scores of both, one after the other; where only one has them, the other's rows were never asked."""
    one, other = ({(score.judge, score.axis): score for score in scores} for scores in (first, then))
    return tuple(
        replace(
            known,
            value=np.concatenate(
                [
                    one[key].value if key in one else np.full(before, np.nan),
                    other[key].value if key in other else np.full(after, np.nan),
                ]
            ),
            state=np.concatenate(
                [
                    one[key].state if key in one else np.full(before, RatingState.MISSING),
                    other[key].state if key in other else np.full(after, RatingState.MISSING),
                ]
            ).astype(np.int32),
        )
        for key in dict.fromkeys([*one, *other])
        for known in [one.get(key) or other[key]]
    )


@dataclass(slots=True)
class _Codes:
    """One row of the columns, as codes."""

    portrait: int
    prompt: int
    editor: int
    arm: int
    state: int
    second: int
    matching: int
    seed: int


_COLUMNS = tuple(part.name for part in fields(_Codes))


class _Table:
    """Columns that grow row by row."""

    def __init__(self, run: RecordedRun) -> None:
        design = run.design
        self._design = design
        self._portraits = {portrait.id: code for code, portrait in enumerate(design.portraits)}
        prompts = {prompt.id: prompt for _, prompt in design.treatments}
        self._prompts: tuple[Prompt, ...] = tuple(prompts.values())
        self._prompt_codes = {name: code for code, name in enumerate(prompts)}
        self._editors = {editor.name: code for code, editor in enumerate(design.editors)}
        self._arms = {arm: code for code, arm in enumerate(design.arms)}
        self._total = run.request_count
        self._seeds: dict[int, int] = {}
        self._keys: list[str] = []
        self._images: list[str] = []
        self._codes = {name: np.zeros(self._total, dtype=np.int32) for name in _COLUMNS}
        # Partial axes are answered only where the judge can tell; their mean would be a mean over one outcome.
        self._sums = {
            (judge.name, axis): _Sums(self._total) for judge in design.judges for axis in judge.capabilities.axes
        }
        self._repeats = {
            (judge.name, axis): np.full((judge.asked, self._total), np.nan)
            for judge in design.judges
            for axis in judge.capabilities.axes
            if judge.capabilities.kind == "model" and judge.asked > 1
        }
        self._people = {
            (judge.name, axis): np.full((judge.asked, self._total), np.nan)
            for judge in design.judges
            for axis in judge.capabilities.axes
            if judge.capabilities.kind == "person"
        }
        self._truths: dict[str, _Sums] = {}
        self._lightness: dict[int, list[float]] = {}

    def add(self, row: Row) -> int:
        request, edit = row.request, row.edit
        index = len(self._keys)
        self._keys.append(request.key)
        self._images.append(row.image)
        first, second = (*request.portraits, None)[:2]
        codes = _Codes(
            portrait=self._portraits[first or ""],
            prompt=self._prompt_codes[request.prompt],
            editor=self._editors[request.editor],
            arm=self._arms[request.arm],
            state=_state(row),
            second=self._portraits[second] if second is not None else -1,
            matching=request.expected_place,
            seed=self._seeds.setdefault(request.seed, len(self._seeds)),
        )
        for name in _COLUMNS:
            self._codes[name][index] = getattr(codes, name)
        for quantity, value in _numbers(edit.truth if edit else None):
            self._truths.setdefault(quantity, _Sums(self._total)).add(index, "rated", value)
        return index

    def rate(self, index: int, judge: str, epoch: int, axis: str, outcome: str, score: float | None) -> None:
        if axis == SOURCE_SKIN and score is not None:
            self._lightness.setdefault(int(self._codes["portrait"][index]), []).append(score)
        if (judge, axis) in self._sums:
            self._sums[judge, axis].add(index, outcome, score)
        answers = self._repeats.get((judge, axis), self._people.get((judge, axis)))
        if answers is not None and outcome == "rated" and score is not None:
            answers[epoch, index] = score

    def results(self) -> Results:
        codes, design = self._codes, self._design
        in_pairs = bool((codes["second"] >= 0).any())
        kinds: dict[str, JudgeKind] = {judge.name: judge.capabilities.kind for judge in design.judges}
        views = {judge.name: judge.capabilities.views for judge in design.judges}
        asked = {axis for _, axis in self._sums if _is_asked(axis, self._prompts, in_pairs)}
        scores = tuple(
            sums.scores(judge, axis, kinds[judge])
            for (judge, axis), sums in self._sums.items()
            if axis in asked or sums.is_answered
        )
        combined = design.analysis.combined
        # In the ensemble's own order: its first judge is the primary one.
        parts = sorted((part for part in scores if part.judge in combined), key=lambda part: combined.index(part.judge))
        edits = Edits(
            keys=self._keys,
            portrait=codes["portrait"],
            prompt=codes["prompt"],
            editor=codes["editor"],
            arm=codes["arm"],
            state=codes["state"],
            image=self._images,
            portraits=design.portraits,
            prompts=self._prompts,
            editors=tuple(self._editors),
            arms=tuple(str(arm) for arm in self._arms),
            second=codes["second"] if in_pairs else None,
            matching=codes["matching"] if in_pairs else None,
            seed=codes["seed"] if len(self._seeds) > 1 else None,
            has_states=bool(design.resolved.get("states", True)),
        )
        return Results(
            edits=edits,
            scores=(*derived(edits, scores), *_ensemble(parts, design.analysis.rule, ensemble_name(design))),
            truths=tuple(sums.scores("planted", quantity) for quantity, sums in self._truths.items()),
            tones={
                design.portraits[code].id: load_limits().group_of(float(np.median(lightness)))
                for code, lightness in self._lightness.items()
            },
            repeats=tuple(
                Repeats(judge=judge, axis=axis, views=views[judge], value=value)
                for (judge, axis), value in self._repeats.items()
                if axis in asked
            ),
            people=tuple(
                _column(f"{judge} {place}", axis, value)
                for (judge, axis), answers in self._people.items()
                if axis in asked
                for place, value in enumerate(answers, start=1)
                if not np.isnan(value).all()
            ),
        )


def _column(judge: str, axis: str, value: NDArray[np.float64]) -> Scores:
    state = np.where(np.isnan(value), RatingState.MISSING, RatingState.RATED).astype(np.int32)
    return Scores(judge=judge, axis=axis, value=value, state=state, kind="person")


def _state(row: Row) -> EditState:
    if row.edit is not None:
        return _STATES[row.edit.outcome]
    return EditState.WITHHELD if row.request.withheld and not row.request.waiting else EditState.MISSING


def _is_asked(axis: str, prompts: Sequence[Prompt], in_pairs: bool) -> bool:
    """Whether any request is about the axis. Without role or aging prompts, nothing is missing on theirs."""
    known = rubric.load().axes.get(axis)
    if axis == "role_target":
        return in_pairs
    return known is None or not known.only or any(prompt.subcategory == known.only for prompt in prompts)


class _Sums:
    """One judge on one axis: the mean over epochs, and the worst state that still has a meaning."""

    def __init__(self, total: int) -> None:
        self._sum = np.zeros(total)
        self._count = np.zeros(total, dtype=np.int32)
        self._state = np.full(total, RatingState.MISSING, dtype=np.int32)

    def add(self, index: int, outcome: str, score: float | None) -> None:
        if outcome == "rated" and score is not None:
            self._sum[index] += score
            self._count[index] += 1
            self._state[index] = RatingState.RATED
        elif self._state[index] != RatingState.RATED:
            self._state[index] = RatingState.ABSTAINED if outcome == "abstained" else RatingState.FAILED

    @property
    def is_answered(self) -> bool:
        """Whether the judge said anything on this axis."""
        return bool((self._state != RatingState.MISSING).any())

    def scores(self, judge: str, axis: str, kind: JudgeKind = "model") -> Scores:
        value = np.full(len(self._sum), np.nan)
        np.divide(self._sum, self._count, out=value, where=self._count > 0)
        return Scores(judge=judge, axis=axis, value=value, state=self._state, kind=kind)


def _ensemble(scores: Sequence[Scores], rule: str, name: str) -> Iterator[Scores]:
    """One more judge: these combined, on every scale or choice that several of them answer."""
    for axis in dict.fromkeys(score.axis for score in scores):
        parts = [score for score in scores if score.axis == axis]
        known = rubric.load().axes.get(axis)
        if len(parts) > 1 and known and known.is_asked:
            yield combined(parts, rule, axis, name=name)


def ensemble_name(design: Design) -> str:
    """What a run's combined judges are called: by the rule, and whether blind and unblinded ones are mixed."""
    unblinded = {judge.unblinded for judge in design.judges if judge.name in design.analysis.combined}
    return f"ensemble ({design.analysis.rule}{', blind and unblinded' if len(unblinded) > 1 else ''})"


def combined(parts: Sequence[Scores], rule: str, axis: str, *, name: str = "ensemble") -> Scores:
    """Several judges of one axis as one, by a named rule; the primary judge comes first.

    Only edits that all of them rated count. Judges differ in strictness, so an ensemble of those that answered would
    turn a judge's abstentions on one group into a gap.
    """
    # A judge that never answered on this axis is no part of the ensemble there.
    speaking = [part for part in parts if not np.isnan(part.value).all()] or parts[:1]
    given = np.stack([part.value for part in speaking])
    states = np.stack([part.state for part in speaking])
    complete = ~np.isnan(given).any(axis=0)
    value = np.full(given.shape[1], np.nan)
    state = _missing_state(states)
    # Few combinations of scores occur, so each is combined once.
    columns, place = np.unique(given[:, complete], axis=1, return_inverse=True)
    combinations = [combine([float(score) for score in column], rule=rule, axis=axis) for column in columns.T]
    score = np.array([one.score if isinstance(one, Combined) else np.nan for one in combinations], dtype=np.float64)
    if len(score):
        value[complete] = score[place.reshape(-1)]
        state[complete] = np.where(np.isnan(value[complete]), RatingState.ABSTAINED, RatingState.RATED)
    return Scores(judge=name, axis=axis, value=value, state=state, kind="ensemble")


def _missing_state(states: NDArray[np.int32]) -> NDArray[np.int32]:
    """Why an edit has no score by all judges: work that is still to do first, then failures, then abstentions."""
    state = np.full(states.shape[1], RatingState.ABSTAINED, dtype=np.int32)
    for reason in (RatingState.FAILED, RatingState.MISSING):
        state[(states == reason).any(axis=0)] = reason
    return state


def _numbers(truth: Mapping[str, Json] | None) -> Iterator[tuple[str, float]]:
    for name, value in (truth or {}).items():
        if isinstance(value, int | float) and not isinstance(value, bool):
            yield name, float(value)


Values = NDArray[np.float64]

DRIFT = "identity_drift"
AREA = "changed_area"
COLOUR = "mean_delta_e"
SKIP = "skip"
MADE, SKIPPED = 1.0, 2.0
"""The answers of `skip`."""

_FLOOR = 0.95
"""The quantile of an editor's no-op edits beyond which a face drifted, or an edit was made."""
_FEWEST_FLOOR = 10
_LEAST_AREA = 0.02
"""The share of a picture up to which nothing was made, where no no-op arm shows the editor's own."""
_LEAST_COLOUR = 1.0
"""Likewise the mean ΔE00. A faint filter over a whole picture changes no spot visibly, and is no skipped edit."""
_FEWEST_OTHERS = 8
"""On whom else a prompt must have been tried before one person can be compared with them."""
_MOST_OTHERS = 0.6
"""The share of the others whose edit was made, before its absence means anything."""


def derived(edits: Edits, scores: Sequence[Scores]) -> tuple[Scores, ...]:
    """The scores, with those added or adjusted that other edits decide."""
    adjusted = tuple(_above_floor(edits, score) if score.axis == DRIFT else score for score in scores)
    return (*adjusted, *_skips(edits, scores))


def _above_floor(edits: Edits, score: Scores) -> Scores:
    """Drift in units of the larger of two: the instrument's noise, and what the editor does when asked for nothing."""
    if Arm.NOOP not in edits.arms:
        return score
    value = score.value.copy()
    idle = edits.arm == edits.arms.index(Arm.NOOP)
    for editor in range(len(edits.editors)):
        own = edits.editor == editor
        shown = value[own & idle & ~np.isnan(value)]
        if len(shown) >= _FEWEST_FLOOR:
            value[own & ~idle] /= max(1.0, float(np.quantile(shown, _FLOOR)))
    return replace(score, value=value)


def _skips(edits: Edits, scores: Sequence[Scores]) -> Iterator[Scores]:
    """For every judge that measures how much changed, one more axis."""
    for area in (score for score in scores if score.axis == AREA):
        within = _within_floor(edits, area, _LEAST_AREA)
        for colour in (score for score in scores if (score.judge, score.axis) == (area.judge, COLOUR)):
            within &= _within_floor(edits, colour, _LEAST_COLOUR)
        answer = np.full(len(edits), np.nan)
        for cell in _cells(edits):
            given = cell[~np.isnan(area.value[cell])]
            others = len(set(edits.portrait[given].tolist())) - 1
            made = np.count_nonzero(~within[given])
            if others >= _FEWEST_OTHERS and made >= _MOST_OTHERS * (len(given) - 1):
                answer[given] = np.where(within[given], SKIPPED, MADE)
        silent = np.where(area.state == RatingState.RATED, RatingState.ABSTAINED, area.state)
        state = np.where(np.isnan(answer), silent, RatingState.RATED).astype(np.int32)
        yield Scores(judge=area.judge, axis=SKIP, value=answer, state=state, kind=area.kind)


def _within_floor(edits: Edits, score: Scores, least: float) -> NDArray[np.bool_]:
    """Rows that changed no more than their editor does when asked for nothing; without enough such edits, `least`."""
    floor = np.full(len(edits.editors), least)
    if Arm.NOOP in edits.arms:
        idle = (edits.arm == edits.arms.index(Arm.NOOP)) & ~np.isnan(score.value)
        for editor in range(len(edits.editors)):
            shown = score.value[idle & (edits.editor == editor)]
            if len(shown) >= _FEWEST_FLOOR:
                floor[editor] = float(np.quantile(shown, _FLOOR))
    with np.errstate(invalid="ignore"):
        return score.value <= floor[edits.editor]


def _cells(edits: Edits) -> Iterator[NDArray[np.intp]]:
    """The rows of one prompt under one editor and arm."""
    codes = np.stack([edits.editor, edits.arm, edits.prompt], axis=1)
    cell = np.unique(codes, axis=0, return_inverse=True)[1].reshape(-1)  # numpy 2.0 keeps both axes
    order = np.argsort(cell, kind="stable")
    starts = np.flatnonzero(np.diff(cell[order], prepend=-1))
    for rows in np.split(order, starts[1:]):
        if len(rows) and edits.arms[edits.arm[rows[0]]] != Arm.NOOP:
            yield rows
