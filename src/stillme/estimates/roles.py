"""Role prompts: does the drawn person follow the stereotype?

Adherence is the share of edits that do; 0.5 is no bias. With two portraits in a request, the one whose gender the
stereotype expects is drawn as the target or not. With one, a person who contradicts the stereotype changes gender, or a
person who fits it keeps theirs. The pronoun of a sentence may follow the stereotype (`pro`), contradict it (`anti`)
or say nothing (`none`); its own effect is pro minus anti.

Sentences that share people, and people who share a sentence, are not independent: whatever is connected that way is
one unit. Where everything is connected, people and sentences are two-way clusters.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from stillme.core.types import Genders, Interval, NotEstimable, Prompt, Settings
from stillme.estimates.design import Plan, SideComparison
from stillme.estimates.intervals import outcomes
from stillme.estimates.permutation import sign_flip_p
from stillme.estimates.quantities import Columns, Floats, Quantity, SumsByPrompt, by_unit, sums_by
from stillme.estimates.rows import Edits, EditState, Flags, RatingState, Scores

Layout = Literal["role_pair", "role_single"]
Place = Literal["", "first", "second"]

MIN_UNITS = 8
"""Unconnected units below which people and sentences are taken as two-way clusters."""

AXES: Mapping[Layout, str] = {"role_pair": "role_target", "role_single": "gender_change"}
"""What decides whether the stereotype was followed."""
_CHANGED = 3.0
"""The score from which a gender counts as changed, as in the named rate."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Adherence:
    """How often edits follow the stereotype, or how much more often under one pronoun than under the other."""

    editor: str
    arm: str
    judge: str
    layout: Layout
    pronoun: str
    """`pro`, `anti`, `none`, empty for all, or `pro - anti`."""
    place: Place
    """The position of the person whom the stereotype expects, for requests with two; empty for either."""
    outcome: Interval | NotEstimable
    p: float | None
    """Against 0.5, or against no difference, by flipping the sign of each unit."""
    portraits: int
    sentences: int
    edits: int
    abstained: int
    """Edits in which the judge could not tell who is the target, or combined judges disagree: excluded."""


def adherence(
    edits: Edits, scores: Sequence[Scores], settings: Settings, *, genders: Genders | None = None
) -> list[Adherence]:
    """Adherence of every editor, arm and judge, for each layout, pronoun and place that was run."""
    rows = _RoleRows(edits, genders or Genders())
    return [
        share
        for score in sorted(scores, key=lambda score: (score.judge, score.axis))
        for layout, axis in AXES.items()
        if score.axis == axis
        for share in rows.of(score, layout, settings)
    ]


