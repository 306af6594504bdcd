"""kill -9 at random moments of every stage leaves the rows, tables and pictures of an undisturbed run.

`make test` kills a few times, `make soak` a hundred times.
"""

from __future__ import annotations

import atexit
import hashlib
import json
import os
import random
import shutil
import signal
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from types import FrameType

import pytest

from stillme.api.doctor import examine_run
from stillme.mitigation.model_extractor import question_text
from stillme.runs.store import Store
from tests.editors.hosted.loopback import Loopback, serving
from tests.judges.conftest import answer
from tests.mitigation.test_model_extractor import GOOD
from tests.processes import ran, stillme
from tests.reliability.faulty import ask, audit, die_after, rows
from tests.study.annotators import rate_by
from tests.study.studies import change
from tests.vlm.servers import CHAT, ModelInput

Figure = Callable[[str, object], None]
few_or_many = pytest.mark.parametrize("kills", [4, pytest.param(100, marks=pytest.mark.soak)])
once_or_often = pytest.mark.parametrize("kills", [1, pytest.param(25, marks=pytest.mark.soak)])
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

_READ_OR_WRITE = (
    "/stillme/runs/store/",
    "/stillme/core/files.py",
    "/stillme/study/",
    "/stillme/findings/tables/",
    "/stillme/report/writing.py",
)


def die_at_call(number: int) -> None:
    """Kill this process at its n-th call in rooms that read or write; with 0 it says how many there were."""
    left = number

    def count(frame: FrameType, event: str, _: object) -> None:
        nonlocal left
        if event in ("call", "c_call") and any(place in frame.f_code.co_filename for place in _READ_OR_WRITE):
            left -= 1
            if left == 0:
                os.kill(os.getpid(), signal.SIGKILL)

    def end() -> None:
        sys.setprofile(None)
        print("calls", -left, file=sys.stderr)

    atexit.register(end)
    sys.setprofile(count)


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


