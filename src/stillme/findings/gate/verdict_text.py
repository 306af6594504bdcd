"""A gate's verdicts for people: on a terminal, and under a pull request."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import asdict
from typing import Any
from xml.etree import ElementTree

from stillme.core.types import Interval
from stillme.estimates import numbers
from stillme.estimates.quantities import rounded
from stillme.findings.gate.verdicts import Check, Decision, Verdict, Verdicts, caught
from stillme.findings.layout import plain, table

_MARKS = {verdict: verdict.upper() for verdict in Verdict}
_OUTCOMES = {verdict: str(verdict) for verdict in Verdict} | {Verdict.NO_DATA: "has no data"}
_PASSING = 3
"""How many passing numbers of a rule are shown."""
_ICONS = {Verdict.PASSED: "✅", Verdict.FAILED: "❌", Verdict.INCONCLUSIVE: "⚠️", Verdict.NO_DATA: "🚫"}


def headline(verdicts: Verdicts) -> str:
    """One sentence: did it pass, and how many rules came out how."""
    counts = f"{verdicts.count(Verdict.PASSED)} passed, {verdicts.count(Verdict.FAILED)} failed"
    counts += f", {verdicts.count(Verdict.INCONCLUSIVE)} inconclusive"
    if without_data := verdicts.count(Verdict.NO_DATA):
        counts += f", {without_data} without data"
    return f"Gate {_OUTCOMES[verdicts.outcome]}: {counts}."


def as_text(verdicts: Verdicts) -> str:
    """For a terminal."""
    lines: list[str] = []
    for decision in verdicts.decisions:
        shown, hidden = _worth_showing(decision)
        lines += [f"{_MARKS[decision.verdict]:<12} {rule_text(decision)}"]
        lines += [f"    {check_text(decision, check)}" for check in shown]
        lines += [f"    and {hidden:,} more that passed"] if hidden else []
    return "\n".join([*lines, "", headline(verdicts), *_warnings(verdicts)])


def _worth_showing(decision: Decision) -> tuple[list[Check], int]:
    """All that did not pass, and the passing ones nearest to the limit."""
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


def multiplicity(verdicts: Verdicts) -> str:
    """How chance is kept out of a failure; empty where there is only one number."""
    if verdicts.family < 2:
        return ""
    error = 50 * (1 - verdicts.confidence)
    return (
        f"Failures are corrected for all {verdicts.family:,} numbers (Holm): a run within every limit fails by "
        f"chance in at most {error:.3g} % of gates. Passing needs no correction, because every number must pass."
    )


def _warnings(verdicts: Verdicts) -> Iterator[str]:
    if sentence := multiplicity(verdicts):
        yield sentence
    yield from verdicts.notes
    if verdicts.count(Verdict.NO_DATA):
        yield "No data is not a pass; the reason stands with the number. Exit code 3."
    if verdicts.count(Verdict.INCONCLUSIVE):
        accepted = "accepted here by --allow-inconclusive" if verdicts.allow_inconclusive else "Exit code 4"
        yield f"Inconclusive is not a pass ({accepted}). More portraits narrow an interval that includes its limit."
    doubtful = sum(
        any(check.note and not caught(check.note) for check in decision.checks) for decision in verdicts.decisions
    )
    if doubtful:
        rules = "1 rule uses" if doubtful == 1 else f"{doubtful} rules use"
        yield f"{rules} a judge that is not validated for this number; test it with `stillme calibrate`."


def as_markdown(verdicts: Verdicts) -> str:
    """For a pull request."""
    lines = [
        f"## {_ICONS[verdicts.outcome]} stillme gate: {plain(verdicts.title)}",
        "",
        f"**{headline(verdicts)}**",
        "",
    ]
    lines += [
        *table(
            ("", "rule", "number", "interval", "verdict"),
            [row for decision in verdicts.decisions for row in _rows(decision)],
        ),
        "",
    ]
    lines += [line for warning in _warnings(verdicts) for line in (warning, "")]
    lines.append(
        f"{100 * verdicts.confidence:g} % intervals by portrait. Groups are labels, not facts about people. "
        f"Configuration `{verdicts.audit_hash}`."
    )
    return "\n".join(lines) + "\n"


def as_json(verdicts: Verdicts) -> dict[str, Any]:
    """For programs."""
    return {
        "outcome": str(verdicts.outcome),
        "exit_code": verdicts.exit_code,
        "allow_inconclusive": verdicts.allow_inconclusive,
        "notes": list(verdicts.notes),
        "audit": verdicts.audit_hash,
        "confidence": verdicts.confidence,
        "failures_corrected": {
            "method": "Holm",
            "numbers": verdicts.family,
            "error": rounded((1 - verdicts.confidence) / 2),
        },
        "rules": [
            {
                "rule": str(decision.rule),
                "quantity": decision.quantity,
                "sign": decision.rule.sign,
                "limit": decision.rule.limit,
                "baseline": decision.against or None,
                "claim": decision.fixed or None,
                "verdict": str(decision.verdict),
                "checks": [_check_json(check) for check in decision.checks],
            }
            for decision in verdicts.decisions
        ],
    }


def rule_text(decision: Decision) -> str:
    """The rule, the baseline if there is one, and for a claim when it was fixed."""
    against = f" worse than {decision.against}" if decision.against else ""
    return f"{decision.rule}{against}" + (f" ({decision.fixed})" if decision.fixed else "")


def check_text(decision: Decision, check: Check) -> str:
    """One number with its interval, and the reason of its verdict."""
    parts = [subject(check), ": ", _value(decision, check)]
    if check.verdict is not Verdict.PASSED and isinstance(check.outcome, Interval):
        parts.append(f" {check.verdict}")
    details = [*filter(None, (check.reason, check.detail, _judge(check), _excluded(check)))]
    return "".join(parts) + (f" ({'; '.join(details)})" if details else "")


def _judge(check: Check) -> str:
    return f"judge: {check.note}" if check.note and check.note not in check.reason else ""


def subject(check: Check) -> str:
    """Whose number it is."""
    arm = f" ({check.arm})" if check.arm not in ("", "baseline") else ""
    who = f", {numbers.factor_name(check.factor)} {check.group}".rstrip() if check.factor else ""
    by = f", by {check.judge}" if check.judge else ""
    return f"{check.editor}{arm}{who}{by}" or "this run"


def _value(decision: Decision, check: Check) -> str:
    if not isinstance(check.outcome, Interval):
        return str(check.verdict)
    value, span = _parts(decision, check.outcome)
    return f"{value} [{span}]"


def _parts(decision: Decision, outcome: Interval) -> tuple[str, str]:
    quantity, statistic = decision.quantity, decision.rule.statistic
    if decision.against or statistic in ("contrast", "disparity"):
        # A disparity has no direction, so no sign.
        plus = bool(decision.against) or statistic == "contrast"
        difference, span = numbers.difference, numbers.difference_span
        return difference(quantity, outcome.value, plus=plus), span(quantity, outcome, plus=plus)
    plus = numbers.is_signed(quantity)
    return numbers.number(quantity, outcome.value, plus=plus), numbers.span(quantity, outcome, plus=plus)


def _excluded(check: Check) -> str:
    excluded = sum(check.excluded.values())
    if not excluded:
        return ""
    reasons = ", ".join(f"{reason} {count:,}" for reason, count in sorted(check.excluded.items()))
    return f"{excluded:,} of {excluded + check.edits:,} edits excluded: {reasons}"


def _rows(decision: Decision) -> Iterator[tuple[str, ...]]:
    shown, hidden = _worth_showing(decision)
    for place, check in enumerate(shown):
        value, span = _parts(decision, check.outcome) if isinstance(check.outcome, Interval) else ("–", "–")
        details = [
            str(check.verdict),
            *filter(None, (check.reason, check.detail, check.note and f"judge: {check.note}")),
        ]
        yield (
            _ICONS[check.verdict],
            rule_text(decision) if place == 0 else "",
            f"{subject(check)}: {value}",
            span,
            "; ".join(details),
        )
    if hidden:
        yield _ICONS[Verdict.PASSED], "", f"and {hidden:,} more", "", "passed"


def _check_json(check: Check) -> dict[str, Any]:
    row = asdict(check)
    outcome = row.pop("outcome")
    row |= {"judge_note": row.pop("note")} | {name: outcome.get(name) for name in ("value", "low", "high")}
    return row | ({"method": check.outcome.method} if isinstance(check.outcome, Interval) else {})


_FORBIDDEN = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
"""Characters that no XML document may hold, not even escaped."""


def as_junit(verdicts: Verdicts) -> str:
    """A failure fails, no data is an error, an inconclusive number is skipped."""
    checks = [(decision, check) for decision in verdicts.decisions for check in decision.checks]
    suite = ElementTree.Element(
        "testsuite",
        name=_xml(f"stillme gate: {verdicts.title}"),
        tests=str(len(checks)),
        failures=str(sum(check.verdict is Verdict.FAILED for _, check in checks)),
        errors=str(sum(check.verdict is Verdict.NO_DATA for _, check in checks)),
        skipped=str(sum(check.verdict is Verdict.INCONCLUSIVE for _, check in checks)),
    )
    for decision, check in checks:
        case = ElementTree.SubElement(
            suite, "testcase", classname=_xml(rule_text(decision)), name=_xml(subject(check)), time="0"
        )
        text = _xml(check_text(decision, check))
        if check.verdict is Verdict.FAILED:
            failure = ElementTree.SubElement(case, "failure", type=str(check.verdict), message=text)
            failure.text = text
        elif check.verdict is Verdict.NO_DATA:
            ElementTree.SubElement(case, "error", type="no data", message=text).text = text
        elif check.verdict is Verdict.INCONCLUSIVE:
            ElementTree.SubElement(case, "skipped", message=f"inconclusive: {text}")
        ElementTree.SubElement(case, "system-out").text = text
    ElementTree.SubElement(suite, "system-out").text = _xml(headline(verdicts))
    root = ElementTree.Element("testsuites", name="stillme")
    root.append(suite)
    ElementTree.indent(root)
    return '<?xml version="1.0" encoding="UTF-8"?>\n' + ElementTree.tostring(root, encoding="unicode") + "\n"


def _xml(text: str) -> str:
    return _FORBIDDEN.sub("�", text)
