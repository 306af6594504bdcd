"""kill -9 at random moments of every stage leaves the rows, tables and pictures of an undisturbed run.

`make test` kills a few times; `STILLME_KILLS=100 pytest tests/reliability/test_kills.py` does so at length.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import random
import shutil
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from stillme.doctor import examine_run
from stillme.mitigation.model_extractor import question_text
from stillme.store import Store
from tests.editors.hosted.loopback import Loopback, serving
from tests.judges.conftest import answer
from tests.mitigation.test_model_extractor import GOOD
from tests.reliability.faulty import STILLME, audit, stillme
from tests.study.annotators import rate_by
from tests.vlm.servers import CHAT, ModelInput

KILLS = int(os.environ.get("STILLME_KILLS", "4"))
"""Of the work that may cost money."""
OTHER_KILLS = max(1, KILLS // 4)
"""Of each other command."""
DOLLARS_A_CALL = 0.003
_WORK = ("feature", "edit", "assessment")
_ROWS = (
    "SELECT key, outcome, sentence, cost FROM feature WHERE final = 1 ORDER BY key",
    "SELECT key, outcome, image FROM edit WHERE final = 1 ORDER BY key",
    (
        "SELECT a.key, a.cost, j.axis, j.outcome, j.score FROM assessment a JOIN judgement j ON j.assessment = a.id "
        "WHERE a.final = 1 ORDER BY a.key, j.axis"
    ),
)
_EDITED = (
    "SELECT p.id || ' ' || e.seed || ' ' || i.text FROM edit e JOIN portrait p ON p.key = e.portraits ->> 0 "
    "JOIN instruction i ON i.key = e.instruction WHERE e.final = 1"
)
_EDITS = "(HERE / 'asked').open('a').write(f'{portrait} {seed} {instruction}\\n'); time.sleep(0.05)"

DIES = """
import os, sys
left = int(sys.argv.pop(1))
places = ("/stillme/store/", "/stillme/files.py", "/stillme/study/", "/stillme/tables/", "/stillme/report/writing.py")

def count(frame, event, _):
    global left
    if event in ("call", "c_call") and any(place in frame.f_code.co_filename for place in places):
        left -= 1
        if left == 0:
            os.kill(os.getpid(), 9)

from stillme.cli import main
sys.setprofile(count)
try:
    main()
finally:
    sys.setprofile(None)
    print("calls", -left, file=sys.stderr)
"""
"""stillme that is killed at its n-th call in rooms that read or write; with 0 it says how many there are."""


@pytest.fixture
def models() -> Iterator[Loopback]:
    """A server that describes and rates; what it says depends on the pictures alone."""

    def say(seen: ModelInput) -> str:
        if seen.system == question_text():
            return json.dumps(GOOD)
        score = 1 + int(hashlib.sha256(seen.images[-1].encode()).hexdigest(), 16) % 5
        return json.dumps(answer(edit_success=score, skin_tone=1 + score % 5))

    with serving(CHAT.handler(say)) as server:
        server.delay = 0.05
        yield server


def paid(folder: Path, models: Loopback) -> Path:
    """An audit that describes, edits, and is judged by a script, by a model that costs money, and by people."""
    folder.mkdir()
    model = (
        f'{{ base_url = "{models.url}/v1", model = "{CHAT.model}", key_variable = "", concurrency = 2, '
        "price = { input = 1.0, output = 0.0 } }"
    )
    audit(
        folder,
        _EDITS,
        seeds=range(max(2, KILLS // 6)),
        concurrency=2,
        extra=f"""
