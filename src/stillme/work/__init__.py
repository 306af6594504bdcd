"""A resumable map: do what has no row yet, a bounded number at a time, and keep each result as it comes."""

from stillme.work.interrupt import Stop
from stillme.work.run import Budget, Done, Ended, Limits, Stage, Tally, grouped, missing, run

__all__ = ["Budget", "Done", "Ended", "Limits", "Stage", "Stop", "Tally", "grouped", "missing", "run"]
