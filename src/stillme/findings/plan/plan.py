"""The plan of an audit, for people and for programs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from stillme import audit as audits
from stillme.audit import Audit
from stillme.audit.loading import refusals
from stillme.core.errors import StillmeError
from stillme.estimates import numbers
from stillme.findings.plan.analysis import PowerAnalysis
from stillme.findings.plan.answers import Alternative, DetectableGap, RatingsNeeded, Requirement, RoleDeviation
from stillme.findings.plan.assumptions import Assumptions, EarlierRuns, PlanOptions, assume
from stillme.findings.plan.costs import Bill, Bills, bills
from stillme.findings.plan.power import HALF_WIDTH, JUDGE_CORRELATION, Terms
from stillme.findings.plan.starting import larger_set
from stillme.runs.status import count
from stillme.runs.store import Store
from stillme.work.spending import unknown_prices

_READ_POWER = (
    "If 30 % of edits turn people into the reference group: one group of 12 portraits and 6 prompts shows it in",
    "about 65 % of audits, six such groups together in nearly all (simulated, with a reader that is right in 80 %)",
)
"""By tests/estimates/test_directions.py."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What an audit will do, cost and see."""

    title: str
    file: Path
    portraits: int
    prompts: int
    bills: Bills
    assumed: Assumptions
    terms: Terms
    detectable: tuple[DetectableGap, ...]
    role_deviations: tuple[RoleDeviation, ...]
    requirements: tuple[Requirement, ...]
    alternatives: tuple[Alternative, ...]
    ratings: RatingsNeeded | None
    """None where there is nothing that human ratings could correct."""
    finished: bool = False
    """Whether the audit's own run has every edit and judgement."""
    obstacles: tuple[str, ...] = ()
    """What would keep `stillme run` from working on this machine."""
    identities: int = 0
    """People whom the portraits show."""
    few_units: tuple[tuple[str, int, str], ...] = ()
    """Factors whose gaps get a number and no verdict: the units of their smallest group, and what a unit is."""
    larger_set: str = ""
    """What more identities of the embedded set would bring, and cost."""
    notes: tuple[str, ...] = ()
    """What `stillme run` will say of an editor at its start, such as how many files were found."""

    def as_json(self) -> dict[str, Any]:
        """For `--json`."""
        return {
            "title": self.title,
            "file": str(self.file),
            "portraits": self.portraits,
            "identities": self.identities,
            "larger_set": self.larger_set or None,
            "notes": list(self.notes),
            "prompts": self.prompts,
            "requests": self.bills.requests,
            "edits": self.bills.edits,
            "judge_calls": self.bills.questions,
            "dollars": self.bills.dollars,
            "dollars_unknown": list(self.bills.unpriced),
            "gpu_hours": self.bills.gpu_hours,
            "editors": [bill.as_json() for bill in self.bills.editors],
            "judges": [bill.as_json() for bill in self.bills.judges],
            "extractors": [bill.as_json() for bill in self.bills.extractors],
            "control_pairs": [bill.as_json() for bill in self.bills.control_pairs],
            **({"readers": [bill.as_json() for bill in self.bills.readers]} if self.bills.readers else {}),
            "assumed": self.assumed.as_json() | {"power": self.terms.power, "confidence": self.terms.confidence},
            "detectable": [gap.as_json() for gap in self.detectable],
            "roles": [deviation.as_json() for deviation in self.role_deviations],
            "wished": [requirement.as_json() for requirement in self.requirements],
            "designs": [alternative.as_json() for alternative in self.alternatives],
            "finished": self.finished,
            "ratings": self.ratings.as_json() if self.ratings else None,
            "would_be_refused": list(self.obstacles),
        }

    def as_text(self) -> str:
        """For people."""
        return "\n".join(
            [
                self.title,
                *self._work(),
                *self._detected(),
                *self._needed(),
                *self._designs(),
                *self._rated(),
                *self._refused(),
            ]
        )

    def _work(self) -> Iterator[str]:
        work = self.bills
        by_arm = ", ".join(f"{arm} {count:,}" for arm, count in work.requests.items())
        people = f" of {self.identities:,} identities" if self.identities < self.portraits else ""
        yield f"  {self.portraits:,} portraits{people}, {self.prompts:,} prompts, {len(work.editors)} editors"
        for factor, units, noun in self.few_units:
            yield f"  {factor}: a group has {units} {noun}, too few for a verdict; gaps get a number only"
        if self.larger_set:
            yield f"  {self.larger_set}"
        yield from (f"  {note}" for note in self.notes)
        yield f"  {work.edits:>9,} edits ({by_arm})"
        yield from (_billed(bill) for bill in work.editors)
        if work.extractors:
            yield f"  {sum(bill.calls for bill in work.extractors):>9,} descriptions of portraits"
            yield from (_billed(bill) for bill in work.extractors)
        yield f"  {work.questions:>9,} judge calls"
        yield from (_billed(bill) for bill in work.judges)
        if work.control_pairs:
            yield f"  {sum(bill.calls for bill in work.control_pairs):>9,} control pairs, to watch the judges"
            yield from (_billed(bill) for bill in work.control_pairs)
        if work.readers:
            yield f"  {sum(bill.calls for bill in work.readers):>9,} readings of single pictures, at most"
            yield from (_billed(bill) for bill in work.readers)
            yield from (f"{'':>12}{line}" for line in _READ_POWER)
        joined = ", plus" if work.dollars else ":"
        besides = f"{joined} {', '.join(work.unpriced)} (price unknown)" if work.unpriced else ""
        known = f"${work.dollars:,.2f}" if work.dollars or not work.unpriced else "unknown"
        yield f"  {known:>9} {'with' if work.gpu_dollars else 'without'} GPU time{besides}"
        if any(bill.gpu for bill in work.editors):
            hours = work.gpu_hours
            yield f"  {'unknown' if hours is None else f'{hours:,.1f}':>9} GPU hours"

    def _detected(self) -> Iterator[str]:
        if self.role_deviations:
            yield ""
            yield f"Smallest distance of role adherence from 50% that is detected in {self.terms.power:.0%} of audits"
            head = ("editor", "requests", "portraits", "distance")
            yield from _table(head, [_deviation_row(deviation) for deviation in self.role_deviations])
        if not self.detectable:
            return
        yield ""
        yield f"Smallest gap between two groups that is detected in {self.terms.power:.0%} of audits"
        assumed = self.assumed.rates[0]
        spread = "" if assumed.low == assumed.high else f" ({assumed.low:.2f} to {assumed.high:.2f})"
        values = f"ICC {assumed.icc:.2f}{spread}, SD of single scores {self.assumed.sd:.2f}"
        yield f"  assumed ({self.assumed.origin}): {values}"
        yield from _table(
            ("factor", "groups", "portraits each", "of", "gap", "range", "by Holm"),
            [_gap_row(gap) for gap in self.detectable if gap.against == "another group"],
        )

    def _needed(self) -> Iterator[str]:
        if self.requirements:
            yield ""
            yield f"To detect {100 * self.requirements[0].gap:g} points between two groups"
            head = ("factor", "of", "portraits a group", "in all", "edits", "judge calls", "known dollars")
            yield from _table(head, [_requirement_row(requirement) for requirement in self.requirements])

    def _designs(self) -> Iterator[str]:
        if not self.alternatives:
            return
        yield ""
        rate = self.assumed.rates[0].rate
        yield f"Sparser designs, and more portraits with the same number of edits (rate {rate:.0%}, first factor)"
        head = ("edits each", "[sample] size", "of edits", "of information", "gap", "same edits buy", "gap then")
        yield from _table(head, [_design_row(design) for design in self.alternatives])

    def _rated(self) -> Iterator[str]:
        needed = self.ratings
        if needed is None:
            return
        low, high = JUDGE_CORRELATION
        yield ""
        yield f"Human ratings for ±{100 * HALF_WIDTH:g} points on a corrected rate of {needed.rate:.0%}"
        yield f"  {_number_needed(needed)} (correlation of judge and raters {high:g} to {low:g})"

    def _refused(self) -> Iterator[str]:
        if self.obstacles:
            yield ""
            yield "Would be refused on this machine; correct it before `stillme run`"
            yield from (f"  {sentence}" for sentence in self.obstacles)


