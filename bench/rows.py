"""Finished scores: `stillme import rows`, then `stillme tables --all`, in processor seconds and memory.

Three audits of 84 to 8,400 portraits × 20 prompts × 3 editors with three factors. The ratios are to what is promised:
8 CPU s for statistics of 5,040 edits, and 5 minutes for import and statistics of half a million. Processor seconds,
because they hardly depend on what else the machine does.
"""

from __future__ import annotations

import csv
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from pathlib import Path

import numpy as np

from bench._figures import note

FACTORS = {
    "race": ("Black", "East Asian", "Indian", "Latino", "Middle Eastern", "Southeast Asian", "White"),
    "gender": ("female", "male"),
    "age": ("20-29", "30-39", "40-49", "50-59", "60-69", "70+"),
}
EDITORS = ("one", "two", "three")
AXES = ("edit_success", "skin_tone", "race_change", "gender_change", "age_change")
PROMPTS = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Audit:
    """The size of a simulated audit."""

    portraits: int
    models: int = 1
    raters: int = 0
    """People who rate every tenth edit."""

    @property
    def edits(self) -> int:
        """One for each portrait, prompt and editor."""
        return self.portraits * PROMPTS * len(EDITORS)


@dataclass(frozen=True, slots=True)
class Promise:
    """How many processor seconds an audit may take."""

    audit: Audit
    limit: float
    with_import: bool


PROMISES = (
    Promise(Audit(portraits=84), 8, with_import=False),
    Promise(Audit(portraits=84, models=2, raters=3), 8, with_import=False),
    Promise(Audit(portraits=8_400), 300, with_import=True),
)


def main() -> None:
    for promise in PROMISES:
        audit = promise.audit
        judges = f"{audit.models} model{'s' * (audit.models > 1)}{' and people' if audit.raters else ''}"
        with tempfile.TemporaryDirectory() as scratch:
            file = write_rows(Path(scratch) / "rows.csv", audit)
            imported = _measured("report_import", file, Path(scratch) / "run")
            analysed = _measured("report_statistics", Path(scratch) / "run")
        print(f"{audit.edits:,} edits by {judges}")
        print(f"  {'import':<16}{imported.seconds:>9.1f} CPU s{imported.megabytes:>8.0f} MB")
        for name, seconds in analysed.parts:
            if seconds >= 0.1:
                print(f"    {name:<14}{seconds:>9.1f} CPU s")
        print(f"  {'statistics':<16}{analysed.seconds:>9.1f} CPU s{analysed.megabytes:>8.0f} MB")
        taken = analysed.seconds + (imported.seconds if promise.with_import else 0.0)
        what = f"{'import and ' * promise.with_import}statistics, {audit.edits:,} edits, {judges}"
        note(__name__, what, taken, "CPU s", peer="what is promised", of=promise.limit)


@dataclass(frozen=True, slots=True)
class _Measured:
    seconds: float
    megabytes: float
    parts: list[tuple[str, float]]


def _measured(function: str, *paths: Path) -> _Measured:
    """In a process of its own, which ends by printing its figures, the last line being the whole."""
    arguments = ", ".join(f"Path({str(path)!r})" for path in paths)
    code = f"from pathlib import Path; from bench.rows import {function}; {function}({arguments})"
    as_commands_do = {**os.environ, "OPENBLAS_NUM_THREADS": "1"}
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True, env=as_commands_do)
    *parts, last = (line.split() for line in done.stdout.splitlines())
    return _Measured(float(last[0]), float(last[1]), [(name, float(seconds)) for name, seconds in parts])


def report_import(file: Path, into: Path) -> None:
    """Import, and print processor seconds and the peak of this process."""
    from stillme.findings.exchange import RowsAsked, import_rows
    from stillme.findings.exchange.columns import ColumnMapping

    people = ("people",) if any("people" in line for line in file.open(encoding="utf-8")) else ()
    asked = RowsAsked(groups=tuple(FACTORS), people=people, reference={"race": "White"})
    import_rows(file, into, asked, ColumnMapping())
    print(time.process_time(), own_peak())


def report_statistics(run: Path) -> None:
    """Write every table, and print the processor seconds of each."""
    from stillme.findings.tables.analyses import Written, analyse
    from stillme.runs import RecordedRun

    class Watch:
        since = time.process_time()

        def starts(self, name: str, place: int, total: int) -> None:
            if place == 1:
                self.ends("reading", None)

        def ends(self, name: str, written: Written | None) -> None:
            now = time.process_time()
            print(name, now - self.since)
            self.since = now

    analyse(RecordedRun.open(run), watch=Watch())
    print(time.process_time(), own_peak())


def write_rows(path: Path, audit: Audit, *, seed: int = 0) -> Path:
    """A file of scores: portraits differ, groups do not, judges nearly agree."""
    with path.open("w", encoding="utf-8", newline="") as stream:
        table = csv.writer(stream)
        table.writerow(("portrait", *FACTORS, "prompt", "subcategory", "editor", "judge", "rater", *AXES))
        table.writerows(_rows(audit, np.random.default_rng(seed)))
    return path


def _rows(audit: Audit, stream: np.random.Generator) -> Iterator[tuple[object, ...]]:
    cells = list(product(*FACTORS.values()))
    models = [(f"model {number}", "") for number in range(audit.models)]
    people = [("people", f"rater {number}") for number in range(audit.raters)]
    for number in range(audit.portraits):
        own = stream.normal(0, 0.75, len(AXES))
        for prompt, editor in product(range(PROMPTS), EDITORS):
            latent = own + stream.logistic(-1, 1, len(AXES))
            edit = (f"{number:06d}", *cells[number % len(cells)], f"P{prompt:02d}", f"S{prompt // 4}", editor)
            for judge in (*models, *(people if (number + prompt) % 10 == 0 else ())):
                noise = stream.normal(0, 0.3, len(AXES))
                yield (*edit, *judge, *np.clip(np.floor(latent + noise + 3), 1, 5).astype(int).tolist())


def own_peak() -> float:
    """The peak of this process, in megabytes."""
    status = Path("/proc/self/status")
    # On Linux ru_maxrss of a child starts at its parent's size; VmHWM is its own.
    own = (
        [line.split()[1] for line in status.read_text().splitlines() if line.startswith("VmHWM")]
        if status.exists()
        else []
    )
    return (int(own[0]) if own else resource.getrusage(resource.RUSAGE_SELF).ru_maxrss) / 1024


if __name__ == "__main__":
    main()
