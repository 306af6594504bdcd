"""What these numbers cannot tell: written from the audit itself, not from a boilerplate."""

from __future__ import annotations

from collections.abc import Iterator

from stillme.estimates import Disparity, EditState
from stillme.report import numbers
from stillme.report.data import ReportData
from stillme.report.findings import Findings
from stillme.report.gallery import label_origins
from stillme.types import Arm, Interval, NotEstimable

FEW = 12
"""Portraits in a group below which only large gaps can be seen."""


def caveats(data: ReportData, findings: Findings) -> Iterator[tuple[str, str]]:
    """A short heading and a sentence or two for each limit that applies here."""
    if data.planted:
        yield (
            "The effects were planted.",
            _joined(
                "The known-answer editors change pictures by recipe. What is found here shows that the audit",
                "can find it;",
                "it says nothing about any real editor.",
            ),
        )
    missing = int((data.edits.state == EditState.MISSING).sum())
    if missing:
        yield (
            "The run is not finished.",
            _joined(
                f"{missing:,} of {len(data.edits):,} edits have not been made; the numbers will move.",
            ),
        )
    yield (
        "Groups are labels, not people.",
        _joined(
            f"The labels come from: {', '.join(sorted(label_origins(data))) or 'nobody'}. A gap between labels",
            "is a gap",
            "between those labels’ portraits; who a person is, and how they would describe themselves, is not",
            "in the data.",
        ),
    )
    yield from _sizes(data)
    if findings.blocks < findings.portraits:
        yield (
            "Portraits come in matched blocks.",
            _joined(
                f"{findings.portraits} portraits form {findings.blocks} blocks that share all but what the",
                "design varies.",
                "Contrasts inside a block are paired, and intervals count blocks, not pictures.",
            ),
        )
    yield from _hidden(data, findings)
    yield from _judges(data)
    count = len(data.edits.prompts)
    yield (
        f"{'One instruction' if count == 1 else f'These {count} instructions'}, and no others.",
        _joined(
            "Intervals say what other portraits of the same kind would give for the same instructions.",
            "Other instructions may behave otherwise.",
        ),
    )
    if Arm.NOOP not in data.edits.arms:
        yield (
            "There is no floor.",
            _joined(
                "No arm asked for no change at all, so what an editor changes merely by taking a picture in and out",
                "is not subtracted.",
            ),
        )
    silent = sum(isinstance(each.outcome, NotEstimable) for each in data.estimates)
    if silent:
        yield (
            "Some cells have no number.",
            _joined(
                f"{silent:,} of {len(data.estimates):,} quantities could not be estimated; the table says why.",
            ),
        )


def _judges(data: ReportData) -> Iterator[tuple[str, str]]:
    judges = sorted({score.judge for score in data.scores})
    if len(judges) == 1:
        yield (
            "One judge.",
            _joined(
                f"Everything rests on {judges[0]}. Its errors look like the editor’s, and if it sees some",
                "groups less well",
                "than others, that looks like a gap.",
            ),
        )
    if judges:
        yield "Judges are taken at their word.", "No comparison with people is part of this report."


def _sizes(data: ReportData) -> Iterator[tuple[str, str]]:
    for factor in data.settings.factors:
        name = numbers.factor(factor)
        levels, codes = data.edits.levels(factor)
        sizes = {level: int((codes == place).sum()) for place, level in enumerate(levels)}
        if sizes and min(sizes.values()) < FEW:
            smallest = min(sizes, key=lambda level: (sizes[level], level))
            yield (
                f"Few people per group of {name}.",
                _joined(
                    f"The smallest, {smallest}, has {sizes[smallest]} portrait{'' if sizes[smallest] == 1 else 's'}.",
                    "More edits of the same portraits do not help; more portraits do.",
                ),
            )
        unlabelled = int((codes < 0).sum())
        if unlabelled:
            yield (
                f"Not everyone has a {name}.",
                _joined(
                    f"{unlabelled} of {len(codes)} portraits carry no label for it and appear in no group.",
                ),
            )


def _hidden(data: ReportData, findings: Findings) -> Iterator[tuple[str, str]]:
    """How large a gap could be and still look like chance."""
    quiet = [gap for gap in findings.gaps if not gap.beyond_chance and numbers.is_rate(gap.found.quantity)]
    if quiet:
        widest = max(quiet, key=lambda gap: gap.interval.high)
        yield (
            "No gap found is not no gap.",
            _joined(
                f"For “{widest.title}” by {numbers.factor(widest.found.factor)} ({widest.found.editor}) the",
                "data allow a true",
                f"gap of up to {numbers.number(widest.found.quantity, widest.interval.high)}.",
            ),
        )
    tests = sum(isinstance(each, Disparity) and isinstance(each.outcome, Interval) for each in data.estimates)
    if tests > len(findings.gaps):
        yield (
            "Many numbers, some by luck.",
            _joined(
                f"Only the {len(findings.gaps)} comparisons of headline quantities are corrected for being many",
                "(Holm).",
                "Other gaps and every contrast in the table are not.",
            ),
        )


def _joined(*parts: str) -> str:
    return " ".join(parts)