[[judges]]
use = "openai-compatible"
name = "model"
parameters = {model}
[[judges]]
use = "people"
epochs = 2
[mitigation]
extractors = [{{ use = "openai-compatible", name = "describer", parameters = {model} }}]
""",
    )
    text = (folder / "audit.toml").read_text()
    (folder / "audit.toml").write_text(text.replace("title =", 'arms = ["baseline", "feature"]\ntitle ='))
    return folder


def asked_for(folder: Path, query: str) -> list[tuple[object, ...]]:
    connection = sqlite3.connect(f"{(folder / 'stillme.sqlite').as_uri()}?mode=ro", uri=True)
    with contextlib.closing(connection):
        return connection.execute(query).fetchall()


def saved(folder: Path) -> int:
    """Rows of paid work."""
    if not Store.exists(folder):
        return 0
    return sum(int(str(asked_for(folder, f"SELECT COUNT(*) FROM {table}")[0][0])) for table in _WORK)


def edited(folder: Path) -> set[str]:
    """The requests that have an edit."""
    return {str(row[0]) for row in asked_for(folder, _EDITED)} if saved(folder) else set()


def content(folder: Path) -> dict[str, object]:
    """All that a run is about: rows, tables, and every file among the pictures with its bytes."""
    return {
        **{query: asked_for(folder, query) for query in _ROWS},
        "tables": {path.name: path.read_bytes() for path in sorted((folder / "tables").glob("*.csv"))},
        "pictures": {path.name: path.read_bytes() for path in sorted((folder / "images").rglob("*")) if path.is_file()},
    }


def require_whole(folder: Path) -> None:
    checks = {check.name: check for check in examine_run(folder)}
    assert [check.detail for check in checks.values() if check.state == "broken"] == []
    assert checks["done twice"].detail == "nothing"


def kill_at(folder: Path, goal: int, pause: float, *words: str) -> bool:
    """Start, and kill -9 once so many rows are saved and the pause is over; whether it was still alive."""
    run = subprocess.Popen(
        [*STILLME, *words], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True
    )
    while run.poll() is None and saved(folder) < goal:
        time.sleep(0.02)
    with contextlib.suppress(subprocess.TimeoutExpired):
        run.wait(pause)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(run.pid, signal.SIGKILL)
    return run.wait() == -signal.SIGKILL


def calls_of(*words: object) -> int:
    """Run a command to its end; returns how many calls it made that read or write."""
    ended = subprocess.run([sys.executable, "-c", DIES, "0", *map(str, words)], capture_output=True, text=True)
    assert ended.returncode == 0, ended.stderr
    return int(ended.stderr.split()[-1])


def kill_once(at: int, *words: object) -> None:
    """Kill a command at one of its calls that read or write, then let it do its work."""
    dying = [sys.executable, "-c", DIES, str(at), *map(str, words)]
    assert subprocess.run(dying, capture_output=True).returncode == -signal.SIGKILL
    ended = stillme(*words)
    assert ended.returncode == 0, ended.stderr


def test_kills_while_portraits_are_described_edited_and_judged_change_nothing(tmp_path: Path, models: Loopback):
    calm, killed = paid(tmp_path / "calm", models), paid(tmp_path / "killed", models)
    ended = stillme("run", calm)
    assert ended.returncode == 0, ended.stderr
    chance, total, kills = random.Random(22), saved(calm), 0
    done: list[tuple[int, set[str]]] = []
    for _ in range(KILLS):
        # By rows, so that every stage is hit however fast it is.
        goal = min(total, saved(killed) + chance.randint(1, max(1, 2 * total // KILLS)))
        kills += kill_at(killed, goal, chance.uniform(0.0, 0.6), "run", str(killed))
        asked = killed / "asked"
        done.append((len(asked.read_text().splitlines()) if asked.exists() else 0, edited(killed)))
    assert kills >= KILLS / 2, "it was hardly killed: the test would prove nothing"
    assert stillme("run", killed).returncode == 0
    assert content(killed) == content(calm)
    require_whole(killed)
    asked_in_order = (killed / "asked").read_text().splitlines()
    assert set(asked_in_order) == edited(killed)
    for place, finished in done:
        assert not finished.intersection(asked_in_order[place:]), "what has a row was asked for again"
    for folder in (calm, killed):
        (cost,) = asked_for(
            folder, "SELECT SUM(cost) FROM (SELECT cost FROM feature UNION ALL SELECT cost FROM assessment)"
        )
        rows = asked_for(
            folder, "SELECT COUNT(*) FROM (SELECT id FROM feature UNION ALL SELECT id FROM assessment WHERE cost)"
        )
        assert cost[0] == pytest.approx(DOLLARS_A_CALL * int(str(rows[0][0])))


def test_kills_while_people_join_and_while_numbers_are_written_change_nothing(tmp_path: Path):
    calm = audit(tmp_path / "calm", people=4, extra='[[judges]]\nuse = "people"\nepochs = 3')
    assert stillme("run", calm).returncode == 0
    drawn = stillme("study", "new", calm, "--items", 4, "--per-task", 4, "--repeats", 0, "--prolific")
    assert drawn.returncode == 0, drawn.stderr
    settings = calm / "study" / "study.toml"
    settings.write_text(settings.read_text().replace('contact = ""', 'contact = "ask@study.example"'))
    rate_by(calm / "study", people=3)
    rated = shutil.copytree(calm, tmp_path / "rated")
    closing = calls_of("study", "close", calm / "study", "--run", calm)
    estimating, reporting = calls_of("estimate", calm), calls_of("report", calm)
    chance = random.Random(23)
    for number in range(OTHER_KILLS):
        killed = shutil.copytree(rated, tmp_path / f"killed{number}")
        kill_once(chance.randint(1, closing), "study", "close", killed / "study", "--run", killed)
        kill_once(chance.randint(1, estimating), "estimate", killed)
        kill_once(chance.randint(1, reporting), "report", killed)
        assert len(asked_for(killed, "SELECT DISTINCT epoch FROM assessment")) == 3
        assert content(killed) == content(calm)
        assert (killed / "report.html").read_text().replace(str(killed), str(calm)) == (
            calm / "report.html"
        ).read_text()
        require_whole(killed)


def test_kills_while_shards_are_merged_change_nothing(tmp_path: Path):
    folder = audit(tmp_path / "audit", people=6, seeds=(1, 2))
    shards = [tmp_path / "1", tmp_path / "2"]
    for number, shard in enumerate(shards, start=1):
        assert stillme("run", folder, "--shard", f"{number}/2", "--out", shard).returncode == 0
    calm, chance = tmp_path / "calm", random.Random(24)
    merging = calls_of("merge", *shards, "--into", calm)
    assert stillme("estimate", calm).returncode == 0
    for number in range(OTHER_KILLS):
        killed = tmp_path / f"killed{number}"
        kill_once(chance.randint(1, merging), "merge", *shards, "--into", killed)
        assert stillme("estimate", killed).returncode == 0
        assert content(killed) == content(calm)
        require_whole(killed)
