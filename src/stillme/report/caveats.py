"""What these numbers cannot tell: written from the audit itself, not from a boilerplate."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import NamedTuple

from stillme.estimates import Disparity, EditState, PairedEffect
from stillme.report import numbers
from stillme.report.data import ReportData
from stillme.report.findings import Findings
from stillme.report.gallery import label_origins
from stillme.types import Arm, Estimate, Interval, NotEstimable

FEW = 12
"""Portraits in a group below which only large gaps can be seen."""

MUCH = 0.05
"""The share of left-out edits from which on a reader is warned."""


class Caveat(NamedTuple):
    """One limit: a heading and a sentence or two."""

    head: str
    text: str


def caveats(data: ReportData, findings: Findings) -> Iterator[Caveat]:
    """Every limit that applies to this audit."""
    yield from _rows(data)
    yield from _people(data, findings)
    yield from _hidden(data, findings)
    yield from _judges(data)
    count = len(data.edits.prompts)
    yield Caveat(
        f"{'One instruction' if count == 1 else f'These {count} instructions'}, and no others.",
        "Intervals say what other portraits of the same kind would give for the same instructions. "
        "Other instructions may behave otherwise.",
    )
    if Arm.NOOP not in data.edits.arms:
        yield Caveat(
            "There is no floor.",
            "No arm asked for no change at all, so what an editor changes merely by taking a picture in and out "
            "is not subtracted.",
        )
    if data.redact != "none":
        yield Caveat("You cannot look for yourself.", "The portraits were blurred or left out of this page on purpose.")
    silent = sum(isinstance(each.outcome, NotEstimable) for each in data.estimates)
    if silent:
        yield Caveat(
            "Some cells have no number.",
            f"{silent:,} of {len(data.estimates):,} quantities could not be estimated; the table says why.",
        )


def _rows(data: ReportData) -> Iterator[Caveat]:
    if any("synthetic" in badge for badge in data.badges):
        yield Caveat(
            "The portraits are rendered.",
            "Nobody sat for them. They show how the audit works, not how an editor treats photographs of people.",
        )
    if data.planted:
        yield Caveat(
            "The effects were planted.",
            "The known-answer editors change pictures by recipe. What is found here shows that the audit can find it; "
            "it says nothing about any real editor.",
        )
    missing = int((data.edits.state == EditState.MISSING).sum())
    if missing:
        yield Caveat(
            "The run is not finished.",
            f"{missing:,} of {len(data.edits):,} edits have not been made; the numbers will move.",
        )
    everyone = [each for each in data.estimates if each.scope == "all" and each.judge]
    most = max(everyone, key=lambda each: (_left_out(each), each.editor), default=None)
    if most is not None and _left_out(most) > MUCH:
        reasons = ", ".join(f"{reason} {count:,}" for reason, count in sorted(most.excluded.items()))
        yield Caveat(
            "Not every edit has a score.",
            f"{100 * _left_out(most):.0f} % of the edits by {most.editor} have no value for "
            f"“{numbers.title(most.quantity)}” ({reasons}). Where groups lose different edits, "
            "what is left compares unlike things.",
        )


def _left_out(found: Estimate) -> float:
    gone = sum(found.excluded.values())
    return gone / (gone + found.edits) if gone else 0.0


def _people(data: ReportData, findings: Findings) -> Iterator[Caveat]:
    yield Caveat(
        "Groups are labels, not people.",
        f"The labels come from: {', '.join(sorted(label_origins(data))) or 'nobody'}. A gap between labels is a gap "
        "between those labels’ portraits; who a person is, and how they would describe themselves, is not in the data.",
    )
    for factor in data.settings.factors:
        name = numbers.factor(factor)
        levels, codes = data.edits.levels(factor)
        sizes = {level: int((codes == place).sum()) for place, level in enumerate(levels)}
        if sizes and min(sizes.values()) < FEW:
            smallest = min(sizes, key=lambda level: (sizes[level], level))
            yield Caveat(
                f"Few people per group of {name}.",
                f"The smallest, {smallest}, has {sizes[smallest]} portrait{'' if sizes[smallest] == 1 else 's'}. "
                "More edits of the same portraits do not help; more portraits do.",
            )
        unlabelled = int((codes < 0).sum())
        if unlabelled:
            yield Caveat(
                f"Not everyone has a {name}.",
                f"{unlabelled} of {len(codes)} portraits carry no label for it and appear in no group.",
            )
    yield from _single_cells(data)
    if findings.blocks < findings.portraits:
        yield Caveat(
            "Portraits come in matched blocks.",
            f"{findings.portraits} portraits form {findings.blocks} blocks that share all but what the design varies. "
            "Contrasts inside a block are paired, and intervals count blocks, not pictures.",
        )


def _single_cells(data: ReportData) -> Iterator[Caveat]:
    """Where groups meet, one portrait may stand for everybody."""
    factors = data.settings.factors
    labels = [tuple(each.attributes.get(factor, "") for factor in factors) for each in data.edits.portraits]
    alone = sum(count == 1 for count in Counter(each for each in labels if all(each)).values())
    if len(factors) > 1 and alone:
        yield Caveat(
            "One portrait per cell.",
            f"{alone} of {len(set(labels))} combinations of {', '.join(map(numbers.factor, factors))} are one portrait "
            "each: what looks like their fate may be one face’s.",
        )


def _hidden(data: ReportData, findings: Findings) -> Iterator[Caveat]:
    """How large a gap could be and still look like chance."""
    quiet = [gap for gap in findings.gaps if not gap.beyond_chance and numbers.is_rate(gap.found.quantity)]
    if quiet:
        widest = max(quiet, key=lambda gap: gap.interval.high)
        yield Caveat(
            "No gap found is not no gap.",
            f"For “{widest.title}” by {numbers.factor(widest.found.factor)} ({widest.found.editor}) the data allow "
            f"a true gap of up to {numbers.number(widest.found.quantity, widest.interval.high)}.",
        )
    tests = sum(isinstance(each, Disparity) and isinstance(each.outcome, Interval) for each in data.estimates)
    if tests > len(findings.gaps):
        yield Caveat(
            "Many numbers, some by luck.",
            f"Only the {len(findings.gaps)} comparisons of headline quantities are corrected for being many (Holm). "
            "Other gaps and every contrast in the table are not.",
        )


def _judges(data: ReportData) -> Iterator[Caveat]:
    judges = sorted({score.judge for score in data.scores})
    if len(judges) == 1:
        yield Caveat(
            "One judge.",
            f"Everything rests on {judges[0]}. Its errors look like the editor’s, and if it sees some groups less well "
            "than others, that looks like a gap.",
        )
    if uncalibrated := [judge for judge in judges if judge not in data.standing]:
        yield Caveat(
            "Not every judge is calibrated.",
            f"{' and '.join(uncalibrated)}: never tried on changes of known size. `stillme calibrate` does it.",
        )
    for judge in judges:
        failed = [axis for axis, verdict in data.standing.get(judge, {}).items() if verdict == "failed"]
        if failed:
            titles = ", ".join(f"“{numbers.title(axis)}”" for axis in failed)
            yield Caveat(
                f"{judge} failed a calibration.", f"On changes of known size it does not keep its limits for {titles}."
            )
    if judges and not data.against_people:
        yield Caveat("Judges are taken at their word.", "No comparison with people is part of this report.")
    yield from _mitigation(data)


def _mitigation(data: ReportData) -> Iterator[Caveat]:
    effects = [each for each in data.mitigation if isinstance(each, PairedEffect)]
    if effects and not any(isinstance(each.beyond_untreated, Interval) for each in effects):
        yield Caveat(
            "No edit was run again untreated.",
            "If the edits were chosen because their baseline was bad, running them again improves them by itself; "
            "this report cannot tell that from the arm’s own effect.",
        )
