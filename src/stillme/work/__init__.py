"""A resumable map: do what has no row yet, a bounded number at a time, and keep each result as it comes."""

from stillme.work.interrupt import Stop
from stillme.work.run import Budget, Done, Ended, Limits, Stage, Tally, Terms, grouped, in_turn, missing, run

__all__ = [
    "Budget",
    "Done",
    "Ended",
    "Limits",
    "Stage",
    "Stop",
    "Tally",
    "Terms",
    "grouped",
    "in_turn",
    "missing",
    "run",
]
