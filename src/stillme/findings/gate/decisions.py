"""Check a run's estimates against rules."""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from pydantic import ValidationError

from stillme import estimates
from stillme.audit.config import ClaimsSection
from stillme.audit.design import Claim
from stillme.audit.loading import FILE
from stillme.audit.rules import Rule, parse_rule
from stillme.core import rubric
from stillme.core.errors import StillmeError, UnknownName, did_you_mean
from stillme.core.files import is_bundle
from stillme.core.rubric import SHIFTS, rate_of
from stillme.core.types import Arm, Estimate, Interval
from stillme.estimates import Disparity, numbers
from stillme.estimates.headlines import axis_of, stands, uneven
from stillme.estimates.people import corrected as correct_by_people
from stillme.estimates.quantities import EDIT_RATES, Exclusion
from stillme.findings.calibration import standing_of
from stillme.findings.compare import ChosenEditor
from stillme.findings.gate.baseline import Baseline
from stillme.findings.gate.verdicts import (
    Check,
    Decision,
    Verdicts,
    against_limit,
    caught,
    corrected,
    too_many_failed,
    too_many_unrated,
    unvalidated,
    without_number,
)
from stillme.runs import RecordedRun
from stillme.runs.gathering import chosen_how
from stillme.runs.readings import NOT_READ

_RATE = "_rate"
_UNSEEN = Exclusion.NOT_JUDGED


class _NoNumber(Exception):
    """The run has no number for a rule."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """Rules from the command line, in addition to the audit's [claims] section."""

    rules: Sequence[str] = ()
    baseline: RecordedRun | None = None
    margins: Sequence[str] = ()
    common: bool = False
    """Whether the comparison with the baseline is limited to what both share."""
    allow_uncalibrated: bool = False
    """Whether numbers of judges that are not validated may decide."""
    allow_inconclusive: bool = False
    """Whether an inconclusive gate ends with 0."""


def claims_of(run: RecordedRun) -> ClaimsSection:
    """The [claims] table of audit.toml as it is now: rules may be added after a run."""
    file = run.folder / FILE
    if not file.is_file():
        return ClaimsSection.model_validate(run.design.resolved.get("claims") or {})
    try:
        return ClaimsSection.model_validate(tomllib.loads(file.read_text("utf-8-sig")).get("claims") or {})
    except ValidationError as error:
        problems = "; ".join(detail["msg"].removeprefix("Value error, ") for detail in error.errors())
        raise StillmeError(f"The [claims] table of {file} is invalid: {problems}") from None
    except (OSError, ValueError) as error:
        raise StillmeError(f"{file} cannot be read: {error}") from None


def baseline_folder(run: RecordedRun) -> Path | None:
    """The baseline that audit.toml names, if it names one."""
    named = claims_of(run).baseline
    if not named:
        return None
    data = tomllib.loads((run.folder / FILE).read_text("utf-8-sig")) if (run.folder / FILE).is_file() else {}
    return run.folder / str(data.get("base", "")) / named


def gate(run: RecordedRun, asked: Asked) -> Verdicts:
    """Estimate the rules' quantities, and decide each rule."""
    section = claims_of(run)
    rules = [parse_rule(text) for text in (*section.rules, *asked.rules)]
    margins = [parse_rule(text) for text in (*section.margins, *asked.margins)]
    _require_something(rules, margins, asked.baseline)
    deciding = _Deciding(run, allow_uncalibrated=asked.allow_uncalibrated)
    baseline = _baseline(run, asked)
    confidence = run.settings.confidence
    decisions = [deciding.decide(rule, confidence) for rule in rules]
    if baseline is not None:
        decisions += [baseline.decide(margin, deciding.quantity(margin), confidence) for margin in margins]

    def at(decision: Decision, wider: float) -> Decision:
        if decision.against and baseline is not None:
            return baseline.decide(decision.rule, decision.quantity, wider)
        return deciding.decide(decision.rule, wider)

    recorded, now = {claim.rule: claim for claim in run.design.claims}, (*section.rules, *section.margins)

    def fixed(rule: str) -> str:
        """When a claim was fixed; empty for a rule that is not one."""
        status = recorded[rule].status if rule in recorded else "added later"
        return status if rule in now else ""

    return Verdicts(
        title=run.title,
        audit_hash=run.design.hash,
        allow_inconclusive=asked.allow_inconclusive,
        confidence=confidence,
        decisions=tuple(
            replace(decision, fixed=fixed(decision.rule.written)) for decision in corrected(decisions, confidence, at)
        ),
        notes=(*_dropped(recorded, now), *_origin_of(asked.baseline)),
    )


