"""Verdicts as SARIF 2.1.0, which code scanning reads."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from stillme import __version__
from stillme.gate.showing import check_text, rule_text
from stillme.gate.verdicts import Check, Decision, Verdict, Verdicts
from stillme.types import digest

_SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"
_KINDS = {
    Verdict.PASSED: "pass",
    Verdict.FAILED: "fail",
    Verdict.INCONCLUSIVE: "open",
    Verdict.NO_DATA: "review",
}
"""`open`: evaluated, with too little information to decide; `review`: somebody must look why there is no data."""


def as_sarif(verdicts: Verdicts) -> str:
    """One result per number, at the line of audit.toml that holds its rule."""
    text = verdicts.file.read_text("utf-8-sig") if verdicts.file.is_file() else ""
    names = list(dict.fromkeys(rule_text(decision) for decision in verdicts.decisions))
    log: dict[str, Any] = {
        "$schema": _SCHEMA,
        "version": "2.1.0",
        "runs": [
            {
                "tool": {
                    "driver": {
                        "name": "stillme",
                        "version": __version__,
                        "rules": [_rule(name) for name in names],
                    }
                },
                "properties": {
                    "audit": verdicts.audit_hash,
                    "confidence": verdicts.confidence,
                    "strict": verdicts.strict,
                },
                "results": [
                    _result(verdicts, decision, check, names.index(rule_text(decision)), _line(text, decision))
                    for decision in verdicts.decisions
                    for check in decision.checks
                ],
            }
        ],
    }
    return json.dumps(log, indent=1, ensure_ascii=False) + "\n"


def _rule(name: str) -> dict[str, Any]:
    return {
        "id": _identity(name),
        "name": "StillmeGate",
        "shortDescription": {"text": name},
        "defaultConfiguration": {"level": "error"},
    }


def _result(verdicts: Verdicts, decision: Decision, check: Check, place: int, line: int) -> dict[str, Any]:
    against = verdicts.counts_against(check.verdict)
    subject = [check.editor, check.arm, check.judge, check.factor, check.group if check.factor else ""]
    return {
        "ruleId": _identity(rule_text(decision)),
        "ruleIndex": place,
        "kind": "fail" if against or check.verdict is Verdict.NO_DATA else _KINDS[check.verdict],
        # The standard wants no level but `none` on what is not a failure.
        "level": "error" if against else "warning" if check.verdict is Verdict.NO_DATA else "none",
        "message": {"text": f"{rule_text(decision)}: {check_text(decision, check)}"},
        "locations": [
            {
                "physicalLocation": {
                    "artifactLocation": {"uri": _uri(verdicts.file)},
                    "region": {"startLine": line},
                }
            }
        ],
        "partialFingerprints": {"stillmeGate/v1": digest([rule_text(decision), subject])},
    }


def _identity(name: str) -> str:
    return f"gate/{digest(name)[:8]}"


def _uri(file: Path) -> str:
    """Relative to where the command runs, as code scanning wants it; else the file's own address."""
    here, there = Path.cwd(), file.resolve()
    if there.is_relative_to(here):
        from urllib.parse import quote

        return quote(there.relative_to(here).as_posix())
    return there.as_uri()


def _line(text: str, decision: Decision) -> int:
    """The rule's line in audit.toml, else the first line."""
    for number, line in enumerate(text.splitlines(), start=1):
        if decision.rule.written and decision.rule.written in line:
            return number
    return 1
