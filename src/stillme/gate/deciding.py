"""Set a run's estimates against rules."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from stillme import estimates, results, rubric
from stillme.audit import Audit
from stillme.audit.rules import Rule, parse_rule
from stillme.calibration import standing_of
from stillme.comparison import Chosen
from stillme.comparison.changes import is_ensemble
from stillme.errors import StillmeError, UnknownName
from stillme.estimates import Disparity
from stillme.estimates.cuts import rate_of
from stillme.estimates.quantities import EDIT_RATES
from stillme.gate.baseline import Baseline
from stillme.gate.verdicts import Check, Decision, Verdicts, against_limit
from stillme.results import Results, settings_of
from stillme.stages import described
from stillme.store import Store
from stillme.types import Arm, Estimate

_RATE = "_rate"


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """Rules from the command line, beside those of the audit's own [gate] section."""

    rules: Sequence[str] = ()
    baseline: Path | None = None
    margins: Sequence[str] = ()
    strict: bool = False
    common: bool = False
    """Whether the comparison with the baseline is limited to what both share."""


def gate(path: Path, out: Path | None, asked: Asked) -> Verdicts:
    """Load a run, estimate what the rules are about, and decide each."""
    loaded = described.load(path, out=out, ready=False)
    if not Store.exists(loaded.folder):
        raise StillmeError(f"{loaded.folder} has no run yet. `stillme run {path}` starts it.")
    section = loaded.config.gate
    rules = [parse_rule(text) for text in (*(section.rules if section else ()), *asked.rules)]
    margins = [parse_rule(text) for text in (*(section.margins if section else ()), *asked.margins)]
    before = asked.baseline or (loaded.base / section.baseline if section and section.baseline else None)
    _require_something(rules, margins, before)
    with Store.reading(loaded.folder) as store:
        gathered = results.gather(loaded, store)
    run = _Run(loaded, gathered)
    decisions = [run.decide(rule) for rule in rules]
    if before is not None:
        candidates = [Chosen(audit=loaded, results=gathered, editor=named) for named in loaded.editors]
        baseline = Baseline(before, candidates, common=asked.common)
        decisions += [baseline.decide(margin, run.quantity(margin)) for margin in margins]
    return Verdicts(
        file=loaded.file,
        title=loaded.config.title,
        audit_hash=loaded.hash,
        strict=asked.strict or bool(section and section.strict),
        confidence=loaded.config.estimates.confidence,
        decisions=tuple(decisions),
    )


def _require_something(rules: Sequence[Rule], margins: Sequence[Rule], baseline: Path | None) -> None:
    if margins and baseline is None:
        raise StillmeError("A margin needs a baseline to be no worse than: name its run with --baseline RUN.")
    if baseline is not None and not margins:
        raise StillmeError('A baseline needs a margin: write --margin "soft_erasure <= 0.02", or in [gate] margins.')
    if not rules and not margins:
        raise StillmeError(
            'There is no rule. Give one, such as --max "race_changed.disparity <= 0.05", or write a [gate] section '
            "with rules into audit.toml."
        )