def _dropped(recorded: Mapping[str, Claim], now: Sequence[str]) -> Iterator[str]:
    """A claim that was fixed before the first edit does not vanish without a word."""
    for rule, claim in recorded.items():
        if rule not in now and not claim.edits:
            yield f"`{rule}` was fixed before the first edit and is no longer in [claims]; it was not checked."


def _origin_of(baseline: RecordedRun | None) -> Iterator[str]:
    """A bundle proves where it comes from only to those who check it."""
    if baseline is not None and is_bundle(baseline.opened_from):
        file = baseline.opened_from
        yield f"The baseline {file} was not authenticated here: check it with `stillme verify {file} --root HEX`."


def _baseline(run: RecordedRun, asked: Asked) -> Baseline | None:
    if asked.baseline is None:
        return None
    candidates = [ChosenEditor(run=run, editor=editor) for editor in run.design.editors]
    return Baseline(asked.baseline, candidates, common=asked.common, allow_uncalibrated=asked.allow_uncalibrated)


def _require_something(rules: Sequence[Rule], margins: Sequence[Rule], baseline: RecordedRun | None) -> None:
    if margins and baseline is None:
        raise StillmeError("A margin needs a baseline run. Name it with --baseline RUN.")
    if baseline is not None and not margins:
        raise StillmeError('A baseline needs a margin. Give --margin "soft_erasure <= 0.02", or `margins` in [claims].')
    if not rules and not margins:
        raise StillmeError(
            'No rule is given. Add one, such as --rule "race_changed.disparity <= 0.05", or a [claims] section with '
            "rules in audit.toml."
        )