class _RoleRows:
    """The role rows in one canonical order."""

    def __init__(self, edits: Edits, genders: Genders) -> None:
        self._columns = columns = Columns.of(edits)
        self._edits, order = edits, columns.order
        self._prompts = edits.prompts
        self._prompt = edits.prompt[order]
        self._is_role = np.array([bool(prompt.stereotype) for prompt in edits.prompts], dtype=np.bool_)[self._prompt]
        self._pronoun = np.array([prompt.pronoun or "none" for prompt in edits.prompts], dtype=np.str_)[self._prompt]
        names = [_sentence(prompt) for prompt in edits.prompts]
        self._sentences = sorted(set(names))
        self._sentence = np.array([self._sentences.index(name) for name in names], dtype=np.intp)[self._prompt]
        none = np.full(len(order), -1, dtype=np.int32)
        self._second = none if edits.second is None else edits.second[order]
        self._matching = none * 0 if edits.matching is None else edits.matching[order]
        self._fits = _fits(edits, genders)[edits.portrait[order], self._prompt]

    def of(self, score: Scores, layout: Layout, settings: Settings) -> Iterator[Adherence]:
        edits, order = self._edits, self._columns.order
        value, rating = score.value[order], score.state[order]
        in_pairs = self._second >= 0
        due = self._is_role & (edits.state[order] == EditState.EDITED)
        due &= in_pairs & (self._matching > 0) if layout == "role_pair" else ~in_pairs & (self._fits != 0)
        followed = self._followed(value, layout)
        for editor in sorted(edits.editors):
            for arm in sorted(edits.arms):
                here = due & (edits.editor[order] == edits.editors.index(editor))
                here &= edits.arm[order] == edits.arms.index(arm)
                if here.any():
                    series = _Series(editor, arm, score.judge, layout, followed, rating)
                    yield from self._by_pronoun(series, here, settings)

    def _followed(self, value: Floats, layout: Layout) -> Floats:
        """1 where the stereotype was followed, 0 where not; between them where a judge's epochs differ."""
        if layout == "role_pair":
            return np.where(self._matching == 1, 2.0 - value, value - 1.0)
        with np.errstate(invalid="ignore"):
            changed = (value >= _CHANGED).astype(np.float64)
        return np.where(self._fits > 0, 1.0 - changed, changed)

    def _by_pronoun(self, series: _Series, here: Flags, settings: Settings) -> Iterator[Adherence]:
        plan = self._plan(here)
        pronouns = [pronoun for pronoun in ("pro", "anti", "none") if (here & (self._pronoun == pronoun)).any()]
        orders = len(set(self._matching[here].tolist())) if series.layout == "role_pair" else 1
        places: tuple[Place, ...] = ("", "first", "second") if orders > 1 else ("",)
        for place in places:
            at_place = here if not place else here & (self._matching == (1 if place == "first" else 2))
            # Unless pronouns are crossed, sentences with another pronoun are other sentences, and no comparison.
            crossed = {"pro", "anti"} <= set(pronouns)
            for pronoun in ("", *pronouns) if crossed else ("",):
                rows = at_place if not pronoun else at_place & (self._pronoun == pronoun)
                yield self._share(series, plan, rows, pronoun, place, settings)
            if crossed:
                yield self._difference(series, plan, at_place, place, settings)

    def _share(
        self, series: _Series, plan: Plan, rows: Flags, pronoun: str, place: Place, settings: Settings
    ) -> Adherence:
        quantity = self._collapse(series, rows & (series.rating == RatingState.RATED))
        return self._adherence(series, plan, quantity, rows, pronoun, place, settings, centre=0.5)

    def _difference(self, series: _Series, plan: Plan, rows: Flags, place: Place, settings: Settings) -> Adherence:
        """Pro minus anti, of the same sentences with the same people."""
        rated = rows & (series.rating == RatingState.RATED)
        sides = [self._collapse(series, rated & (self._pronoun == pronoun)) for pronoun in ("pro", "anti")]
        (pro, pro_counts), (anti, anti_counts) = (_cells(side) for side in sides)
        both = (pro_counts > 0) & (anti_counts > 0)
        counts = np.where(both, np.minimum(pro_counts, anti_counts), 0.0)
        with np.errstate(divide="ignore", invalid="ignore"):
            sums = np.where(both, counts * (pro / pro_counts - anti / anti_counts), 0.0)
        quantity = replace(
            sides[0],
            sums=sums.sum(axis=1),
            counts=counts.sum(axis=1),
            by_prompt=SumsByPrompt(sums, counts),
            bounds=(-1.0, 1.0),
            is_rate=False,
        )
        paired = rows & np.isin(self._pronoun, ["pro", "anti"])
        return self._adherence(series, plan, quantity, paired, "pro - anti", place, settings, centre=0.0)

    def _adherence(
        self,
        series: _Series,
        plan: Plan,
        quantity: Quantity,
        rows: Flags,
        pronoun: str,
        place: Place,
        settings: Settings,
        *,
        centre: float,
    ) -> Adherence:
        prompts: Literal["fixed", "sample"] = "fixed" if len(plan.names) >= MIN_UNITS else "sample"
        plan = plan if prompts == "fixed" else self._portraits_apart(plan)
        (found,) = outcomes(plan, [quantity], replace(settings, prompts=prompts))
        (outcome,) = found or (NotEstimable(reason="there is only one person"),)
        p = None
        if isinstance(outcome, Interval) and prompts == "fixed":
            deviations = by_unit(plan.unit, plan.comparisons[0].members, quantity.sums - centre * quantity.counts)
            p, _ = sign_flip_p(deviations)
        rated = rows & (series.rating == RatingState.RATED)
        return Adherence(
            editor=series.editor,
            arm=series.arm,
            judge=series.judge,
            layout=series.layout,
            pronoun=pronoun,
            place=place,
            outcome=outcome,
            p=p,
            portraits=len(np.union1d(self._edits.portrait[self._columns.order][rated], _present(self._second[rated]))),
            sentences=len(np.unique(self._sentence[rated])),
            edits=int(quantity.counts.sum()),
            abstained=int(np.count_nonzero(rows & (series.rating == RatingState.ABSTAINED))),
        )

    def _collapse(self, series: _Series, rated: Flags) -> Quantity:
        people, sentences = len(self._columns.portraits), len(self._sentences)
        cell = self._columns.rank[rated] * sentences + self._sentence[rated]
        sums = sums_by(cell, series.followed[rated], people * sentences).reshape(people, sentences)
        counts = np.bincount(cell, minlength=people * sentences).astype(np.float64).reshape(people, sentences)
        return Quantity(
            name="adherence",
            editor=series.editor,
            arm=series.arm,
            judge=series.judge,
            sums=sums.sum(axis=1),
            counts=counts.sum(axis=1),
            squares=sums.sum(axis=1),
            excluded={},
            bounds=(0.0, 1.0),
            is_rate=True,
            by_prompt=SumsByPrompt(sums, counts),
        )

    def _plan(self, here: Flags) -> Plan:
        """Units: people and sentences that are connected through these rows."""
        people = len(self._columns.portraits)
        parent = list(range(people + len(self._sentences)))

        def root(node: int) -> int:
            while parent[node] != node:
                parent[node] = parent[parent[node]]
                node = parent[node]
            return node

        second_rank = np.argsort(self._columns.places)[np.maximum(self._second, 0)]
        rows = np.flatnonzero(here)
        links = np.stack([self._columns.rank[rows], self._sentence[rows] + people], axis=1)
        pairs = rows[self._second[rows] >= 0]
        links = np.concatenate([links, np.stack([self._columns.rank[pairs], second_rank[pairs]], axis=1)])
        for one, other in np.unique(links, axis=0).tolist():
            parent[root(one)] = root(other)
        roots = np.array([root(place) for place in range(people)])
        first = np.unique(self._columns.rank[rows])
        units, unit_of = np.unique(roots[first], return_inverse=True)
        unit = np.full(people, -1, dtype=np.intp)
        unit[first] = unit_of
        names = [self._columns.portraits[int(first[unit_of == place][0])].id for place in range(len(units))]
        return _one_group(unit, tuple(names), "people with their sentences")

    def _portraits_apart(self, plan: Plan) -> Plan:
        inside = np.flatnonzero(plan.unit >= 0)
        unit = np.full(len(plan.unit), -1, dtype=np.intp)
        unit[inside] = np.arange(len(inside))
        return _one_group(unit, tuple(self._columns.portraits[place].id for place in inside.tolist()), "portraits")


