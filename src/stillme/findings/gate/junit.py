"""Verdicts as JUnit XML: one test per number."""

from __future__ import annotations

import re
from xml.etree import ElementTree

from stillme.findings.gate.showing import check_text, headline, rule_text, subject
from stillme.findings.gate.verdicts import Verdict, Verdicts

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
