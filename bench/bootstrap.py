"""Estimates of 5,040 edits, compared with what an analyst would write: a bootstrap of group means with pandas.

Processor seconds. The peer resamples people, not edits, and gives one interval a group and axis: no correction for
several comparisons, no abstentions, no gaps.
"""

from __future__ import annotations

import tempfile
import time
from pathlib import Path

import numpy as np
import pandas as pd

from bench._figures import note
from bench.rows import AXES, FACTORS, Audit, write_rows
from stillme import estimates
from stillme.findings.exchange import RowsAsked, import_rows
from stillme.findings.exchange.columns import ColumnMapping
from stillme.runs import RecordedRun

SAMPLES = 1000


def main() -> None:
    with tempfile.TemporaryDirectory() as scratch:
        file, folder = Path(scratch) / "rows.csv", Path(scratch) / "run"
        write_rows(file, Audit(portraits=84))
        import_rows(file, folder, RowsAsked(groups=tuple(FACTORS), reference={"race": "White"}), ColumnMapping())
        started = time.process_time()
        with RecordedRun.open(folder) as run:
            estimates.estimate(run.results.edits, run.results.scores, run.settings)
        ours, started = time.process_time() - started, time.process_time()
        intervals = _bootstrap(pd.read_csv(file, dtype={"portrait": str}))
        theirs = time.process_time() - started
    note(__name__, "estimates of 5,040 edits", ours, "s", peer=f"a pandas bootstrap of {intervals} means", of=theirs)


def _bootstrap(frame: pd.DataFrame) -> int:
    """A 95 % interval of each group's mean on each axis, resampling people."""
    stream, count = np.random.default_rng(0), 0
    for factor in FACTORS:
        for (_, _), group in frame.groupby([factor, "editor"]):
            means = group.groupby("portrait")[list(AXES)].mean()
            drawn = [
                means.sample(len(means), replace=True, random_state=stream).mean().to_numpy() for _ in range(SAMPLES)
            ]
            count += np.quantile(drawn, (0.025, 0.975), axis=0).shape[1]
    return count