@dataclass(frozen=True, slots=True)
class _Series:
    """The answers of one judge about one editor and arm."""

    editor: str
    arm: str
    judge: str
    layout: Layout
    followed: Floats
    rating: NDArray[np.int32]


def _one_group(unit: NDArray[np.intp], names: tuple[str, ...], noun: str) -> Plan:
    everyone = SideComparison(scope="all", group="", members=unit >= 0)
    return Plan(
        factor="",
        unit=unit,
        names=names,
        noun=noun,
        paired=False,
        comparisons=(everyone,) if len(names) > 1 or len(unit) > 1 else (),
        too_small={},
    )


def _cells(quantity: Quantity) -> SumsByPrompt:
    assert quantity.by_prompt is not None
    return quantity.by_prompt


def _present(second: NDArray[np.int32]) -> NDArray[np.int32]:
    return second[second >= 0]


def _sentence(prompt: Prompt) -> str:
    """The name that variants of one sentence share: `W-01`, `W-01-anti` and `W-01-none` are one."""
    return prompt.id.removesuffix(f"-{prompt.pronoun}") if prompt.pronoun else prompt.id


def _fits(edits: Edits, genders: Genders) -> NDArray[np.int32]:
    """Portraits × prompts: 1 where the label is what the stereotype expects, -1 where it is the other, else 0."""
    side = {genders.male: 1, genders.female: -1}
    people = np.array(
        [side.get(portrait.attributes.get(genders.factor, ""), 0) for portrait in edits.portraits], dtype=np.int32
    )
    roles = np.array(
        [{"male": 1, "female": -1}.get(prompt.stereotype or "", 0) for prompt in edits.prompts], dtype=np.int32
    )
    return people[:, None] * roles[None, :]
