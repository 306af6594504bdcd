"""How many human ratings buy which interval of a corrected mean or rate."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np

from stillme import rubric
from stillme.audit import Audit
from stillme.errors import StillmeError
from stillme.estimates.intervals import t_quantile, wilson_limits
from stillme.estimates.rounding import NOISE
from stillme.planning.assumptions import Assumptions, PlanOptions
from stillme.planning.earlier_runs import EarlierRuns
from stillme.planning.people import CORRELATION, MIN_RATED, Answers, Range, answers_in, assumed_answers
from stillme.planning.power import Side, effective_size
from stillme.store import Store

RATED = (100, 300, 1_000)
"""Numbers of rated edits that are shown, and all of them."""

Drawn = Literal["uniform", "informative"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Sides:
    """Whose numbers are corrected: everyone's, and those of the smallest group of a factor, against the rest."""

    everyone: Side
    factor: str = ""
    level: str = ""
    group: Side | None = None
    rest: Side | None = None
    groups: int = 0
    paired: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Width:
    """Expected half-widths of corrected intervals after so many ratings; None where there is no such interval."""

    quantity: str
    rate: float | None
    rated: int
    """Edits of one editor under one arm that people rate."""
    drawn: Drawn
    everyone: Range | None
    group: Range | None
    contrast: Range | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Relation:
    """What one quantity's widths rest on."""

    quantity: str
    correlation: Range
    """Of the judge's and people's answers to single edits."""
    sd: float
    icc: float
    measured_on: int
    """Edits that people rated; 0 where the correlation is assumed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RatingPlan:
    """What human ratings would buy, and what that rests on."""

    confidence: float
    edits: int
    """Of one editor under one arm."""
    factor: str
    group: str
    portraits: int
    """In that group."""
    origin: str
    """A sentence: what was measured where, and what is assumed."""
    assumed: tuple[Relation, ...]
    widths: tuple[Width, ...]
    shown: tuple[str, ...]
    """The quantities to show to people; programs get all."""
    notes: tuple[str, ...]
    """What cannot be said, and why."""

    def as_json(self) -> dict[str, Any]:
        """For `--json`."""
        return asdict(self)


def rating_plan(
    audit: Audit, options: PlanOptions, earlier: EarlierRuns, assumed: Assumptions, sides: Sides | None
) -> RatingPlan:
    """From the answers in `--like`'s run or the audit's own; else from assumptions."""
    confidence = audit.config.estimates.confidence
    source = options.like or (audit.folder if Store.exists(audit.folder) else None)
    answers = _measured(source, earlier) if source and sides else []
    # A run may hold answers of a judge that audit.toml does not name, such as imported ones.
    nothing = "" if answers else _nothing_to_correct(audit, sides)
    if sides is None or nothing:
        return _empty(confidence, nothing)
    usable = [answer for answer in answers if answer.variance > NOISE]
    constant = [rubric.load().title(answer.quantity) for answer in answers if answer.variance <= NOISE]
    notes = [f"Nothing can be said of {', '.join(constant)}: every answer so far is the same."] if constant else []
    known = usable or list(assumed_answers(assumed))
    shown = _shown(usable, options.quantity) or known
    if not any(answer.disputed for answer in known):
        notes.append("Informative draws need two models' answers, or one model's asked twice; there are none yet.")
    return RatingPlan(
        confidence=confidence,
        edits=int(sides.everyone.edits.sum()),
        factor=sides.factor,
        group=sides.level,
        portraits=0 if sides.group is None else len(sides.group.edits),
        origin=_origin(shown, source if usable else None),
        assumed=tuple(_relation(answer) for answer in known),
        widths=tuple(width for answer in known for width in _widths(answer, sides, confidence)),
        shown=tuple(answer.quantity for answer in shown),
        notes=tuple(notes),
    )


def _nothing_to_correct(audit: Audit, sides: Sides | None) -> str:
    """Why human ratings would correct nothing in this audit; empty where they would."""
    axes = rubric.load().axes
    scales = {
        name
        for judge in audit.judges
        if judge.judge.capabilities.kind != "person"
        for name in judge.judge.capabilities.axes
        if name in axes and axes[name].is_scale
    }
    if sides is None:
        return "No editor edits single people here, so there is no mean that human ratings could correct."
    if not scales:
        return (
            "No model or instrument answers a scale here, so there is nothing for human ratings to correct; "
            "add one under [[judges]]."
        )
    return ""


def _empty(confidence: float, reason: str) -> RatingPlan:
    return RatingPlan(
        confidence=confidence,
        edits=0,
        factor="",
        group="",
        portraits=0,
        origin="",
        assumed=(),
        widths=(),
        shown=(),
        notes=(reason,),
    )


def _measured(folder: Path, earlier: EarlierRuns) -> list[Answers]:
    # A run that cannot be read only costs its numbers; `stillme doctor` says what is wrong with it.
    with suppress(StillmeError):
        return list(answers_in(earlier.at(folder)))
    return []


def _relation(answers: Answers) -> Relation:
    return Relation(
        quantity=answers.quantity,
        correlation=answers.correlation,
        sd=math.sqrt(answers.variance),
        icc=answers.icc,
        measured_on=answers.rated,
    )


def _origin(shown: Sequence[Answers], source: Path | None) -> str:
    measured = [answer for answer in shown if answer.rated]
    if measured:
        found = ", ".join(f"{answer.correlation[0]:.2f} ({answer.quantity})" for answer in measured)
        return f"measured in {source} on {measured[0].rated:,} edits: correlation of judge and people {found}"
    low, high = CORRELATION
    spread = f"; spread as in the judge's answers in {source}" if source else ""
    why = f"fewer than {MIN_RATED} human ratings" if source else "no answers yet"
    return f"assumed ({why}): correlation of judge and people {low:g} to {high:g}{spread}"


def _shown(usable: Sequence[Answers], quantity: str) -> list[Answers]:
    """The named rate and its axis's mean; else those of the first axis."""
    if not usable:
        return []
    rates = rubric.load().rates
    axes = {answer.quantity: rates[answer.quantity].axis for answer in usable if answer.quantity in rates}
    axis = axes.get(quantity, quantity) or axes.get(usable[0].quantity, usable[0].quantity)
    rate = quantity if quantity in axes else next((name for name, of in axes.items() if of == axis), "")
    return [answer for answer in usable if answer.quantity in (axis, rate)]


