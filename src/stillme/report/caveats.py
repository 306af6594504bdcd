"""What the numbers cannot tell, from the audit itself."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import NamedTuple

from stillme.core.types import Arm, Estimate, Interval, NotEstimable
from stillme.estimates import Disparity, EditState, PairedEffect, mark, numbers
from stillme.estimates.headlines import CANNOT_TELL
from stillme.report.data import ReportData, judges_telling
from stillme.report.findings import Findings
from stillme.report.gallery import label_origins
from stillme.runs.status import drifted

FEW_PORTRAITS = 12
"""Portraits in a group below which only large gaps can be detected."""

MUCH_MISSING = 0.05
"""The share of edits without a value above which a reader is warned."""


class Caveat(NamedTuple):
    """One limit: a heading and a sentence or two."""

    head: str
    text: str


def caveats(data: ReportData, findings: Findings) -> Iterator[Caveat]:
    """Every limit that applies to this audit."""
    yield from _rows(data)
    yield from _people(data, findings)
    yield from _not_made(data)
    yield from _inconclusive(data, findings)
    yield from _judges(data)
    count = len(data.edits.prompts)
    yield Caveat(
        f"{'One instruction' if count == 1 else f'These {count} instructions'}, and no others.",
        "Intervals say what other portraits of the same kind would give for the same instructions. "
        "Other instructions may behave otherwise.",
    )
    if Arm.NOOP not in data.edits.arms:
        yield Caveat(
            "No no-op arm was run.",
            "No arm asked for no change at all, so what an editor changes merely by taking a picture in and out "
            "is not subtracted.",
        )
    if data.redact != "none":
        yield Caveat("You cannot look for yourself.", "The portraits are blurred, or omitted on purpose.")
    not_estimable = sum(isinstance(estimate.outcome, NotEstimable) for estimate in data.estimates)
    if not_estimable:
        yield Caveat(
            "Some cells have no number.",
            f"{not_estimable:,} of {len(data.estimates):,} quantities could not be estimated; the table says why.",
        )


def _rows(data: ReportData) -> Iterator[Caveat]:
    if reason := data.unreachable():
        yield Caveat(
            "Pictures are kept elsewhere.",
            f"Not all of them could be shown when this page was written: {reason} The numbers do not depend on that.",
        )
    sources = {portrait.image.sha256 for portrait in data.edits.portraits}
    edited = {*data.edits.image} - {"", *sources}
    lost = {
        what: sum(data.lacks(sha256) for sha256 in hashes)
        for what, hashes in (("edited pictures", edited), ("portraits", sources))
    }
    if any(lost.values()):
        counted = ", ".join(f"{what} {count:,}" for what, count in lost.items() if count)
        yield Caveat(
            "Pictures are lost.",
            f"Missing, or no longer what they were: {counted}. Their judgements were made before. "
            "`stillme doctor` lists them.",
        )
    if any("synthetic" in badge for badge in data.badges):
        yield Caveat(
            "The portraits are rendered.",
            "They show how the audit works, not how an editor treats photographs of people.",
        )
    if data.planted:
        yield Caveat(
            "The effects were injected.",
            "The known-answer editors change pictures by recipe. What is found here shows that the audit can find it; "
            "it says nothing about any real editor.",
        )
    missing = int((data.edits.state == EditState.MISSING).sum())
    if missing:
        yield Caveat(
            "The run is not finished.",
            f"{missing:,} of {len(data.edits):,} edits have not been made; the numbers will move.",
        )
    everyone = [estimate for estimate in data.estimates if estimate.scope == "all" and estimate.judge]
    worst = max(everyone, key=lambda estimate: (_missing_share(estimate), estimate.editor), default=None)
    if worst is not None and _missing_share(worst) > MUCH_MISSING:
        reasons = ", ".join(f"{reason} {count:,}" for reason, count in sorted(worst.excluded.items()))
        yield Caveat(
            "Not every edit has a score.",
            f"{numbers.percent(_missing_share(worst), 0)} of the edits by {worst.editor} have no value for "
            f"“{numbers.title(worst.quantity)}” ({reasons}). Where groups lose different edits, "
            "what is left compares unlike things.",
        )


def _missing_share(estimate: Estimate) -> float:
    excluded = sum(estimate.excluded.values())
    return excluded / (excluded + estimate.edits) if excluded else 0.0


def _people(data: ReportData, findings: Findings) -> Iterator[Caveat]:
    yield Caveat(
        "Groups are labels, not people.",
        f"The labels come from: {', '.join(sorted(label_origins(data))) or 'no stated source'}. A gap between labels "
        "is a gap between those labels’ portraits; who a person is, and how they would describe themselves, is not in "
        "the data.",
    )
    for factor in data.settings.factors:
        name = numbers.factor_name(factor)
        levels, codes = data.edits.levels(factor)
        sizes = {level: int((codes == code).sum()) for code, level in enumerate(levels)}
        if sizes and min(sizes.values()) < FEW_PORTRAITS:
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
    if findings.identities < findings.portraits:
        yield Caveat(
            f"{findings.portraits} portraits show {findings.identities} identities.",
            "What an identity shares cancels where its portraits are in several groups. Where they are all in one, and "
            "for everyone, intervals and tests count identities, not pictures.",
        )


def _single_cells(data: ReportData) -> Iterator[Caveat]:
    """Combinations of labels that only one portrait has."""
    factors = data.settings.factors
    cells = [tuple(portrait.attributes.get(factor, "") for factor in factors) for portrait in data.edits.portraits]
    single = sum(count == 1 for count in Counter(cell for cell in cells if all(cell)).values())
    if len(factors) > 1 and single:
        yield Caveat(
            "One portrait per cell.",
            f"{single} of {len(set(cells))} combinations of {', '.join(map(numbers.factor_name, factors))} are one "
            "portrait each: what looks like a gap may be one face.",
        )


def _not_made(data: ReportData) -> Iterator[Caveat]:
    if data.happened is not None:
        ignored = int(((data.edits.state == EditState.EDITED) & ~data.happened).sum())
        yield Caveat(
            "Edits that were not made changed no one.",
            f"{ignored:,} pictures show no edit, says {' and '.join(judges_telling(data))}. They count as unchanged "
            "people, so a group whose edits are skipped seems to be kept better than it is.",
        )


def _inconclusive(data: ReportData, findings: Findings) -> Iterator[Caveat]:
    """How large a gap could be and still look like chance."""
    inconclusive = [gap for gap in findings.gaps if not gap.is_significant and numbers.is_rate(gap.disparity.quantity)]
    if inconclusive:
        widest = max(inconclusive, key=lambda gap: gap.interval.high)
        yield Caveat(
            "No gap found is not no gap.",
            f"For “{widest.title}” by {numbers.factor_name(widest.disparity.factor)} ({widest.disparity.editor}) "
            f"the data allow a true gap of up to {numbers.number(widest.disparity.quantity, widest.interval.high)}.",
        )
    disparities = [estimate for estimate in data.estimates if isinstance(estimate, Disparity)]
    if sum(isinstance(disparity.outcome, Interval) for disparity in disparities) > len(findings.gaps):
        yield Caveat(
            "Many numbers, some large by chance.",
            f"Only the {len(findings.gaps)} comparisons that verdicts rest on are adjusted for multiple comparisons "
            "(Holm). Other gaps and every contrast in the table are not.",
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
        notes = {axis: mark(data.standing, judge, axis) for axis in data.standing.get(judge, {}) if "@" not in axis}
        for note in dict.fromkeys(note for note in notes.values() if note.startswith(CANNOT_TELL)):
            titles = ", ".join(f"“{numbers.title(axis)}”" for axis, own in notes.items() if own == note)
            yield Caveat(f"{judge} {note}.", f"There it was not validated for {titles}: no difference means nothing.")
    for answers in data.behaviour.control_pairs if data.behaviour else ():
        if answers.alarm:
            yield Caveat(
                f"{answers.judge} failed its control pairs.",
                f"{answers.alarm} Nothing on this page rests on it.",
            )
    if data.behaviour and (warnings := data.behaviour.warnings):
        yield Caveat("Some combined scores lack a judge.", " ".join(warnings))
    if mixed := [editor for editor in data.editors if editor.mixed_weights]:
        yield Caveat(
            "An editor's weights changed during the run.",
            "; ".join(f"{editor.name}: {editor.weights}" for editor in mixed)
            + ". Edits of different weights are mixed.",
        )
    if data.behaviour and (changed := list(drifted(data.behaviour.models))):
        yield Caveat(
            "A judge was not the model that was asked for, or not one model throughout.",
            "; ".join(str(names) for names in changed) + ". Scores of different models are mixed.",
        )
    if judges and not data.against_people:
        yield Caveat("Judges are taken at their word.", "No comparison with people is part of this report.")
    if data.raters:
        yield Caveat("Raters were checked.", " ".join(data.raters))
    if data.raters_saw:
        yield Caveat(
            "Raters saw a part of the edits."
            if data.stands_for_all
            else "Raters saw edits that were not drawn at random.",
            " ".join(data.raters_saw)
            + (
                " Their plain means and the agreement with them are about these edits; the table `corrected` weighs "
                "each edit by its chance."
                if data.stands_for_all
                else " Means of their ratings and the agreement with them say nothing about the others; `gate` does "
                "not decide by them."
            ),
        )
    yield from _mitigation(data)


def _mitigation(data: ReportData) -> Iterator[Caveat]:
    effects = [effect for effect in data.mitigation if isinstance(effect, PairedEffect)]
    if effects and not any(isinstance(effect.beyond_untreated, Interval) for effect in effects):
        yield Caveat(
            "No edit was run again untreated.",
            "If the edits were chosen because their baseline was bad, running them again improves them by itself; "
            "this report cannot tell that from the arm’s own effect.",
        )