class _Run:
    """One run's estimates, made when a rule first needs them."""

    def __init__(self, loaded: Audit, gathered: Results) -> None:
        self._audit, self._results = loaded, gathered
        self._standing = standing_of(loaded)
        self._found: dict[str, list[Estimate]] = {}
        given = {score.axis for score in gathered.scores}
        rates = [name for name, rate in rubric.load().rates.items() if rate.axis in given]
        self._known = [*EDIT_RATES, *sorted(given), *rates]

    def quantity(self, rule: Rule) -> str:
        """The table's name of what a rule is about; `race_change_rate` also means the axis's first rate."""
        name = rule.quantity
        if name in self._known:
            return name
        stem = name.removesuffix(_RATE)
        rates = [each for each in self._known if (rate := rate_of(each)) and stem in (each, rate.axis)]
        if name.endswith(_RATE) and rates:
            return rates[0]
        raise UnknownName.among("quantity", name, self._known, f"This run has {', '.join(self._known)}.")

    def decide(self, rule: Rule) -> Decision:
        quantity = self.quantity(rule)
        chosen = self._chosen(rule, self._estimates(quantity))
        return Decision(
            rule=rule, quantity=quantity, against="", checks=tuple(self._check(rule, each) for each in chosen)
        )

    def _estimates(self, quantity: str) -> list[Estimate]:
        """Only what the rule's axis gives: numbers do not depend on which others are computed."""
        rate = rate_of(quantity)
        axis = rate.axis if rate else quantity
        if axis not in self._found:
            scores = [score for score in self._results.scores if score.axis == axis]
            self._found[axis] = estimates.estimate(self._results.edits, scores, settings_of(self._audit))
        return [each for each in self._found[axis] if each.quantity == quantity]

    def _chosen(self, rule: Rule, found: Sequence[Estimate]) -> list[Estimate]:
        scope = "all" if rule.statistic == "mean" else rule.statistic
        kept = [each for each in found if each.scope == scope]
        kept = _narrowed(kept, "editor", rule.editor, lambda each: each.editor)
        kept = _narrowed(kept, "arm", rule.arm, lambda each: each.arm)
        kept = _narrowed(kept, "judge", rule.judge, lambda each: each.judge)
        kept = _narrowed(kept, "factor", rule.factor, lambda each: each.factor)
        kept = _narrowed(kept, "group", rule.group, _level)
        if not rule.arm and any(each.arm == Arm.BASELINE for each in kept):
            kept = [each for each in kept if each.arm == Arm.BASELINE]
        if not rule.judge and any(is_ensemble(each.judge) for each in kept):
            kept = [each for each in kept if is_ensemble(each.judge)]
        if not kept:
            raise StillmeError(f"The rule `{rule}` is about nothing in this run: no {rule.statistic} was estimated.")
        return kept

    def _check(self, rule: Rule, found: Estimate) -> Check:
        verdict, reason = against_limit(found.outcome, rule.sign, rule.limit, self._unfinished(found))
        return Check(
            editor=found.editor,
            arm=found.arm,
            judge=found.judge,
            factor=found.factor,
            group=found.group,
            outcome=found.outcome,
            verdict=verdict,
            reason=reason,
            note=estimates.mark(self._standing, found.judge, found.quantity),
            portraits=found.portraits,
            edits=found.edits,
            detail=_extremes(found),
            excluded=found.excluded,
        )

    def _unfinished(self, found: Estimate) -> str:
        """What is still to be done, in words; judges that answer a part by design do not count."""
        waiting = ["edit missing"]
        if found.judge not in self._partial_judges():
            waiting.append("not judged")
        left = {reason: found.excluded[reason] for reason in waiting if reason in found.excluded}
        if not left:
            return ""
        return "the run is not finished: " + ", ".join(f"{reason} {count:,}" for reason, count in left.items())

    def _partial_judges(self) -> set[str]:
        kinds = {named.name: named.judge.capabilities for named in self._audit.judges}
        return {name for name, can in kinds.items() if can.kind == "person" or can.given}


def _narrowed(found: Sequence[Estimate], kind: str, wanted: str, of: Callable[[Estimate], str]) -> list[Estimate]:
    if not wanted:
        return list(found)
    kept = [each for each in found if of(each) == wanted]
    if not kept:
        known = sorted({of(each) for each in found if of(each)})
        raise UnknownName.among(kind, wanted, known, f"There are {', '.join(known) or 'none'} for this rule.")
    return kept


def _extremes(found: Estimate) -> str:
    if not isinstance(found, Disparity) or found.lowest == found.highest:
        return ""
    return f"lowest {found.lowest}, highest {found.highest}"


def _level(found: Estimate) -> str:
    return found.group.rpartition(" - ")[0] if found.scope == "contrast" else found.group
