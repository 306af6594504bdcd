"""Many annotators at once, on the real server: exactly k raters an item, and nothing acknowledged is ever lost."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import pytest

from stillme.study.opening import Study, open_study
from stillme.web.database import Transaction
from tests.study.annotators import Annotator, ServerProcess, serving
from tests.study.studies import write_study

RATERS = 3
tens_or_hundreds = pytest.mark.parametrize("tasks", [5, pytest.param(34, marks=pytest.mark.soak)])
"""Of twice as many raters as there are places: 30, or 204."""


async def all_take_part(people: Sequence[Annotator], server: ServerProcess, times: int) -> None:
    async def kill() -> None:
        chance = random.Random(7)
        for _ in range(times):
            await asyncio.sleep(0.4 + chance.random() / 2)
            server.kill()
            await asyncio.to_thread(server.start)

    await asyncio.gather(kill(), *(person.take_part() for person in people))


def check(study: Study, people: Sequence[Annotator], tasks: int) -> None:
    """Exactly k in every batch; every acknowledged answer is there; those who finished have a code."""
    with study.database.reading() as connection:
        slots = connection.execute("SELECT batch, state FROM slot").fetchall()
        kept = stored_answers(connection)
    assert {state for _, state in slots} == {"done"}
    assert Counter(batch for batch, _ in slots) == dict.fromkeys(range(tasks), RATERS)
    acknowledged = 0
    for person in people:
        name = study.keys.pseudonym("participant", f"platform:{person.name}")
        for place, said in person.acknowledged.items():
            assert kept[(name, *place)] == said
            acknowledged += 1
    assert acknowledged == len(kept) > 0
    assert Counter(person.code for person in people) == {"DONE1": tasks * RATERS, "": tasks * RATERS}


def stored_answers(connection: Transaction) -> dict[tuple[str, int, int, int], tuple[int, int]]:
    """By participant's hash, item, side and question: sequence number and value."""
    rows = connection.execute(
        "SELECT p.ext_hmac, a.position, a.side, a.question, a.seq, a.value FROM answer a "
        "JOIN slot s ON s.id = a.slot JOIN participant p ON p.id = s.participant"
    )
    return {tuple(row)[:4]: tuple(row)[4:] for row in rows}


def simulated(port: int, tasks: int, **options: object) -> list[Annotator]:
    people = range(2 * tasks * RATERS)
    return [Annotator(port, f"p{n}", mischief=n % 3 == 0, **options) for n in people]  # type: ignore[arg-type]


@tens_or_hundreds
@pytest.mark.parametrize("kills", [0, 2])
def test_places_are_filled_exactly_and_no_answer_is_lost_though_the_server_is_killed(
    tmp_path: Path, tasks: int, kills: int
) -> None:
    write_study(tmp_path, tasks=tasks, per_task=2, raters=RATERS, checks=False)
    with serving(tmp_path) as server:
        people = simulated(server.port, tasks, think=0.1 if kills else 0.0)
        asyncio.run(all_take_part(people, server, times=kills))
    assert (sum(person.retries for person in people) > 0) or not kills, "unnoticed, it would prove nothing"
    with open_study(tmp_path) as study:
        check(study, people, tasks)
