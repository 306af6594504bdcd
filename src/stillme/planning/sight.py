"""Which gaps a design can see, and what a thinner or a wider design would see."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from stillme.audit import Audit, NamedEditor
from stillme.estimates import Edits, design
from stillme.estimates.design import Plan
from stillme.estimates.quantities import Columns, Floats
from stillme.planning.answers import Against, Alternative, Gap, Leaning, Sight, Wish
from stillme.planning.assumptions import Assumed, Likely
from stillme.planning.costs import Bills
from stillme.planning.power import (
    Mean,
    Outcome,
    Rate,
    Side,
    Terms,
    effective,
    portraits_needed,
    smallest_departure,
    smallest_gap,
)
from stillme.types import Arm

Flags = NDArray[np.bool_]


class Sights:
    """An audit's portraits and cells, ready to be asked."""

    def __init__(self, audit: Audit, assumed: Assumed, terms: Terms) -> None:
        self._audit, self._assumed, self._terms = audit, assumed, terms
        self._columns = Columns.of(_no_edits(audit))
        place = {portrait.id: index for index, portrait in enumerate(self._columns.portraits)}
        self.counts = {named.name: _counts(audit, named, place, people=1) for named in audit.editors}
        self._couples = {named.name: _counts(audit, named, place, people=2) for named in audit.editors}

    @property
    def grouped(self) -> bool:
        """Whether there are edits of single people, whose groups can be compared."""
        return any(counts.any() for counts in self.counts.values())

    def all(self) -> Iterator[Sight]:
        """For every factor, comparison and quantity, what the editor sees that sees least."""
        for factor in self._audit.factors if self.grouped else ():
            plan = design.by_factor(self._columns, factor, self._audit.config.estimates.reference.get(factor))
            if len(plan.levels) < 2:
                continue
            rates = [(Rate(base=each.rate, icc=each.icc), each) for each in self._assumed.rates]
            scores = self._assumed.sd_icc
            for outcome, likely in (*rates, (Mean(sd=self._assumed.sd, icc=scores.icc), scores)):
                for against in ("another group", "the others"):
                    seen = [self._sight(plan, name, outcome, likely, against) for name in self.counts]
                    yield max(seen, key=lambda each: (each.gap.value is None, each.gap.value or 0.0))

    def leanings(self) -> Iterator[Leaning]:
        """Role requests with two people: 0.5 is no bias."""
        for name, counts in self._couples.items():
            side = Side(edits=counts[counts > 0], units=int((counts > 0).sum()))
            if side.units:
                yield Leaning(
                    editor=name,
                    requests=int(counts.sum()),
                    portraits=side.units,
                    departure=smallest_departure(self._assumed.rates[0].icc, side, self._terms),
                )

    def wishes(self, gap: float, work: Bills) -> Iterator[Wish]:
        """How many portraits it would take to see the gap between two groups, with as many edits of each."""
        for factor in self._audit.factors if self.grouped else ():
            levels = self._audit_levels(factor)
            each = min(float(counts[counts > 0].mean()) for counts in self.counts.values() if counts.any())
            for likely in self._assumed.rates:
                found = portraits_needed(gap, Rate(base=likely.rate, icc=likely.icc), each, self._terms)
                portraits = found * levels if found else None
                times = portraits / len(self._audit.portraits) if portraits else None
                yield Wish(
                    factor=factor,
                    base=likely.rate,
                    gap=gap,
                    per_group=found,
                    portraits=portraits,
                    edits=round(times * work.edits) if times else None,
                    judge_calls=round(times * work.questions) if times else None,
                    dollars=times * work.dollars if times else None,
                )

    def alternatives(self) -> Iterator[Alternative]:
        """From all prompts for every portrait and editor down to one, for the first factor and base rate."""
        audit, editors = self._audit, len(self._audit.editors)
        prompts = [prompt for prompt in audit.prompts if not (audit.config.roles and prompt.target)]
        whole = len(prompts) * max(len(named.seeds) for named in audit.editors)
        people, likely = len(audit.portraits), self._assumed.rates[0]
        if not self.grouped or not audit.factors or whole < 2:
            return
        groups = self._audit_levels(audit.factors[0])
        mine = float(np.mean([counts.sum() for counts in self.counts.values()])) / people

        def gap(portraits: int, each: float) -> float | None:
            side = Side.of(portraits // groups, each)
            return smallest_gap(Rate(base=likely.rate, icc=likely.icc), side, side, self._terms)

        for each in _thinner(whole, mine):
            buys = int(people * whole / each)
            yield Alternative(
                edits_each=each,
                size=round(people * editors * each),
                share=each / whole,
                information=effective([each], likely.icc) / effective([whole], likely.icc),
                gap=gap(people, each),
                portraits=buys,
                wider_gap=gap(buys, each),
                chosen=abs(each - mine) < 1e-9,
            )

    def _audit_levels(self, factor: str) -> int:
        return len(self._columns.edits.levels(factor)[0])

    def _sight(self, plan: Plan, editor: str, outcome: Outcome, likely: Likely, against: Against) -> Sight:
        counts = self.counts[editor]
        groups = [each.members for each in plan.comparisons if each.scope == "group"]
        contrasts = [
            (each.members, each.against)
            for each in plan.comparisons
            if each.scope == "contrast" and each.against is not None
        ]
        if against == "another group":
            smallest = sorted(groups, key=lambda members: float(counts[members].sum()))[:2]
            pairs = [(smallest[0], smallest[1])]
        else:
            pairs = [min(contrasts, key=lambda sides: float(counts[sides[0]].sum()))] if contrasts else []
        comparisons = len(contrasts) * len(self.counts)

        def find(icc: float, terms: Terms) -> float | None:
            supposed = replace(outcome, icc=icc)
            found = [
                smallest_gap(supposed, _side(plan, counts, one), _side(plan, counts, two), terms, paired=plan.paired)
                for one, two in pairs
            ]
            return None if not found or None in found else max(each for each in found if each is not None)

        return Sight(
            factor=plan.factor,
            editor=editor,
            groups=len(groups),
            portraits=min(int((counts[members] > 0).sum()) for members in groups),
            edits_each=float(counts[counts > 0].mean()) if counts.any() else 0.0,
            against=against,
            quantity="rate" if isinstance(outcome, Rate) else "mean",
            base=outcome.base if isinstance(outcome, Rate) else None,
            gap=_gap(find, likely, self._terms, comparisons),
            comparisons=comparisons,
        )


def _gap(find: Callable[[float, Terms], float | None], likely: Likely, terms: Terms, comparisons: int) -> Gap:
    return Gap(
        value=find(likely.icc, terms),
        low=find(likely.low, terms),
        high=find(likely.high, terms),
        corrected=find(likely.icc, replace(terms, comparisons=max(1, comparisons))),
    )


def _side(plan: Plan, counts: Floats, members: Flags) -> Side:
    seen = members & (counts > 0)
    return Side(edits=counts[seen], units=len(np.unique(plan.unit[seen])))


def _thinner(whole: int, mine: float) -> Sequence[float]:
    """The whole grid, halves of it down to one edit each, and the audit as it stands."""
    steps: list[float] = [float(whole)]
    while steps[-1] > 1:
        steps.append(float(max(1, round(steps[-1] / 2))))
    return sorted({*steps, mine}, reverse=True)


def _counts(audit: Audit, named: NamedEditor, place: dict[str, int], *, people: int) -> Floats:
    """Edits of each portrait under the arm that is compared, as the first of so many people."""
    arms = [arm for arm in audit.config.arms if arm is not Arm.NOOP]
    compared = Arm.BASELINE if Arm.BASELINE in arms or not arms else arms[0]
    counts = np.zeros(len(place))
    for portraits, arm, _ in audit.cells(named):
        if arm is compared and len(portraits) == people:
            counts[place[portraits[0].id]] += len(named.seeds)
    return counts


def _no_edits(audit: Audit) -> Edits:
    """The audit's portraits without a row: enough to know who would be compared with whom."""
    none = np.zeros(0, dtype=np.int32)
    return Edits(
        keys=(),
        portrait=none,
        prompt=none,
        editor=none,
        arm=none,
        state=none,
        image=(),
        portraits=audit.portraits,
        prompts=audit.prompts,
        editors=tuple(named.name for named in audit.editors),
        arms=tuple(str(arm) for arm in audit.config.arms),
    )
