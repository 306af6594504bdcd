"""kill -9 at random moments of all stages leaves the rows, tables and pictures of an undisturbed run.

`make test` kills a few times; `STILLME_KILLS=100 pytest tests/reliability/test_kills.py` does so at length.
"""

from __future__ import annotations

import contextlib
import os
import random
import signal
import sqlite3
import subprocess
from pathlib import Path

from stillme.doctor import examine_run
from tests.reliability.faulty import STILLME, audit, stillme

KILLS = int(os.environ.get("STILLME_KILLS", "4"))
_EDITS = "SELECT key, outcome, image FROM edit WHERE final = 1 ORDER BY key"
_SCORES = (
    "SELECT a.key, j.axis, j.outcome, j.score FROM assessment a JOIN judgement j ON j.assessment = a.id "
    "WHERE a.final = 1 ORDER BY a.key, j.axis"
)


def content(folder: Path) -> dict[str, object]:
    """All that a run is about: rows, tables, and pictures with their bytes."""
    connection = sqlite3.connect(folder / "stillme.sqlite")
    rows = {query: connection.execute(query).fetchall() for query in (_EDITS, _SCORES)}
    connection.close()
    return {
        **rows,
        "tables": {path.name: path.read_bytes() for path in sorted((folder / "tables").glob("*.csv"))},
        "pictures": {
            path.name: path.read_bytes()
            for path in sorted((folder / "images").rglob("*"))
            if path.is_file() and not path.name.startswith(".")
        },
    }


def test_kills_at_random_moments_change_nothing(tmp_path: Path):
    for name in ("undisturbed", "killed"):
        (tmp_path / name).mkdir()
        audit(tmp_path / name, "time.sleep(0.02)", people=6, seeds=(1, 2, 3), concurrency=2)
    assert stillme("run", tmp_path / "undisturbed").returncode == 0
    killed, rng = tmp_path / "killed", random.Random(22)
    for _ in range(KILLS):
        run = subprocess.Popen(
            [*STILLME, "run", str(killed)],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        with contextlib.suppress(subprocess.TimeoutExpired):
            run.wait(rng.uniform(1.0, 6.0))
        with contextlib.suppress(ProcessLookupError):
            os.killpg(run.pid, signal.SIGKILL)
        run.wait()
    assert stillme("run", killed).returncode == 0
    assert content(killed) == content(tmp_path / "undisturbed")
    assert [check.detail for check in examine_run(killed) if check.state == "broken"] == []
