"""Verdicts as JUnit XML: one test per number."""

from __future__ import annotations

import re
from xml.etree import ElementTree

from stillme.gate.showing import check_text, headline, rule_text, subject
from stillme.gate.verdicts import Verdict, Verdicts

_FORBIDDEN = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
"""Characters that no XML document may hold, not even escaped."""


def as_junit(found: Verdicts) -> str:
    """A failure fails, no data is an error, an inconclusive number is skipped (or fails, if strict)."""
    checks = [(decision, check) for decision in found.decisions for check in decision.checks]
    suite = ElementTree.Element(
        "testsuite",
        name=_xml(f"stillme gate: {found.title}"),
        tests=str(len(checks)),
        failures=str(sum(found.counts_against(check.verdict) for _, check in checks)),
        errors=str(sum(check.verdict is Verdict.NO_DATA for _, check in checks)),
        skipped=str(sum(check.verdict is Verdict.INCONCLUSIVE and not found.strict for _, check in checks)),
    )
    for decision, check in checks:
        case = ElementTree.SubElement(
            suite, "testcase", classname=_xml(rule_text(decision)), name=_xml(subject(check)), time="0"
        )
        said = _xml(check_text(decision, check))
        if found.counts_against(check.verdict):
            failure = ElementTree.SubElement(case, "failure", type=str(check.verdict), message=said)
            failure.text = said
        elif check.verdict is Verdict.NO_DATA:
            ElementTree.SubElement(case, "error", type="no data", message=said).text = said
        elif check.verdict is Verdict.INCONCLUSIVE:
            ElementTree.SubElement(case, "skipped", message=f"inconclusive: {said}")
        ElementTree.SubElement(case, "system-out").text = said
    ElementTree.SubElement(suite, "system-out").text = _xml(headline(found))
    root = ElementTree.Element("testsuites", name="stillme")
    root.append(suite)
    ElementTree.indent(root)
    return '<?xml version="1.0" encoding="UTF-8"?>\n' + ElementTree.tostring(root, encoding="unicode") + "\n"


def _xml(text: str) -> str:
    return _FORBIDDEN.sub("�", text)
