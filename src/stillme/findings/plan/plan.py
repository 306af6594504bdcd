"""The plan of an audit, for people and for programs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from stillme import audit as audits
from stillme.audit import Audit
from stillme.audit.loading import refusals
from stillme.core.errors import StillmeError
from stillme.core.tables import aligned, counted
from stillme.core.types import plain
from stillme.estimates import numbers
from stillme.findings.plan.analysis import (
    DetectableGap,
    PowerAnalysis,
    RatingsNeeded,
    Requirement,
    RoleDeviation,
)
from stillme.findings.plan.assumptions import Assumptions, PlanOptions, assume
from stillme.findings.plan.costs import Bill, Bills, bills
from stillme.findings.plan.new_audit import larger_set
from stillme.findings.plan.power import HALF_WIDTH, JUDGE_CORRELATION, Terms
from stillme.runs import RecordedRun
from stillme.runs.status import count
from stillme.runs.store import Store
from stillme.work.spending import unknown_prices

_READ_POWER = (
    "If 30 % of edits turn people into the reference group: one group of 12 portraits and 6 prompts shows it in "
    "about 65 % of audits, six such groups together in nearly all (simulated, with a reader that is right in 80 %)"
)
"""By tests/estimates/test_directions.py."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditPlan:
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
        work, kinds = self.bills, ("editors", "judges", "extractors", "control_pairs", "readers")
        bills = {name: getattr(work, name) for name in kinds if work.readers or name != "readers"}
        return plain(
            {
                **{name: getattr(self, name) for name in ("title", "file", "portraits", "identities", "prompts")},
                "larger_set": self.larger_set or None,
                "notes": self.notes,
                "requests": work.requests,
                "edits": work.edits,
                "judge_calls": work.questions,
                "dollars": work.dollars,
                "dollars_unknown": work.unpriced,
                "gpu_hours": work.gpu_hours,
                **bills,
                "assumed": {
                    **{name: getattr(self.assumed, name) for name in ("origin", "rates", "sd")},
                    "sd_icc": self.assumed.sd_icc.icc,
                    **{name: getattr(self.terms, name) for name in ("power", "confidence")},
                },
                "detectable": self.detectable,
                "roles": self.role_deviations,
                "wished": self.requirements,
                "finished": self.finished,
                "ratings": self.ratings,
                "would_be_refused": self.obstacles,
            }
        )

    def as_text(self, *, power: bool = False) -> str:
        """About ten lines; with `power`, also every gap, and what human ratings would show."""
        lines = [self.title, *self._work(), *self._detected()]
        lines += self._needed() if self.requirements else []
        lines += self._power() if power else []
        if self.obstacles:
            lines += ["", "Would be refused on this machine; correct it before `stillme run`"]
            lines += [f"  {sentence}" for sentence in self.obstacles]
        return "\n".join(lines)

    def _work(self) -> Iterator[str]:
        work = self.bills
        by_arm = ", ".join(f"{arm} {count:,}" for arm, count in work.requests.items())
        people = f" of {counted(self.identities, 'identity', 'identities')}" if self.identities < self.portraits else ""
        portraits, prompts = counted(self.portraits, "portrait"), counted(self.prompts, "prompt")
        yield f"  {portraits}{people}, {prompts}, {counted(len(work.editors), 'editor')}"
        yield f"  {counted(work.edits, 'edit')} ({by_arm}), {counted(work.questions, 'judge call')}"
        for factor, units, noun in self.few_units:
            yield f"  {factor}: a group has {units} {noun}, too few for a verdict; gaps get a number only"
        yield from (f"  {note}" for note in (self.larger_set, *self.notes) if note)
        kinds = (
            (work.editors, ""),
            (work.extractors, " (descriptions of portraits)"),
            (work.judges, ""),
            (work.control_pairs, " (control pairs)"),
            (work.readers, " (readings of single pictures, at most)"),
        )
        yield from aligned([_billed(bill, what) for bills, what in kinds for bill in bills], right=(1, 2, 3))
        scope = f"{'with' if work.gpu_dollars else 'without'} GPU time"
        known = f"${work.dollars:,.2f}, {scope}"
        if work.unpriced:
            cost = f"At least {known}" if work.dollars else "Total cost unknown"
            yield f"  {cost}: no price for {', '.join(work.unpriced)}"
        else:
            yield f"  Cost: {known}"
        if any(bill.gpu for bill in work.editors):
            yield f"  GPU hours: {'unknown' if work.gpu_hours is None else f'{work.gpu_hours:,.1f}'}"

    def _detected(self) -> Iterator[str]:
        share = f"in {100 * self.terms.power:.0f} % of audits"
        for deviation in self.role_deviations:
            distance = _size(deviation.departure, rate=True)
            yield f"  Detects {share}: {deviation.editor}'s role adherence {distance} away from 50 %"
        rate = self.assumed.rates[0].rate
        gaps = [gap for gap in self.detectable if gap.base == rate]
        if gaps:
            seen = ", ".join(f"{_size(gap.gap.value, rate=True)} by {gap.factor}" for gap in gaps)
            yield f"  Detects {share}, for a rate of {100 * rate:.0f} %: gaps from {seen} (--power shows more)"

    def _needed(self) -> Iterator[str]:
        yield f"\nTo detect {100 * self.requirements[0].gap:g} points between two groups"
        heads = ("factor", "of", "portraits a group", "in all", "edits", "judge calls", "known dollars")
        yield from aligned(map(_requirement_row, self.requirements), heads, right=range(2, 7))

    def _power(self) -> Iterator[str]:
        if self.bills.readers:
            yield f"\n{_READ_POWER}"
        if self.detectable:
            yield f"\nSmallest gap between two groups that is detected in {100 * self.terms.power:.0f} % of audits"
            assumed = self.assumed.rates[0]
            spread = (
                "" if assumed.icc_low == assumed.icc_high else f" ({assumed.icc_low:.2f} to {assumed.icc_high:.2f})"
            )
            values = f"ICC {assumed.icc:.2f}{spread}, SD of single scores {self.assumed.sd:.2f}"
            yield f"  assumed ({self.assumed.origin}): {values}"
            heads = ("factor", "groups", "portraits each", "of", "gap", "range", "by Holm")
            yield from aligned(map(_gap_row, self.detectable), heads, right=(1, 2))
        if needed := self.ratings:
            low, high = JUDGE_CORRELATION
            yield f"\nHuman ratings for ±{100 * HALF_WIDTH:g} points on a corrected rate of {needed.rate:.0%}"
            yield f"  {_number_needed(needed)} (correlation of judge and raters {high:g} to {low:g})"


