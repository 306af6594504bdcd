"""The demo: processor seconds of each stage, which on two free cores take half as long.

Wall time is not measured, because other work on a machine changes it.
"""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from bench._figures import cpu_seconds, note
from stillme.api.demo import write_demo
from stillme.api.pipeline import Name, run_stages
from stillme.core.types import Interval
from stillme.runs import RecordedRun, injected

TARGET = 24.0
"""Processor seconds: 12 s on two cores."""


def main() -> None:
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        write_demo(folder)
        stages: tuple[Sequence[Name], ...] = (("edit",), ("judge",), ("estimate", "report"))
        taken = {names[-1]: cpu_seconds(partial(run_stages, folder, names)) for names in stages}
        with RecordedRun.open(folder) as run:
            gaps = list(injected.gaps(run))
    for name, seconds in taken.items():
        print(f"{name:<8}{seconds:>7.1f} CPU s")
    whole = sum(taken.values())
    note(__name__, "the demo", whole, "s", peer=f"target of {TARGET:g}", of=TARGET)
    inside = [
        isinstance(gap.recovered, Interval) and gap.recovered.low <= gap.planted <= gap.recovered.high for gap in gaps
    ]
    assert all(inside), "a planted gap was not recovered"
