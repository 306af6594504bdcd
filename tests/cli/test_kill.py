"""kill -9 in the middle of `stillme run`, at random points, then resume."""

from __future__ import annotations

import random
import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from stillme.runs.store import Store
from tests.processes import Started, stillme

ROWS = (
    "SELECT key, portraits, prompt, arm, instruction, editor, seed, outcome, image, message FROM edit ORDER BY key",
    "SELECT key, edit, judge, epoch FROM assessment ORDER BY key",
    "SELECT key, axis, outcome, score, reason FROM assessment JOIN judgement ON assessment = id ORDER BY key, axis",
)
EDITOR = 'use = "moody"\nparameters = { seconds = 0.03 }'


def content(folder: Path) -> tuple[list[list[tuple[object, ...]]], dict[str, bytes]]:
    with Store.reading(folder) as store:
        rows = [store.query(query).fetchall() for query in ROWS]
    # Every file, hidden or not: a killed run's drafts must be gone.
    return rows, {path.name: path.read_bytes() for path in (folder / "images").rglob("*") if path.is_file()}


@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.soak) for seed in range(1, 10))])
def test_kill_9_loses_nothing_and_repeats_nothing(write_audit: Callable[..., Path], tmp_path: Path, seed: int):
    folder = write_audit(EDITOR, 'use = "brightness"', prompts="[]")
    undisturbed, killed = tmp_path / "undisturbed", tmp_path / "killed"
    assert stillme("run", folder, "--out", undisturbed).returncode == 0
    chance = random.Random(seed)
    before = kills = 0
    for _ in range(5):
        run = Started("run", folder, "--out", killed)
        goal = before + chance.randrange(30)
        while run.poll() is None and rows_of(killed) < goal:
            time.sleep(0.02)
        time.sleep(chance.uniform(0, 0.2))
        run.kill()
        _, said = run.communicate()
        assert run.returncode in (0, -signal.SIGKILL), said
        kills += run.returncode != 0
        assert rows_of(killed) >= before, "a row was lost"
        before = rows_of(killed)
    assert kills >= 3, "the run was hardly killed: the test would prove nothing"
    assert stillme("run", folder, "--out", killed).returncode == 0
    assert content(killed) == content(undisturbed)
    assert (killed / "tables" / "estimates.csv").read_bytes() == (undisturbed / "tables" / "estimates.csv").read_bytes()


def rows_of(folder: Path) -> int:
    """Edits and assessments that are committed; none before the first table is made."""
    if not Store.exists(folder):
        return 0
    with Store.reading(folder) as store:
        tables = {name for (name,) in store.query("SELECT name FROM sqlite_master")}
        counted = tables & {"edit", "assessment"}
        return sum(store.query(f"SELECT COUNT(*) FROM {table}").fetchone()[0] for table in counted)