def plan_audit(path: Path, options: PlanOptions | None = None) -> AuditPlan:
    """Plan the audit at `path`; nothing is run, and neither keys nor extras are needed."""
    options = options or PlanOptions()
    loaded: Audit = audits.load(path, ready=False)
    with ExitStack() as stack:

        @cache
        def opened(folder: Path) -> RecordedRun:
            return stack.enter_context(RecordedRun.open(folder))

        return _planned(loaded, options, opened)


def _planned(loaded: Audit, options: PlanOptions, opened: Callable[[Path], RecordedRun]) -> AuditPlan:
    reused = loaded.config.reuse.runs if loaded.config.reuse else ()
    assumed = assume(options, opened, [loaded.folder, *(loaded.base / run for run in reused)])
    terms = Terms(confidence=loaded.config.estimates.confidence, power=options.power)
    analysis = PowerAnalysis(loaded, assumed, terms)
    work = bills(loaded, options, assumed)
    return AuditPlan(
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
        ratings=analysis.ratings_needed(),
        finished=_finished(loaded.folder, opened),
        obstacles=tuple(obstacles(loaded)),
    )


def _finished(folder: Path, opened: Callable[[Path], RecordedRun]) -> bool:
    # A run that cannot be read is not finished; `stillme run` says what is wrong with it.
    with suppress(StillmeError):
        if Store.exists(folder):
            return count(opened(folder))[0].complete
    return False


def _billed(bill: Bill, what: str) -> tuple[str, ...]:
    dollars = f"about ${bill.dollars:,.2f}" if bill.dollars else ""
    return bill.name + what, f"{bill.calls:,}", dollars, f"{bill.hours:,.1f} h" if bill.hours else "", bill.note


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


def _number_needed(needed: RatingsNeeded) -> str:
    if needed.low is None or needed.high is None:
        return f"more than all {needed.edits:,} edits of an editor; more portraits are needed"
    number = f"{needed.low:,} to {needed.high:,}" if needed.low < needed.high else f"{needed.low:,}"
    return f"{number} of {needed.edits:,} edits of each editor"


def _size(gap: float | None, *, rate: bool) -> str:
    return "none" if gap is None else numbers.points(gap) if rate else numbers.decimal(gap, 2)


def obstacles(audit: Audit) -> Iterator[str]:
    """Why `stillme run` would refuse this audit: the same checks, of settings, keys, packages and this machine."""
    yield from map(str, refusals(audit.file))
    if problem := unknown_prices(audit, audit.config.budget.dollars):
        yield problem
