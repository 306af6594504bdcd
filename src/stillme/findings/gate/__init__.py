"""Limits that a run must keep: each rule passes, fails, is inconclusive or has no data."""

from stillme.findings.gate.decisions import Asked, baseline_folder, gate
from stillme.findings.gate.verdicts import Check, Decision, Verdict, Verdicts

__all__ = ["Asked", "Check", "Decision", "Verdict", "Verdicts", "baseline_folder", "gate"]
