"""What a reader must know of the judges themselves, in sentences; the tables of `stillme tables` have the numbers."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from stillme.estimates import numbers
from stillme.report.data import ReportData
from stillme.runs.behaviour import MUCH_MISSING, JudgeBehaviour, listed
from stillme.runs.status import drifted


@dataclass(frozen=True, slots=True, kw_only=True)
class BehaviourSection:
    """What the page says of the judges."""

    warnings: tuple[str, ...]
    sentences: tuple[str, ...]


def behaviour_section(data: ReportData) -> BehaviourSection | None:
    """The section; None where no model judges, or nothing is known of it."""
    known = data.behaviour
    if known is None:
        return None
    section = BehaviourSection(
        warnings=(
            *(answers.alarm for answers in known.known_answers if answers.alarm),
            *known.warnings,
            *(f"{judge}." for judge in drifted(known.models)),
        ),
        sentences=tuple(_sentences(known)),
    )
    return section if section.warnings or section.sentences else None


def _sentences(known: JudgeBehaviour) -> Iterator[str]:
    yield from (str(answers) for answers in known.known_answers)
    yield from _combined(known)
    for names in known.models:
        if not names.drifted:
            yield f"{names.answered[-1].name} gave all {names.total:,} answers of {names.judge}."


def _combined(known: JudgeBehaviour) -> Iterator[str]:
    combination = known.combination
    if combination is None:
        return
    yield f"The {combination.name} combines {listed(combination.judges)}."
    if combination.primary:
        yield f"Where they are more than a point apart, {combination.primary}, the primary judge of Eq. 3, decides."
    if combination.mixed:
        blind = [judge for judge in combination.judges if judge not in combination.told]
        yield (
            f"{listed(combination.told)} {'is' if len(combination.told) == 1 else 'are'} told the portraits’ labels, "
            f"{listed(blind)} {'is' if len(blind) == 1 else 'are'} blind: the combined scores mix both."
        )
    if known.incomplete:
        axis = max(known.incomplete, key=lambda name: known.incomplete[name])
        if known.incomplete[axis] == 0:
            yield "Every combined score rests on all its judges."
        elif known.incomplete[axis] <= MUCH_MISSING:
            share = numbers.percent(known.incomplete[axis])
            yield f"Up to {share} of the combined scores lack a judge (most for “{numbers.title(axis)}”)."