def plan_audit(path: Path, options: PlanOptions | None = None) -> Plan:
    """Plan the audit at `path`; nothing is run, and neither keys nor extras are needed."""
    options = options or PlanOptions()
    loaded: Audit = audits.load(path, ready=False)
    with EarlierRuns() as earlier:
        return _planned(loaded, options, earlier)


def _planned(loaded: Audit, options: PlanOptions, earlier: EarlierRuns) -> Plan:
    reused = loaded.config.reuse.runs if loaded.config.reuse else ()
    assumed = assume(options, earlier, [loaded.folder, *(loaded.base / run for run in reused)])
    terms = Terms(confidence=loaded.config.estimates.confidence, power=options.power)
    analysis = PowerAnalysis(loaded, assumed, terms)
    work = bills(loaded, options, assumed)
    return Plan(
        title=loaded.config.title,
        file=loaded.file,
        portraits=len(loaded.portraits),
        identities=analysis.identities,
        few_units=tuple(analysis.few_units()),
        larger_set=larger_set(loaded.config.portraits.source, loaded.factors, work.edits),
        notes=tuple(loaded.notes()),
        prompts=len(loaded.prompts),
        bills=work,
        assumed=assumed,
        terms=terms,
        detectable=tuple(analysis.detectable()),
        role_deviations=tuple(analysis.role_deviations()),
        requirements=tuple(analysis.requirements(options.detect, work)) if options.detect else (),
        alternatives=tuple(analysis.alternatives()),
        ratings=analysis.ratings_needed(),
        finished=_finished(loaded.folder, earlier),
        obstacles=tuple(obstacles(loaded)),
    )


