"""A gate's verdicts for people: on a terminal, and under a pull request."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from stillme.comparison.markdown import plain, table
from stillme.gate.verdicts import Check, Decision, Verdict, Verdicts
from stillme.report import numbers
from stillme.types import Interval

_MARKS = {Verdict.PASSES: "PASSES", Verdict.FAILS: "FAILS", Verdict.CANNOT_TELL: "CANNOT TELL"}
_PASSING = 3
"""Numbers of a rule that pass and are shown all the same."""
_ICONS = {Verdict.PASSES: "✅", Verdict.FAILS: "❌", Verdict.CANNOT_TELL: "⚠️"}


def headline(found: Verdicts) -> str:
    """One sentence: did it pass, and how many rules came out how."""
    counts = ", ".join(
        f"{found.count(verdict)} {words}"
        for verdict, words in (
            (Verdict.FAILS, "failed"),
            (Verdict.CANNOT_TELL, "cannot be told"),
            (Verdict.PASSES, "passed"),
        )
        if found.count(verdict)
    )
    state = "The gate is open" if found.passed else "The gate is shut"
    total = len(found.decisions)
    return f"{state}: of {total} rule{'' if total == 1 else 's'}, {counts}."


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
    rest = [check for check in decision.checks if check.verdict is not Verdict.PASSES]
    sign = 1 if decision.rule.sign == "<=" else -1
    passing = sorted(
        (check for check in decision.checks if check.verdict is Verdict.PASSES),
        key=lambda check: -sign * _far_end(check, sign),
    )
    return [*rest, *passing[:_PASSING]], max(0, len(passing) - _PASSING)


def _far_end(check: Check, sign: int) -> float:
    assert isinstance(check.outcome, Interval)
    return check.outcome.high if sign > 0 else check.outcome.low


def _warnings(found: Verdicts) -> Iterator[str]:
    if found.count(Verdict.CANNOT_TELL):
        yield _UNTOLD_STRICT if found.strict else _UNTOLD
    doubtful = sum(any(check.note for check in decision.checks) for decision in found.decisions)
    if doubtful:
        rules = "1 rule rests" if doubtful == 1 else f"{doubtful} rules rest"
        yield f"{rules} on a judge that is not calibrated or failed its calibration; see the notes."


_UNTOLD = (
    "What cannot be told is not a pass: the data are too few for the limit. More portraits narrow an interval; "
    "--strict makes it a failure."
)
_UNTOLD_STRICT = "What cannot be told counts as a failure here (--strict): the data are too few for the limit."


def as_markdown(found: Verdicts) -> str:
    """For a pull request."""
    lines = [
        f"## {'✅' if found.passed else '❌'} stillme gate: {plain(found.title)}",
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


def as_json(found: Verdicts) -> dict[str, Any]:
    """For programs."""
    return {
        "passed": found.passed,
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
    if check.verdict is not Verdict.PASSES:
        parts.append(f" {_MARKS[check.verdict].lower()}")
    said = [*filter(None, (check.reason, check.detail, check.note and f"judge: {check.note}", _left_out(check)))]
    return "".join(parts) + (f" ({'; '.join(said)})" if said else "")


def subject(check: Check) -> str:
    """Whose number it is."""
    arm = f" ({check.arm})" if check.arm != "baseline" else ""
    who = f", {numbers.factor(check.factor)} {check.group}".rstrip() if check.factor else ""
    by = f", by {check.judge}" if check.judge else ""
    return f"{check.editor}{arm}{who}{by}"


def _value(decision: Decision, check: Check) -> str:
    if not isinstance(check.outcome, Interval):
        return "no number"
    value, span = _parts(decision, check.outcome)
    return f"{value} [{span}]"


def _parts(decision: Decision, outcome: Interval) -> tuple[str, str]:
    plus = bool(decision.against) or decision.rule.statistic == "contrast" or numbers.signed(decision.quantity)
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
        yield _ICONS[Verdict.PASSES], "", f"and {quiet:,} more", "", "pass"


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