def _widths(answers: Answers, sides: Sides, confidence: float) -> Iterator[Width]:
    edits = int(sides.everyone.edits.sum())
    for rated in (*(number for number in RATED if number < edits), edits):
        for drawn in ("uniform", "informative") if answers.disputed and rated < edits else ("uniform",):
            yield expected_width(answers, sides, rated, drawn, confidence)


def expected_width(answers: Answers, sides: Sides, rated: int, drawn: Drawn, confidence: float) -> Width:
    """The expected half-widths where people rate so many of one editor's edits."""
    share = rated / float(sides.everyone.edits.sum())
    penalty = answers.penalty(share, informative=drawn == "informative")

    def half(parts: Sequence[Side], freedom: float) -> Range | None:
        if penalty is None or freedom < 1:
            return None
        best, worst = (_half(answers, parts, added, freedom, confidence) for added in penalty)
        return best, worst

    group, rest = sides.group, sides.rest
    freedom = 0.0 if group is None else _units(group, share) - 1
    between = 0.0
    if group is not None and rest is not None:
        # Sets that hold a portrait of each group are the units of a contrast; else each group has a mean of its own.
        unpaired = _units(group, share) + _units(rest, share) - sides.groups
        between = min(group.units, rest.units) - 1.0 if sides.paired else unpaired
    return Width(
        quantity=answers.quantity,
        rate=answers.rate,
        rated=rated,
        drawn=drawn,
        everyone=half([sides.everyone], _units(sides.everyone, share) - 1),
        group=half([group], freedom) if group is not None else None,
        contrast=half([group, rest], between) if group is not None and rest is not None else None,
    )


def _half(answers: Answers, parts: Sequence[Side], added: float, freedom: float, confidence: float) -> float:
    """Portraits are a sample, and so are the rated edits: the two variances add up."""
    variance = sum(
        answers.variance / effective_size(side.edits, answers.icc) + added / float(side.edits.sum()) for side in parts
    )
    quantile, error = t_quantile((1 + confidence) / 2, freedom), math.sqrt(variance)
    if answers.rate is not None and len(parts) == 1 and NOISE < answers.rate < 1 - NOISE:
        size = answers.rate * (1 - answers.rate) / variance
        low, high = wilson_limits(np.array(answers.rate), np.array(size), np.array(quantile))
        return float(high - low) / 2
    return quantile * error


def _units(side: Side, share: float) -> float:
    """Units of which people are expected to rate an edit."""
    return min(float(side.units), float((1 - (1 - share) ** side.edits).sum()))