class _Deciding:
    """One run's estimates, made when a rule first needs them."""

    def __init__(self, run: RecordedRun, *, allow_uncalibrated: bool) -> None:
        self._run, self._accept = run, allow_uncalibrated
        self._standing = standing_of(run)
        self._by_axis: dict[tuple[str, float], list[Estimate]] = {}
        self._headline = {(score.judge, score.axis) for score in estimates.headline(run.results.scores)}
        # What a judge of the design would rate counts as known, even where nothing is rated yet.
        axes = {axis for judge in run.judges for axis in judge.capabilities.axes}
        axes |= {score.axis for score in run.results.scores}
        rates = [name for name, rate in rubric.load().rates.items() if rate.axis in axes]
        self._known = [*EDIT_RATES, *sorted(axes), *rates, *(SHIFTS if run.design.readers else ())]

    def quantity(self, rule: Rule) -> str:
        """The table's name of what a rule is about; `race_change_rate` also means the axis's first rate."""
        name = rule.quantity
        if name in self._known:
            return name
        stem = name.removesuffix(_RATE)
        rates = [known for known in self._known if (rate := rate_of(known)) and stem in (known, rate.axis)]
        if name.endswith(_RATE) and rates:
            return rates[0]
        raise UnknownName.among("quantity", name, self._known, f"This run has {', '.join(self._known)}.")

    def decide(self, rule: Rule, confidence: float) -> Decision:
        """By intervals at this confidence."""
        quantity = self.quantity(rule)
        require_meant(rule, quantity)
        try:
            chosen = self._chosen(rule, self._estimates(quantity, confidence))
            sampled = [self._sampled(estimate, confidence) for estimate in chosen]
        except _NoNumber as error:
            return Decision(rule=rule, quantity=quantity, against="", checks=(without_number(str(error)),))
        return Decision(
            rule=rule, quantity=quantity, against="", checks=tuple(self._check(rule, *each) for each in sampled)
        )

    def _estimates(self, quantity: str, confidence: float | None = None) -> list[Estimate]:
        """Only what the rule's axis gives: numbers do not depend on which others are computed."""
        if quantity in SHIFTS:
            return self._shifts(quantity, confidence or self._run.settings.confidence)
        axis, settings = axis_of(quantity), self._run.settings
        key = axis, confidence or settings.confidence
        if key not in self._by_axis:
            results = self._run.results
            scores = [score for score in results.scores if score.axis == axis]
            self._by_axis[key] = estimates.estimate(results.edits, scores, replace(settings, confidence=key[1]))
        return [estimate for estimate in self._by_axis[key] if estimate.quantity == quantity]

    def _shifts(self, quantity: str, confidence: float) -> list[Estimate]:
        """Of readers, who are their own control: no calibration is asked of them."""
        readings = self._run.readings
        return readings.estimates(quantity, confidence) if readings else []

    def _chosen(self, rule: Rule, offered: Sequence[Estimate]) -> list[Estimate]:
        scope = "all" if rule.statistic == "mean" else rule.statistic
        kept = [estimate for estimate in offered if estimate.scope == scope]
        if not kept:
            raise _NoNumber(f"no {rule.statistic} of {rule.quantity} could be estimated")
        kept = _narrowed(kept, "editor", rule.editor, lambda estimate: estimate.editor, known=True)
        kept = _narrowed(kept, "arm", rule.arm, lambda estimate: estimate.arm, known=True)
        kept = _narrowed(kept, "factor", rule.factor, lambda estimate: estimate.factor, known=True)
        kept = _narrowed(kept, "judge", rule.judge, lambda estimate: estimate.judge)
        kept = _narrowed(kept, "group", rule.group, _level)
        if not rule.arm and any(estimate.arm == Arm.BASELINE for estimate in kept):
            kept = [estimate for estimate in kept if estimate.arm == Arm.BASELINE]
        if not rule.judge and kept[0].quantity not in SHIFTS:
            axis = axis_of(kept[0].quantity)
            kept = [estimate for estimate in kept if not estimate.judge or (estimate.judge, axis) in self._headline]
        return kept

    def _sampled(self, estimate: Estimate, confidence: float) -> tuple[Estimate, str, str]:
        """What people's ratings of a part of the edits say of all, with words for it, or why they say nothing."""
        results, missing = self._run.results, estimate.excluded.get(Exclusion.NOT_JUDGED, 0)
        if estimate.judge not in self._run.design.people or not missing:
            return estimate, "", ""
        how, stands_for_all = chosen_how(results.draws.get(estimate.judge, ()))
        part = f"rated {estimate.edits:,} of {estimate.edits + missing:,}, {how}"
        if not stands_for_all:
            return estimate, "", part
        axis = axis_of(estimate.quantity)
        if estimate.scope == "disparity" or rubric.load().is_nominal(axis):
            unequal = results.chances is not None
            return estimate, part, f"{part}; this number cannot be corrected for them" if unequal else ""
        rated = next(score for score in results.scores if (score.judge, score.axis) == (estimate.judge, axis))
        helper = estimates.one_judge(results.scores, axis)
        # Without a model, the same for every edit: its weight is 0, and people alone remain.
        judge = helper or replace(rated, judge="", kind="model", value=np.ones(len(rated.value)))
        settings = replace(self._run.settings, confidence=confidence)
        for number in correct_by_people(
            results.edits, judge, rated, settings, quantities=[estimate.quantity], chances=results.chances
        ):
            same = ("scope", "editor", "arm", "factor", "group")
            if all(getattr(number, name) == getattr(estimate, name) for name in same):
                by = f", corrected with {helper.judge}" if helper and number.weight else ""
                return replace(estimate, outcome=number.outcome), part + by, ""
        return estimate, part, f"{part}; no corrected number could be estimated"

    def _check(self, rule: Rule, estimate: Estimate, part: str, chosen: str) -> Check:
        note = ""
        if estimate.quantity not in SHIFTS:
            note = estimates.mark(self._standing, estimate.judge, estimate.quantity, estimate)
        verdict, reason = against_limit(
            estimate.outcome,
            rule.sign,
            rule.limit,
            incomplete=self._incomplete(estimate) or caught(note),
            unvalidated=chosen or self._uneven(estimate, rule) or ("" if self._accept else unvalidated(note)),
        )
        return Check(
            editor=estimate.editor,
            arm=estimate.arm,
            judge=estimate.judge,
            factor=estimate.factor,
            group=estimate.group,
            outcome=estimate.outcome,
            verdict=verdict,
            reason=reason,
            note=note,
            portraits=estimate.portraits,
            edits=estimate.edits,
            detail="; ".join(filter(None, (part, _extremes(estimate)))),
            excluded={reason: count for reason, count in estimate.excluded.items() if not part or reason != _UNSEEN},
        )

    def _uneven(self, estimate: Estimate, rule: Rule) -> str:
        """Why groups do not compare: the judge is silent about some more than about others."""
        if estimate.scope not in ("disparity", "contrast"):
            return ""
        if isinstance(estimate, Disparity) and rule.sign == "<=" and stands(estimate, rule.limit):
            return ""
        return next(iter(uneven(self._groups_of(estimate)).values()), "")

    def _incomplete(self, estimate: Estimate) -> str:
        """What is still missing, in words; judges that rate only a part by design do not count."""
        waiting = ["edit missing", NOT_READ]
        able = {judge.name: judge.capabilities for judge in self._run.judges}.get(estimate.judge)
        if able is None or (able.kind != "person" and not able.given):
            waiting.append("not judged")
        left = {reason: estimate.excluded[reason] for reason in waiting if reason in estimate.excluded}
        if left:
            return "the run is not finished: " + ", ".join(f"{reason} {count:,}" for reason, count in left.items())
        if estimate.factor and (absent := self._absent_groups(estimate)):
            return f"no number for {', '.join(absent)}"
        failed = sum(estimate.excluded.get(reason, 0) for reason in (Exclusion.EDIT_FAILED, Exclusion.JUDGE_FAILED))
        total = estimate.edits + sum(estimate.excluded.values())
        return too_many_failed(failed, total) or self._hardly_rated(estimate)

    def _hardly_rated(self, estimate: Estimate) -> str:
        """The first group, or everyone, of whom the judge rated less than half."""
        for part in [estimate] if estimate.scope in ("all", "group") else self._groups_of(estimate):
            abstained = part.excluded.get(Exclusion.ABSTAINED, 0)
            if reason := too_many_unrated(abstained, abstained + part.edits, part.group):
                return reason
        return ""

    def _groups_of(self, estimate: Estimate) -> list[Estimate]:
        """The same quantity of each group of its factor."""
        return [
            other
            for other in self._estimates(estimate.quantity)
            if other.scope == "group"
            and (other.editor, other.arm, other.judge, other.factor)
            == (estimate.editor, estimate.arm, estimate.judge, estimate.factor)
        ]

    def _absent_groups(self, estimate: Estimate) -> list[str]:
        """Groups of the design that have no number: a gap between the others is not the gap that was asked for."""
        if estimate.scope == "group":
            return []
        levels = {portrait.attributes.get(estimate.factor, "") for portrait in self._run.design.portraits} - {""}
        numbered = {other.group for other in self._groups_of(estimate) if isinstance(other.outcome, Interval)}
        if estimate.scope == "contrast":
            level, _, reference = estimate.group.rpartition(" - ")
            levels &= {level, reference} if reference in levels else levels
        return sorted(levels - numbered)


