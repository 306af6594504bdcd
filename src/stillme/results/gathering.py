"""An audit's rows, gathered into the columns that estimates are computed from."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from stillme import rubric
from stillme.audit import Audit, NamedJudge
from stillme.estimates import Settings
from stillme.estimates.rows import Edits, EditState, RatingState, Scores
from stillme.judges.ensemble import Combined, combine
from stillme.mitigation import require_paired
from stillme.store import Store, StoredEdit
from stillme.types import Arm, Json, Prompt, Request

_CHUNK = 500
_STATES: Mapping[str, EditState] = {
    "edited": EditState.EDITED,
    "refused": EditState.REFUSED,
    "failed": EditState.FAILED,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Results:
    """The audit's requests as columns, with what each judge said of them."""

    edits: Edits
    scores: tuple[Scores, ...]
    truths: tuple[Scores, ...]
    """What known-answer editors say they planted, in the shape of a judge's scores."""


def gather(audit: Audit, store: Store) -> Results:
    """Read the rows of this configuration; rows of earlier ones stay out."""
    table = _Table(audit)
    arms = _Arms()
    requests = ((index, request) for index, editor in enumerate(audit.editors) for request in audit.requests(editor))
    while chunk := list(itertools.islice(requests, _CHUNK)):
        stored = store.edits([request.key for _, request in chunk])
        places: dict[str, tuple[int, str]] = {}
        for editor, request in chunk:
            arms.hold(editor, request)
            row = table.add(editor, request, stored.get(request.key))
            if row.image:
                for named in audit.judges:
                    asked = audit.assessments(named, request, row.image)
                    places.update((key, (row.index, named.name)) for key, _ in asked)
        for key, axis, outcome, score in store.judgements(list(places)):
            index, judge = places[key]
            table.rate(index, judge, axis, outcome, score)
    for index, editor in enumerate(audit.editors):
        for request, lacking in audit.unasked(editor):
            table.add(index, request, None, EditState.MISSING if lacking.retryable else EditState.WITHHELD)
    return table.results()


def settings_of(loaded: Audit) -> Settings:
    """The audit's estimates section as the estimates room wants it."""
    section = loaded.config.estimates
    return Settings(
        factors=loaded.factors,
        reference=section.reference,
        confidence=section.confidence,
        replicates=section.replicates,
        seed=section.seed,
        prompts=section.prompts,
    )


class _Arms:
    """Holds the arms of one cell against each other: a paired comparison rests on their differing in nothing else."""

    def __init__(self) -> None:
        self._first: dict[tuple[int, str, str, int], Request] = {}
        self._portrait = ""

    def hold(self, editor: int, request: Request) -> None:
        """Raise `NotPaired` if a request differs from another arm's of its cell in more than the arm."""
        if request.arm is Arm.NOOP:
            return  # asks for something else, once a portrait
        # Requests come portrait by portrait, so no more than one portrait's are kept.
        if request.portraits[0].id != self._portrait:
            self._portrait = request.portraits[0].id
            self._first.clear()
        people = " ".join(portrait.id for portrait in request.portraits)
        first = self._first.setdefault((editor, people, request.prompt.id, request.seed), request)
        if first.arm is not request.arm:
            require_paired(first, request)


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
    )
    return Results(edits=edits, scores=_joined_scores(one.scores, other.scores), truths=())


def _one_after_the_other(
    a: Edits, b: Edits, column: Literal["second", "matching", "seed"], absent: int, shift: int = 0
) -> NDArray[np.int32] | None:
    """An optional column of both; where one audit has none, its rows hold what means that."""
    first: NDArray[np.int32] | None = getattr(a, column)
    then: NDArray[np.int32] | None = getattr(b, column)
    if first is None and then is None:
        return None
    one = first if first is not None else np.full(len(a), absent, dtype=np.int32)
    other = np.where(then >= 0, then + shift, then) if then is not None else np.full(len(b), absent)
    return np.concatenate([one, other]).astype(np.int32)


def _joined_scores(first: Sequence[Scores], then: Sequence[Scores]) -> tuple[Scores, ...]:
    second = {(each.judge, each.axis): each for each in then}
    return tuple(
        Scores(
            judge=each.judge,
            axis=each.axis,
            value=np.concatenate([each.value, second[each.judge, each.axis].value]),
            state=np.concatenate([each.state, second[each.judge, each.axis].state]),
        )
        for each in first
        if (each.judge, each.axis) in second
    )


@dataclass(frozen=True, slots=True)
class _Row:
    index: int
    image: str


