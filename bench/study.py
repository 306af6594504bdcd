"""200 annotators against the real server: how long an answer takes until it is on disk.

First at the pace of people (about 80 answers a second together), then as fast as it goes with the server killed by
SIGKILL on the way, then with raters excluded, places freed and people withdrawing in the middle, until every item has
exactly k ratings that count. Every place must be filled exactly and every acknowledged answer must be there.
Annotators and server share this machine, so times grow with whatever else it does; the server's own CPU time an answer
does not, nor do the ratios: against bare durable commits of one row on the same disk in the same run.
"""

from __future__ import annotations

import asyncio
import sqlite3
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import psutil

from bench._figures import note
from stillme.study.opening import open_study
from stillme.study.progress import overview_of
from stillme.study.quality import raters, ratings
from tests.study.annotators import (
    Annotator,
    Researcher,
    ServerProcess,
    disturb,
    fill_up,
    serving,
)
from tests.study.studies import write_study
from tests.study.test_counting import stored_answers

TASKS, PER_TASK, RATERS, PEOPLE = 66, 2, 3, 200
PLACES = TASKS * RATERS
ANSWERS = PER_TASK * 2 * 5
DISTURBED = 30
"""Raters excluded, places freed and people who withdraw, together, in the third round."""
PACE = 2.4
"""Seconds between two answers of one person: 200 people then give about 80 a second."""
LIMITS = "\n[limits]\nentries_per_minute = 100000\nrequests_per_minute = 100000\n"


@dataclass(frozen=True)
class Measured:
    """One round."""

    milliseconds: np.ndarray
    """Of every acknowledged answer."""
    rate: float
    """Answers a second, in the middle 80 % of them."""
    cpu: float
    """Milliseconds of the server's processor time an answer, pages and all included."""
    retries: int

    def __str__(self) -> str:
        half, most, worst = np.percentile(self.milliseconds, [50, 95, 99])
        return f"{self.rate:6.0f} answers/s   p50 {half:6.0f}   p95 {most:6.0f}   p99 {worst:6.0f} ms"


def main() -> None:
    with tempfile.TemporaryDirectory(prefix="bench-study-") as scratch:
        folder = Path(scratch)
        folder.chmod(0o755)
        bare = _bare_commits(folder / "bare.sqlite")
        print(
            f"bare durable commit           p50 {np.percentile(bare, 50):6.1f}   p95 {np.percentile(bare, 95):6.1f} ms"
        )
        _rounds(folder / "sqlite", bare)


def _rounds(folder: Path, bare: np.ndarray) -> None:
    paced = _round(folder / "paced", PACE, kills=0)
    ratio = np.percentile(paced.milliseconds, 50) / np.percentile(bare, 50)
    print(f"200 people\n    {paced}; median ×{ratio:.1f} of a bare commit; {paced.cpu:.1f} ms CPU per answer")
    middle = float(np.percentile(paced.milliseconds, 50))
    note(__name__, "an answer saved", middle, "ms", peer="a bare durable commit", of=middle / ratio)
    flat = _round(folder / "flat", 0.0, kills=2)
    print(f"flat out\n    {flat}; over 2 × kill -9, {flat.retries:,} requests repeated, none lost", flush=True)
    print(f"disturbed\n    {_disturbed(folder / 'disturbed')}", flush=True)


def _disturbed(folder: Path) -> str:
    """Exclusions, freed places and withdrawals while others rate; newcomers fill what they leave."""
    password = write_study(folder, tasks=TASKS, per_task=PER_TASK, raters=RATERS, checks=False, extra=LIMITS)
    with serving(folder) as server:
        people = [Annotator(server.port, f"d{n}") for n in range(PLACES)]
        researcher = Researcher(server.port, password)

        async def work() -> list[Annotator]:
            await asyncio.gather(disturb(researcher, people, DISTURBED), *(person.take_part() for person in people))
            return await fill_up(server.port, researcher)

        newcomers = asyncio.run(work())
    with open_study(folder) as study:
        with study.database.reading() as connection:
            counting = [rater for rater in raters(study, connection) if rater.counts]
            rows = ratings(study, connection, counting)
        progress = overview_of(study).progress
    counts = Counter((row.item.id, row.output, row.axis) for row in rows)
    assert set(counts.values()) == {RATERS}, "an item does not have exactly k ratings that count"
    assert len(counts) == TASKS * ANSWERS
    return (
        f"{progress.excluded} excluded, {progress.slots['void']} places given up, {progress.withdrawn} withdrew, "
        f"{len(newcomers)} newcomers; all {len(counts):,} questions have exactly {RATERS} ratings that count"
    )


def _round(folder: Path, pace: float, kills: int) -> Measured:
    write_study(folder, tasks=TASKS, per_task=PER_TASK, raters=RATERS, checks=False, extra=LIMITS)
    with serving(folder) as server:
        people = [Annotator(server.port, f"p{n}", think=pace, mischief=n % 5 == 0) for n in range(PEOPLE)]
        asyncio.run(_all(people, server, kills))
        spent = _processor_seconds(server)
    with open_study(folder) as study, study.database.reading() as connection:
        done = Counter(connection.column("SELECT batch FROM slot WHERE state = 'done'"))
        kept, at = stored_answers(connection), connection.column("SELECT at FROM answer")
        assert set(done.values()) == {RATERS}, "a batch does not have exactly k raters"
        assert sum(done.values()) == PLACES
        for person in people:
            pseudonym = study.keys.pseudonym("participant", f"platform:{person.name}")
            for place, said in person.acknowledged.items():
                assert kept[(pseudonym, *place)] == said, "an acknowledged answer is lost"
    assert len(kept) == PLACES * ANSWERS
    times = np.array([taken for person in people for taken in person.times]) * 1000
    begun, ended = np.percentile(at, [10, 90])
    return Measured(
        milliseconds=times,
        rate=0.8 * len(at) / (ended - begun),
        cpu=1000 * spent / len(at),
        retries=sum(person.retries for person in people),
    )


def _processor_seconds(server: ServerProcess) -> float:
    assert server.running
    main = psutil.Process(server.running.pid)
    return sum(sum(process.cpu_times()[:2]) for process in (main, *main.children(recursive=True)))


async def _all(people: Sequence[Annotator], server: ServerProcess, kills: int) -> None:
    async def kill() -> None:
        for _ in range(kills):
            await asyncio.sleep(6)
            server.kill()
            await asyncio.to_thread(server.start)

    await asyncio.gather(kill(), *(person.take_part() for person in people))


def _bare_commits(path: Path) -> np.ndarray:
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = FULL")
    connection.execute("CREATE TABLE answer (a, b, c, d)")
    taken: list[float] = []
    for number in range(300):
        begun = time.perf_counter()
        connection.execute("INSERT INTO answer VALUES (?, 2, 3, 4)", (number,))
        taken.append(1000 * (time.perf_counter() - begun))
    connection.close()
    return np.array(taken)