def _finished(folder: Path, earlier: EarlierRuns) -> bool:
    # A run that cannot be read is not finished; `stillme run` says what is wrong with it.
    with suppress(StillmeError):
        if Store.exists(folder):
            return count(earlier.at(folder))[0].complete
    return False


def _billed(bill: Bill) -> str:
    parts = [f"{'':>4}{bill.name:<24}{bill.calls:>9,}"]
    if bill.dollars:
        parts.append(f"about ${bill.dollars:,.2f}")
    if bill.hours:
        parts.append(f"{bill.hours:,.1f} h")
    return "   ".join([*parts, *([bill.note] if bill.note else [])])


def _requirement_row(requirement: Requirement) -> tuple[str, ...]:
    head = (requirement.factor, f"rate {requirement.base:.0%}")
    if requirement.per_group is None:
        return (*head, "no number is enough", "", "", "", "")
    return (
        *head,
        f"{requirement.per_group:,}",
        f"{requirement.portraits:,}",
        f"{requirement.edits:,}",
        f"{requirement.judge_calls:,}",
        f"${requirement.dollars:,.2f}",
    )


def _deviation_row(deviation: RoleDeviation) -> tuple[str, ...]:
    return (
        deviation.editor,
        f"{deviation.requests:,}",
        f"{deviation.portraits:,}",
        _size(deviation.departure, rate=True),
    )


def _gap_row(detectable: DetectableGap) -> tuple[str, ...]:
    gap, rate = detectable.gap, detectable.quantity == "rate"
    return (
        detectable.factor,
        str(detectable.groups),
        str(detectable.portraits),
        f"rate {detectable.base:.0%}" if detectable.base is not None else "mean",
        _size(gap.value, rate=rate),
        f"{_size(gap.low, rate=rate)} to {_size(gap.high, rate=rate)}",
        _size(gap.corrected, rate=rate),
    )


def _design_row(design: Alternative) -> tuple[str, ...]:
    return (
        f"{design.edits_each:.4g}" + (" (now)" if design.chosen else ""),
        f"{design.size:,}",
        f"{design.share:.0%}",
        f"{design.information:.0%}",
        _size(design.gap, rate=True),
        f"{design.portraits:,} portraits",
        _size(design.wider_gap, rate=True),
    )


def _number_needed(needed: RatingsNeeded) -> str:
    if needed.low is None or needed.high is None:
        return f"more than all {needed.edits:,} edits of an editor; more portraits are needed"
    number = f"{needed.low:,} to {needed.high:,}" if needed.low < needed.high else f"{needed.low:,}"
    return f"{number} of {needed.edits:,} edits of each editor"


def _size(gap: float | None, *, rate: bool) -> str:
    return "none" if gap is None else numbers.points(gap) if rate else numbers.decimal(gap, 2)


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> Iterator[str]:
    widths = [max(len(row[place]) for row in (head, *rows)) for place in range(len(head))]
    for row in (head, *rows):
        yield "  " + "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()


def obstacles(audit: Audit) -> Iterator[str]:
    """Why `stillme run` would refuse this audit: the same checks, of settings, keys, packages and this machine."""
    yield from map(str, refusals(audit.file))
    if problem := unknown_prices(audit, audit.config.budget.dollars):
        yield problem
