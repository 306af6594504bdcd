"""Limits that a run must keep: each rule passes, fails, or cannot be told."""

from stillme.gate.deciding import Asked, gate
from stillme.gate.verdicts import Check, Decision, Verdict, Verdicts

__all__ = ["Asked", "Check", "Decision", "Verdict", "Verdicts", "gate"]