def require_meant(rule: Rule, quantity: str) -> None:
    """Refuse a limit that makes no sense for the quantity."""
    if numbers.is_rate(quantity):
        signed = rule.statistic == "contrast"
        low, high = (-1.0 if signed else 0.0), 1.0
        if not low <= rule.limit <= high:
            hint = f"Write {rule.limit:g} % as `{rule.limit:g}%`." if 1 < abs(rule.limit) <= 100 else ""
            raise StillmeError(
                f"`{rule}`: {quantity} is a rate, so its limit must be between {low:g} and {high:g}. {hint}".rstrip()
            )
    elif rule.percent:
        raise StillmeError(f"`{rule}`: {quantity} is not a rate, so its limit cannot be a percentage. Leave out the %.")
    elif rule.statistic == "disparity" and rule.limit < 0:
        raise StillmeError(f"`{rule}`: a disparity is never negative, so its limit must be 0 or more.")


def _narrowed(
    offered: Sequence[Estimate], kind: str, wanted: str, of: Callable[[Estimate], str], *, known: bool = False
) -> list[Estimate]:
    """Those that the rule names. With `known`, an unknown name is an error in the rule; otherwise it is no data."""
    if not wanted:
        return list(offered)
    kept = [estimate for estimate in offered if of(estimate) == wanted]
    if not kept:
        names = sorted({of(estimate) for estimate in offered if of(estimate)})
        if known:
            raise UnknownName.among(kind, wanted, names, f"There are {', '.join(names) or 'none'} for this rule.")
        raise _NoNumber(
            f"no {kind} {wanted!r} has a number here.{did_you_mean(wanted, names)} "
            f"There are {', '.join(names) or 'none'}"
        )
    return kept


def _extremes(estimate: Estimate) -> str:
    if not isinstance(estimate, Disparity) or estimate.lowest == estimate.highest:
        return ""
    return f"lowest {estimate.lowest}, highest {estimate.highest}"


def _level(estimate: Estimate) -> str:
    return estimate.group.rpartition(" - ")[0] if estimate.scope == "contrast" else estimate.group
