"""From the rows of a run to its tables, the same way when a bundle is sealed and when it is verified."""

from __future__ import annotations

from pathlib import Path

from stillme import estimates
from stillme.calibration import standing_of
from stillme.results import Run
from stillme.tables.estimates import write_tables


def recompute(run: Run, into: Path) -> list[Path]:
    """Compute every table from the rows, and write `tables/*.csv` into `into`."""
    estimated = estimates.estimate(run.results.edits, run.results.scores, run.settings)
    return write_tables(estimated, into, run.settings, standing_of(run))