def paid(folder: Path, models: Loopback, seeds: int) -> Path:
    """An audit that describes, edits, and is judged by a script, by a model that costs money, and by people."""
    folder.mkdir()
    model = (
        f'{{ base_url = "{models.url}/v1", model = "{CHAT.model}", key_variable = "", concurrency = 2, '
        "price = { input = 1.0, output = 0.0 } }"
    )
    audit(
        folder,
        _EDITS,
        seeds=range(seeds),
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


def saved(folder: Path) -> int:
    """Rows of paid work."""
    if not Store.exists(folder):
        return 0
    return sum(rows(folder, f"SELECT COUNT(*) FROM {table}") for table in _WORK)


def edited(folder: Path) -> set[str]:
    """The requests that have an edit."""
    return {str(row[0]) for row in ask(folder, _EDITED)} if saved(folder) else set()


def content(folder: Path) -> dict[str, object]:
    """All that a run is about: rows, tables, and every file among the pictures with its bytes."""
    return {
        **{query: ask(folder, query) for query in _ROWS},
        "tables": {path.name: path.read_bytes() for path in sorted((folder / "tables").glob("*.csv"))},
        "pictures": {path.name: path.read_bytes() for path in sorted((folder / "images").rglob("*")) if path.is_file()},
    }


def require_whole(folder: Path) -> None:
    checks = {check.name: check for check in examine_run(folder)}
    assert [check.detail for check in checks.values() if check.state == "broken"] == []
    assert checks["done twice"].detail == "nothing"


def kill_after(saved_rows: int, pause: float, *words: str) -> bool:
    """Kill -9 a command so many seconds after it has saved so many rows; whether it was still at work."""
    return stillme(*words, before=partial(die_after, saved_rows, pause)).returncode == -signal.SIGKILL


def calls_of(*words: object) -> int:
    """Run a command to its end; returns how many calls it made that read or write."""
    ended = ran(*words, before=partial(die_at_call, 0))
    return int(ended.stderr.split()[-1])


def kill_once(at: int, *words: object) -> None:
    """Kill a command at one of its calls that read or write, then let it do its work."""
    assert stillme(*words, before=partial(die_at_call, at)).returncode == -signal.SIGKILL
    ran(*words)


@few_or_many
def test_kills_while_portraits_are_described_edited_and_judged_change_nothing(
    tmp_path: Path, models: Loopback, kills: int, record_property: Figure
):
    calm, killed = (paid(tmp_path / name, models, seeds=max(2, kills // 3)) for name in ("calm", "killed"))
    ran("run", calm)
    chance, total, alive = random.Random(22), saved(calm), 0
    done: list[tuple[int, set[str]]] = []
    for _ in range(kills):
        # By rows, so that every stage is hit however fast it is.
        first = chance.randint(1, max(1, min(total - saved(killed), total // kills)))
        alive += kill_after(first, chance.uniform(0.0, 0.25), "run", str(killed))
        asked = killed / "asked"
        done.append((len(asked.read_text().splitlines()) if asked.exists() else 0, edited(killed)))
    assert alive >= kills / 2, "it was hardly killed: the test would prove nothing"
    ran("run", killed)
    assert content(killed) == content(calm)
    require_whole(killed)
    record_property("kills", alive)
    record_property("rows", total)
    asked_in_order = (killed / "asked").read_text().splitlines()
    assert set(asked_in_order) == edited(killed)
    for place, finished in done:
        assert not finished.intersection(asked_in_order[place:]), "what has a row was asked for again"
    for folder in (calm, killed):
        paid_rows = "(SELECT cost FROM feature UNION ALL SELECT cost FROM assessment WHERE cost)"
        ((cost, count),) = ask(folder, f"SELECT SUM(cost), COUNT(*) FROM {paid_rows}")
        assert cost == pytest.approx(DOLLARS_A_CALL * count)


@once_or_often
def test_kills_while_people_join_and_while_numbers_are_written_change_nothing(
    tmp_path: Path, kills: int, record_property: Figure
):
    calm = audit(tmp_path / "calm", people=4, extra='[[judges]]\nuse = "people"\nepochs = 3')
    ran("run", calm)
    ran("study", "new", calm, "--items", 4, "--per-task", 4, "--repeats", 0, "--recruit", "prolific")
    change(calm / "study", 'contact = ""', 'contact = "ask@study.example"')
    rate_by(calm / "study", people=3)
    rated = shutil.copytree(calm, tmp_path / "rated")
    closing = calls_of("study", "close", calm / "study", "--run", calm, "--include-flagged")
    estimating, reporting = calls_of("run", calm, "--only", "estimate"), calls_of("report", calm)
    chance = random.Random(23)
    for number in range(kills):
        killed = shutil.copytree(rated, tmp_path / f"killed{number}")
        kill_once(chance.randint(1, closing), "study", "close", killed / "study", "--run", killed, "--include-flagged")
        kill_once(chance.randint(1, estimating), "run", killed, "--only", "estimate")
        kill_once(chance.randint(1, reporting), "report", killed)
        assert len(ask(killed, "SELECT DISTINCT epoch FROM assessment")) == 3
        assert content(killed) == content(calm)
        page, expected = ((folder / "report.html").read_text() for folder in (killed, calm))
        assert page.replace(str(killed), str(calm)) == expected
        require_whole(killed)
    record_property("kills", 3 * kills)


@once_or_often
def test_kills_while_shards_are_merged_change_nothing(tmp_path: Path, kills: int, record_property: Figure):
    folder = audit(tmp_path / "audit", people=6, seeds=(1, 2))
    shards = [tmp_path / "1", tmp_path / "2"]
    for number, shard in enumerate(shards, start=1):
        ran("run", folder, "--shard", f"{number}/2", "--out", shard)
    calm, chance = tmp_path / "calm", random.Random(24)
    merging = calls_of("merge", *shards, "--into", calm)
    ran("run", calm, "--only", "estimate")
    for number in range(kills):
        killed = tmp_path / f"killed{number}"
        kill_once(chance.randint(1, merging), "merge", *shards, "--into", killed)
        ran("run", killed, "--only", "estimate")
        assert content(killed) == content(calm)
        require_whole(killed)
    record_property("kills", kills)
