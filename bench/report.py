"""The report of a large audit: seconds, bytes and peak memory for 5,040 and 100,800 edits.

Ratios: the page's size against the limit of 8 MB; its time and memory against those of estimating the same rows; and
how both grow from 5,040 edits to 100,800. Each size runs in a process of its own, so that peak memory is its own.
"""

from __future__ import annotations

import resource
import subprocess
import sys
import tempfile
import time
from dataclasses import replace
from importlib.resources import files
from pathlib import Path

from bench._figures import note

LIMIT_MB = 8.0
PER_CELL = {5_040: 1, 100_800: 20}
NAMES = ("edits", "estimating", "report", "megabytes", "estimating_mb", "peak_mb")


def main() -> None:
    small, large = (_measured(per_cell) for per_cell in PER_CELL.values())
    for run in (small, large):
        size, time_ratio, memory = (
            run["megabytes"] / LIMIT_MB,
            run["report"] / run["estimating"],
            run["peak_mb"] / run["estimating_mb"],
        )
        edits = f"{run['edits']:,.0f} edits"
        print(edits)
        print(f"  page    {run['megabytes']:>8,.1f} MB, ×{size:.2f} of the limit of {LIMIT_MB:.0f} MB")
        print(f"  time    {run['report']:>8,.1f} s, ×{time_ratio:.2f} of estimating the same rows")
        print(f"  memory  {run['peak_mb']:>8,.0f} MB at its peak, ×{memory:.2f} of estimating alone")
        note(__name__, f"page of {edits}", run["megabytes"], "MB", peer=f"limit of {LIMIT_MB:.0f} MB", of=LIMIT_MB)
        note(__name__, f"report of {edits}", run["report"], "s", peer="estimating the same", of=run["estimating"])
    growth = {name: large[name] / small[name] for name in ("report", "megabytes", "peak_mb")}
    print(
        f"20 times the edits: ×{growth['report']:.1f} the time, ×{growth['megabytes']:.1f} the size, "
        f"×{growth['peak_mb']:.1f} the memory"
    )
    assert small["megabytes"] <= LIMIT_MB, "a report of 5,040 edits is larger than its limit"
    assert growth["report"] <= 20, "time grows faster than the edits"


def _measured(per_cell: int) -> dict[str, float]:
    code = f"from bench.report import report_once; report_once({per_cell})"
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    return dict(zip(NAMES, map(float, done.stdout.split()), strict=True))


def report_once(per_cell: int) -> None:
    """Build columns like the paper's, estimate them, write the page."""
    from stillme.report import write
    from tests.report.columns import SETTINGS, paper_like

    portraits = sorted(Path(str(files("stillme.portraits").joinpath("data"))).glob("*.webp"))
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        start = time.perf_counter()
        data = paper_like(portraits, per_cell=per_cell, settings=SETTINGS)
        data = replace(data, image_path=_Links(folder / "images", portraits), folder=folder)
        estimated, estimated_mb = time.perf_counter(), _peak_mb()
        page = write(folder, data)
        ended = time.perf_counter()
        size = page.stat().st_size / 1e6
    print(len(data.edits), estimated - start, ended - estimated, size, estimated_mb, _peak_mb())


class _Links:
    """A separate file for every edit, made on demand, so that no thumbnail comes from the cache."""

    def __init__(self, folder: Path, portraits: list[Path]) -> None:
        self._folder, self._portraits = folder, portraits
        folder.mkdir()

    def __call__(self, sha256: str) -> Path:
        path = self._folder / f"{sha256}.webp"
        if not path.exists():
            path.symlink_to(self._portraits[int(sha256[:8], 16) % len(self._portraits)])
        return path


def _peak_mb() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
