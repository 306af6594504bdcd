"""Specification curve: the same contrast under every rule, cut, judge and disclosure.

There is no single right choice of where to cut a scale, whose scores to take, and how to combine two judges. A gap that
holds under most choices is about editors; one that holds under a few is about the choices.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from stillme import rubric
from stillme.errors import UnknownName
from stillme.estimates.cuts import cuts
from stillme.estimates.design import REST
from stillme.estimates.estimating import contrasts_of
from stillme.estimates.quantities import Columns, Quantity
from stillme.estimates.rows import Edits, Scores
from stillme.estimates.settings import Settings
from stillme.rubric import Rate
from stillme.types import Arm, Interval, NotEstimable

Rule = Callable[[Sequence[Scores]], Scores]
"""Combines several judges of one axis."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Specification:
    """The contrast under one set of choices."""

    judge: str
    """One judge's name, or `ensemble`."""
    rule: str
    """How several judges were combined; empty for a single judge."""
    disclosure: str
    """What the judges were told about the portrait, such as `blind` or `paper`."""
    quantity: str
    """The mean of the axis, a named rate, or a rate at a cut."""
    outcome: Interval | NotEstimable
    agrees: bool | None
    """Whether the sign is the headline's; None where there is no number."""
    holds: bool | None
    """Whether the sign is the headline's and the interval excludes zero."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Curve:
    """Every specification, from the smallest value to the largest, and how many agree with the headline."""

    axis: str
    editor: str
    arm: str
    factor: str
    group: str
    """`level - rest` or `level - reference`."""
    headline: Interval | NotEstimable
    rows: tuple[Specification, ...]

    @property
    def estimable(self) -> int:
        """Specifications that give a number."""
        return sum(row.holds is not None for row in self.rows)

    @property
    def share_holding(self) -> float | None:
        """The share of those with the headline's sign and an interval that excludes zero."""
        return sum(bool(row.holds) for row in self.rows) / self.estimable if self.estimable else None

    @property
    def share_agreeing(self) -> float | None:
        """The share of those with the headline's sign."""
        return sum(bool(row.agrees) for row in self.rows) / self.estimable if self.estimable else None


def specification_curve(
    edits: Edits,
    judges: Sequence[Scores],
    rules: Mapping[str, Rule],
    settings: Settings,
    *,
    quantity: str,
    factor: str,
    level: str,
    editor: str,
    arm: str = Arm.BASELINE,
    disclosures: Mapping[str, str] | None = None,
    headline: str = "mean",
) -> Curve:
    """A level of a factor against the reference or the rest, under every specification that the rows allow.

    `judges` are the raw scores of single judges; those of the axis behind `quantity` are used. `disclosures` says what
    each judge was told; judges who were told different things are never combined. The headline is `quantity` by the
    rule of that name over all judges (or by the only judge), under the first disclosure.
    """
    axis = _axis(quantity)
    raw = sorted((scores for scores in judges if scores.axis == axis), key=lambda scores: scores.judge)
    disclosed = {scores.judge: (disclosures or {}).get(scores.judge, "") for scores in raw}
    wanted = settings.comparing(factor, reference=_reference(settings, factor))
    specifications: list[Specification] = []
    headline_outcome: Interval | NotEstimable = NotEstimable(reason=f"no judge answers {axis}")
    first = min(disclosed.values(), default="")
    columns = Columns.of(edits)
    chosen = [
        (*whose, _quantities(columns, scores, wanted, quantity, editor, arm))
        for *whose, scores in _combined(raw, rules, disclosed)
    ]
    everything = [offer for *_, offered in chosen for offer in offered]
    outcomes = iter(contrasts_of(columns, everything, wanted, factor=factor, level=level))
    for judge, rule, disclosure, offered in chosen:
        for name in [offer.name for offer in offered]:
            outcome = next(outcomes)
            specifications.append(
                Specification(
                    judge=judge,
                    rule=rule,
                    disclosure=disclosure,
                    quantity=name,
                    outcome=outcome,
                    agrees=None,
                    holds=None,
                )
            )
            if name == quantity and disclosure == first and (rule == headline or len(disclosed) == 1):
                headline_outcome = outcome
    compared = [_compared(specification, headline_outcome) for specification in specifications]
    return Curve(
        axis=axis,
        editor=editor,
        arm=arm,
        factor=factor,
        group=f"{level} - {wanted.reference.get(factor, REST)}",
        headline=headline_outcome,
        rows=tuple(sorted(compared, key=_by_value)),
    )


def _axis(quantity: str) -> str:
    known = rubric.load()
    if quantity in known.axes:
        return quantity
    if quantity in known.rates:
        return known.rates[quantity].axis
    raise UnknownName.among("quantity", quantity, [*known.axes, *known.rates], "Name an axis or a rate of the rubric.")


def _reference(settings: Settings, factor: str) -> Mapping[str, str]:
    return {factor: settings.reference[factor]} if factor in settings.reference else {}


def _combined(
    raw: Sequence[Scores], rules: Mapping[str, Rule], disclosed: Mapping[str, str]
) -> Iterator[tuple[str, str, str, Scores]]:
    for scores in raw:
        yield scores.judge, "", disclosed[scores.judge], scores
    for disclosure in sorted(set(disclosed.values())):
        parts = [scores for scores in raw if disclosed[scores.judge] == disclosure]
        if len(parts) > 1:
            for name, rule in rules.items():
                yield "ensemble", name, disclosure, rule(parts)


def _quantities(
    columns: Columns, scores: Scores, settings: Settings, quantity: str, editor: str, arm: str
) -> list[Quantity]:
    """The quantity itself, the mean, and the rate at every cut in the same direction."""
    known, axis = rubric.load(), scores.axis
    named = known.rates.get(quantity)
    wanted = {quantity, axis, *(rate.name for rate in cuts(known.axes[axis]) if _same_direction(rate, named))}
    return [
        columns.collapse(measured, prompts=settings.prompts == "sample")
        for measured in (*columns.measured([scores]), *columns.measured([scores], every_cut=True))
        if measured.judge
        and measured.editor == editor
        and measured.arm == arm
        and measured.name in wanted
        and not _same(measured.name, named)
    ]


def _same_direction(rate: Rate, named: Rate | None) -> bool:
    if named is None:
        return rate.at_least is not None
    return (rate.at_least is None) == (named.at_least is None)


def _same(name: str, named: Rate | None) -> bool:
    """Whether a rate at a cut is the named one under another name."""
    if named is None:
        return False
    sign, cut = (">=", named.at_least) if named.at_least is not None else ("<=", named.at_most)
    return name == f"{named.axis}{sign}{cut:g}"


def _compared(row: Specification, headline: Interval | NotEstimable) -> Specification:
    if not isinstance(row.outcome, Interval) or not isinstance(headline, Interval):
        return row
    agrees = row.outcome.value * headline.value > 0
    clear = row.outcome.low > 0 or row.outcome.high < 0
    return replace(row, agrees=agrees, holds=agrees and clear)


def _by_value(row: Specification) -> tuple[bool, float, str, str, str, str]:
    known = isinstance(row.outcome, Interval)
    value = row.outcome.value if isinstance(row.outcome, Interval) else 0.0
    return (not known, value, row.judge, row.rule, row.disclosure, row.quantity)
