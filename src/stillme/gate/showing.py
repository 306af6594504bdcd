"""A gate's verdicts for people: on a terminal, and under a pull request."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from stillme import numbers
from stillme.comparison.markdown import plain, table
from stillme.gate.verdicts import Check, Decision, Verdict, Verdicts
from stillme.types import Interval

_MARKS = {verdict: verdict.upper() for verdict in Verdict}
_PASSING = 3
"""Numbers of a rule that pass and are shown all the same."""
_ICONS = {Verdict.PASSED: "✅", Verdict.FAILED: "❌", Verdict.INCONCLUSIVE: "⚠️", Verdict.NO_DATA: "🚫"}


def headline(verdicts: Verdicts) -> str:
    """One sentence: did it pass, and how many rules came out how."""
    counts = f"{verdicts.count(Verdict.PASSED)} passed, {verdicts.count(Verdict.FAILED)} failed"
    counts += f", {verdicts.count(Verdict.INCONCLUSIVE)} inconclusive"
    if untold := verdicts.count(Verdict.NO_DATA):
        counts += f", {untold} without data"
    return f"Gate {outcome(verdicts)}: {counts}."


def outcome(verdicts: Verdicts) -> str:
    """One word for the whole gate."""
    match verdicts.passed:
        case True:
            return "passed" if verdicts.all_passed else "inconclusive"
        case False:
            return "failed"
        case None:
            return "has no data"


def as_text(found: Verdicts) -> str:
    """For a terminal."""
    lines: list[str] = []
    for decision in found.decisions:
        shown, quiet = _worth_showing(decision)
        lines += [f"{_MARKS[decision.verdict]:<12} {rule_text(decision)}"]
        lines += [f"    {check_text(decision, check)}" for check in shown]
        lines += [f"    and {quiet:,} more that pass"] if quiet else []
    return "\n".join([*lines, "", headline(found), *_warnings(found)])


def _worth_showing(decision: Decision) -> tuple[list[Check], int]:
    """All that do not pass, and of those that do the nearest to the limit."""
    rest = [check for check in decision.checks if check.verdict is not Verdict.PASSED]
    sign = 1 if decision.rule.sign == "<=" else -1
    passing = sorted(
        (check for check in decision.checks if check.verdict is Verdict.PASSED),
        key=lambda check: -sign * _far_end(check, sign),
    )
    return [*rest, *passing[:_PASSING]], max(0, len(passing) - _PASSING)


def _far_end(check: Check, sign: int) -> float:
    assert isinstance(check.outcome, Interval)
    return check.outcome.high if sign > 0 else check.outcome.low


def _warnings(verdicts: Verdicts) -> Iterator[str]:
    if verdicts.count(Verdict.NO_DATA):
        yield "No data is not a pass: finish the run (`stillme run`), or correct the rule. Exit code 3."
    if verdicts.count(Verdict.INCONCLUSIVE):
        yield _STRICT if verdicts.strict else _INCONCLUSIVE
    doubtful = sum(any(check.note for check in decision.checks) for decision in verdicts.decisions)
    if doubtful:
        rules = "1 rule rests" if doubtful == 1 else f"{doubtful} rules rest"
        yield f"{rules} on a judge that is not calibrated or failed its calibration; `stillme calibrate` tries a judge."


_INCONCLUSIVE = "Inconclusive is not a pass. More portraits narrow an interval; --strict makes it a failure."
_STRICT = "Inconclusive counts as a failure here (--strict). More portraits narrow an interval."


def as_markdown(found: Verdicts) -> str:
    """For a pull request."""
    lines = [
        f"## {_gate_icon(found)} stillme gate: {plain(found.title)}",
        "",
        f"**{headline(found)}**",
        "",
    ]
    lines += [
        *table(
            ("", "rule", "number", "interval", "verdict"),
            [row for decision in found.decisions for row in _rows(decision)],
        ),
        "",
    ]
    lines += [line for warning in _warnings(found) for line in (warning, "")]
    lines.append(
        f"Intervals at {100 * found.confidence:g} %, by portrait; labels are labels, not truth. "
        f"Configuration `{found.audit_hash}`."
    )
    return "\n".join(lines) + "\n"


def _gate_icon(verdicts: Verdicts) -> str:
    if verdicts.passed is None:
        return _ICONS[Verdict.NO_DATA]
    if not verdicts.passed:
        return _ICONS[Verdict.FAILED]
    return _ICONS[Verdict.PASSED if verdicts.all_passed else Verdict.INCONCLUSIVE]


def as_json(found: Verdicts) -> dict[str, Any]:
    """For programs."""
    return {
        "passed": found.all_passed if found.passed else found.passed,
        "outcome": outcome(found),
        "strict": found.strict,
        "audit": found.audit_hash,
        "confidence": found.confidence,
        "rules": [
            {
                "rule": str(decision.rule),
                "quantity": decision.quantity,
                "sign": decision.rule.sign,
                "limit": decision.rule.limit,
                "baseline": decision.against or None,
                "verdict": str(decision.verdict),
                "checks": [_check_json(check) for check in decision.checks],
            }
            for decision in found.decisions
        ],
    }


def rule_text(decision: Decision) -> str:
    """The rule, and against what."""
    return f"{decision.rule}" + (f" worse than {decision.against}" if decision.against else "")


def check_text(decision: Decision, check: Check) -> str:
    """One number with its interval, and why it says what it says."""
    parts = [subject(check), ": ", _value(decision, check)]
    if check.verdict is not Verdict.PASSED:
        parts.append(f" {check.verdict}")
    said = [*filter(None, (check.reason, check.detail, check.note and f"judge: {check.note}", _left_out(check)))]
    return "".join(parts) + (f" ({'; '.join(said)})" if said else "")


def subject(check: Check) -> str:
    """Whose number it is."""
    arm = f" ({check.arm})" if check.arm not in ("", "baseline") else ""
    who = f", {numbers.factor_name(check.factor)} {check.group}".rstrip() if check.factor else ""
    by = f", by {check.judge}" if check.judge else ""
    return f"{check.editor}{arm}{who}{by}" or "this run"


def _value(decision: Decision, check: Check) -> str:
    if not isinstance(check.outcome, Interval):
        return "no number"
    value, span = _parts(decision, check.outcome)
    return f"{value} [{span}]"


def _parts(decision: Decision, outcome: Interval) -> tuple[str, str]:
    plus = bool(decision.against) or decision.rule.statistic == "contrast" or numbers.is_signed(decision.quantity)
    plus = plus and not (decision.rule.statistic == "disparity" and not decision.against)
    return (
        numbers.number(decision.quantity, outcome.value, plus=plus),
        numbers.span(decision.quantity, outcome, plus=plus),
    )


def _left_out(check: Check) -> str:
    gone = sum(check.excluded.values())
    if not gone:
        return ""
    reasons = ", ".join(f"{reason} {count:,}" for reason, count in sorted(check.excluded.items()))
    return f"{gone:,} of {gone + check.edits:,} edits left out: {reasons}"


def _rows(decision: Decision) -> Iterator[tuple[str, ...]]:
    shown, quiet = _worth_showing(decision)
    for place, check in enumerate(shown):
        value, span = _parts(decision, check.outcome) if isinstance(check.outcome, Interval) else ("–", "–")
        words = [str(check.verdict), *filter(None, (check.reason, check.detail, check.note and f"judge: {check.note}"))]
        yield (
            _ICONS[check.verdict],
            rule_text(decision) if place == 0 else "",
            f"{subject(check)}: {value}",
            span,
            "; ".join(words),
        )
    if quiet:
        yield _ICONS[Verdict.PASSED], "", f"and {quiet:,} more", "", "pass"


def _check_json(check: Check) -> dict[str, Any]:
    found: dict[str, Any] = {
        "editor": check.editor,
        "arm": check.arm,
        "judge": check.judge,
        "factor": check.factor,
        "group": check.group,
        "verdict": str(check.verdict),
        "reason": check.reason,
        "detail": check.detail,
        "judge_note": check.note,
        "portraits": check.portraits,
        "edits": check.edits,
        "excluded": dict(check.excluded),
        "value": None,
        "low": None,
        "high": None,
    }
    if isinstance(check.outcome, Interval):
        outcome = check.outcome
        found |= {"value": outcome.value, "low": outcome.low, "high": outcome.high, "method": outcome.method}
    return found