class _Table:
    """Columns that grow row by row."""

    def __init__(self, audit: Audit) -> None:
        self._audit = audit
        self._portraits = {portrait.id: index for index, portrait in enumerate(audit.portraits)}
        prompts = {prompt.id: prompt for _, prompt in audit.treatments()}
        self._prompts: tuple[Prompt, ...] = tuple(prompts.values())
        self._prompt_codes = {name: index for index, name in enumerate(prompts)}
        self._arms = tuple(str(arm) for arm in audit.config.arms)
        self._total = sum(audit.request_count(named) for named in audit.editors)
        self._seeds: dict[int, int] = {}
        self._keys: list[str] = []
        self._images: list[str] = []
        self._codes = np.zeros((8, self._total), dtype=np.int32)
        self._sums: dict[tuple[str, str], _Sums] = {}
        self._truths: dict[str, _Sums] = {}
        for named in audit.judges:
            for axis in _axes(named):
                self._sums[named.name, axis] = _Sums(self._total)

    def add(
        self, editor: int, request: Request, stored: StoredEdit | None, absent: EditState = EditState.MISSING
    ) -> _Row:
        index = len(self._keys)
        state = _STATES[stored.outcome] if stored else absent
        self._keys.append(request.key)
        self._images.append((stored.image or "") if stored else "")
        self._codes[:, index] = (
            self._portraits[request.portraits[0].id],
            self._prompt_codes[request.prompt.id],
            editor,
            self._arms.index(request.arm),
            state,
            self._portraits[request.portraits[1].id] if len(request.portraits) > 1 else -1,
            self._audit.expected_place(request),
            self._seeds.setdefault(request.seed, len(self._seeds)),
        )
        for quantity, value in _numbers(stored.truth if stored else None):
            self._truths.setdefault(quantity, _Sums(self._total)).add(index, "rated", value)
        return _Row(index, self._images[-1])

    def rate(self, index: int, judge: str, axis: str, outcome: str, score: float | None) -> None:
        if (judge, axis) in self._sums:
            self._sums[judge, axis].add(index, outcome, score)

    def results(self) -> Results:
        portrait, prompt, editor, arm, state, second, matching, seed = self._codes
        in_pairs = bool((second >= 0).any())
        scores = tuple(sums.scores(judge, axis) for (judge, axis), sums in self._sums.items())
        parts = [each for each in scores if each.judge in self._audit.ensemble]
        return Results(
            edits=Edits(
                keys=self._keys,
                portrait=portrait,
                prompt=prompt,
                editor=editor,
                arm=arm,
                state=state,
                image=self._images,
                portraits=self._audit.portraits,
                prompts=self._prompts,
                editors=tuple(named.name for named in self._audit.editors),
                arms=self._arms,
                second=second if in_pairs else None,
                matching=matching if in_pairs else None,
                seed=seed if len(self._seeds) > 1 else None,
            ),
            scores=(*scores, *_ensemble(parts, self._audit.config.ensemble.rule)),
            truths=tuple(sums.scores("planted", quantity) for quantity, sums in self._truths.items()),
        )


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

    def scores(self, judge: str, axis: str) -> Scores:
        value = np.full(len(self._sum), np.nan)
        np.divide(self._sum, self._count, out=value, where=self._count > 0)
        return Scores(judge=judge, axis=axis, value=value, state=self._state)


def _ensemble(scores: Sequence[Scores], rule: str) -> Iterator[Scores]:
    """One more judge: these combined, on every scale that several of them answer."""
    for axis in dict.fromkeys(each.axis for each in scores):
        parts = [each for each in scores if each.axis == axis]
        known = rubric.load().axes.get(axis)
        if len(parts) > 1 and known and known.is_scale:
            yield combined(parts, rule, axis)


def combined(parts: Sequence[Scores], rule: str, axis: str) -> Scores:
    """Several judges of one axis as one, by a named rule."""
    value = np.full(len(parts[0].value), np.nan)
    # Where no judge gave a score, the first judge's state says why.
    state = parts[0].state.copy()
    given = np.stack([part.value for part in parts])
    for index in np.flatnonzero(~np.isnan(given).all(axis=0)):
        column = [None if np.isnan(score) else float(score) for score in given[:, index]]
        made = combine(column, rule=rule, axis=axis)
        if isinstance(made, Combined):
            value[index] = made.score
            state[index] = RatingState.RATED
    return Scores(judge=f"ensemble ({rule})", axis=axis, value=value, state=state)


def _axes(named: NamedJudge) -> Sequence[str]:
    # Partial axes are answered only where the judge can tell; their mean would be a mean over one outcome.
    return named.judge.capabilities.axes


def _numbers(truth: Mapping[str, Json] | None) -> Iterator[tuple[str, float]]:
    for name, value in (truth or {}).items():
        if isinstance(value, int | float) and not isinstance(value, bool):
            yield name, float(value)
