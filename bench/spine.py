"""The pipeline around an editor and a judge that cost nothing: requests per second, memory, resuming, status.

Ratios: rows per second against a bare SQLite loop that writes the same ledger rows and does nothing else, on the
same disk in the same run; peak memory and the CPU time of `stillme status` while a run writes, at 100,000 requests
against 10,000.
"""

from __future__ import annotations

import resource
import sqlite3
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from bench._figures import cpu_seconds, note
from stillme.api.pipeline import run_stages
from stillme.core import images
from stillme.core.types import digest
from stillme.runs import RecordedRun
from stillme.runs.status import status_of
from stillme.runs.store import Store

TARGET = 1500
PORTRAITS = 100
_COLUMNS = (
    "key, final, portraits, prompt, arm, instruction, editor, seed, outcome, image, message, effective, truth, "
    "attempts, seconds, cost, at"
)
"""Of an edit, without its number."""


def main() -> None:
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        small, large = _measured(folder / "small", 10_000), _measured(folder / "large", 100_000)
        bare = _bare_rows_per_second(folder / "bare.sqlite", 100_000)
        rows = 7 * large["work"]  # an edit, an assessment and five judgements each
        growth = {name: large[name] / small[name] for name in ("work_mb", "peak_mb")}
        print(f"edit and judge          {large['work']:>8,.0f} requests/s, target {TARGET:,} (100,000 requests)")
        print(f"estimates included      {large['whole']:>8,.0f} requests/s")
        print(f"rows                    {rows:>8,.0f}/s, ×{rows / bare:.2f} of a bare SQLite loop ({bare:,.0f}/s)")
        print(f"peak memory of the work {large['work_mb']:>8,.0f} MB, ×{growth['work_mb']:.2f} of 10,000 requests")
        print(f"peak memory, estimates  {large['peak_mb']:>8,.0f} MB, ×{growth['peak_mb']:.2f} of 10,000 requests")
        print(f"nothing left to do      {large['resume']:>8,.1f} s at 100,000 requests")
        status = {"all": large["all_rows"], "100 new": large["new_rows"]}
        print(*(f"status, {rows} rows{1000 * seconds:>15,.0f} CPU ms" for rows, seconds in status.items()), sep="\n")
        note(__name__, "edit and judge", large["work"], "requests/s", peer=f"target of {TARGET:,}", of=TARGET)
        note(__name__, "rows", rows, "rows/s", peer="a bare SQLite loop", of=bare)
        note(__name__, "peak memory of the work", large["work_mb"], "MB", peer="10,000 requests", of=small["work_mb"])
        new, of = 1000 * large["new_rows"], 1000 * small["new_rows"]
        note(__name__, "status after 100 more edits", new, "CPU ms", peer="10,000 requests", of=of)
        assert large["work"] >= TARGET, "slower than the target"
        assert growth["work_mb"] <= 1.3, "memory grows with the number of requests"


def _measured(folder: Path, requests: int) -> dict[str, float]:
    """Run in a process of its own, so that peak memory is its own."""
    write_audit(folder, requests)
    code = f"from bench.spine import report_run; report_run({str(folder)!r}, {requests})"
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    names = ("work", "whole", "work_mb", "peak_mb", "resume", "all_rows", "new_rows")
    return dict(zip(names, map(float, done.stdout.split()), strict=True))


def report_run(name: str, requests: int) -> None:
    """Work, estimate, and run again with nothing left to do."""
    folder = Path(name)
    begun = time.perf_counter()
    run_stages(folder, ("edit", "judge"))
    worked, work_mb = time.perf_counter(), _peak_mb()
    run_stages(folder, ("estimate",))
    ended = time.perf_counter()
    run_stages(folder, ("edit", "judge"))
    resumed = time.perf_counter()
    peak_mb, all_rows = _peak_mb(), _status_seconds(folder)
    with Store.writing(folder) as store, store.transaction():
        store.execute(f"INSERT INTO edit ({_COLUMNS}) SELECT {_COLUMNS} FROM edit ORDER BY id DESC LIMIT 100")
    new_rows = _status_seconds(folder)
    print(
        requests / (worked - begun), requests / (ended - begun), work_mb, peak_mb, resumed - ended, all_rows, new_rows
    )


def _status_seconds(folder: Path) -> float:
    """Processor seconds of `stillme status`, without its imports."""

    def look() -> None:
        with RecordedRun.open(folder) as run:
            status_of(run)

    return cpu_seconds(look)


def _peak_mb() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def write_audit(folder: Path, requests: int) -> None:
    import numpy as np

    pictures = folder / "portraits"
    pictures.mkdir(parents=True)
    noise = np.random.default_rng(0)
    rows = ["file,group"]
    people = min(PORTRAITS, requests // 20)
    for index in range(people):
        # About 30 kB, like a compressed portrait.
        data = images.encode_png(noise.integers(0, 255, (100, 100, 3), dtype=np.uint8))
        (pictures / f"p{index}.png").write_bytes(data)
        rows.append(f"p{index}.png,{'ab'[index % 2]}")
    (pictures / "portraits.csv").write_text("\n".join(rows))
    seeds = list(range(requests // people // 20))
    (folder / "audit.toml").write_text(
        f'[portraits]\nsource = "./portraits"\n[[editors]]\nuse = "noop"\nseeds = {seeds}\n'
        '[[judges]]\nuse = "scripted"\n[estimates]\nfactors = ["group"]\n'
    )


def _bare_rows_per_second(path: Path, rows: int) -> float:
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = FULL")
    connection.execute(
        "CREATE TABLE edit (id INTEGER PRIMARY KEY, key TEXT UNIQUE, a, b, c, d, e, f, g, h, i, j, k, l, m)"
    )
    begun = time.perf_counter()
    for start in range(0, rows, 250):
        connection.execute("BEGIN")
        connection.executemany(
            f"INSERT INTO edit (key, a, b, c, d, e, f, g, h, i, j, k, l, m) VALUES ({','.join('?' * 14)})",
            [(digest(number), *["x" * 20] * 13) for number in range(start, start + 250)],
        )
        connection.execute("COMMIT")
    return rows / (time.perf_counter() - begun)
