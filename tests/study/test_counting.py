"""Every item ends with exactly k ratings that count, whoever is excluded or returns, and no answer is ever lost."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from stillme.study.opening import Study, open_study
from stillme.study.progress import overview_of
from stillme.study.quality import raters, ratings
from stillme.study.submissions import apply_statuses
from stillme.web.database import Transaction
from tests.study.annotators import Annotator, Researcher, ServerProcess, disturb, fill_up, serving
from tests.study.conftest import Served
from tests.study.studies import write_study


def ratings_that_count(study: Study) -> Counter[tuple[str, int, str]]:
    """How many ratings of each item, output and question count."""
    with study.database.reading() as connection:
        counting = [rater for rater in raters(study, connection) if rater.counts]
        rows = ratings(study, connection, counting)
    return Counter((row.item.id, row.output, row.axis) for row in rows if row.item.kind == "real")


def raters_needed(served: Served) -> int:
    return overview_of(served.study).progress.raters_needed


@pytest.fixture
def small(serve: Callable[..., Served]) -> Served:
    return serve(tasks=1, per_task=2, raters=2, checks=False)


def test_excluding_a_finished_rater_opens_the_place_again(small: Served) -> None:
    for name in ("one", "two"):
        small.browser().take_part(name)
    assert raters_needed(small) == 0
    first, _ = overview_of(small.study).raters
    admin = small.admin()
    assert admin.decide("/admin/exclude", first.rater, "told us that they guessed").status_code == 303
    progress = overview_of(small.study).progress
    assert (progress.counting, progress.excluded, progress.raters_needed) == (1, 1, 1)
    assert "1 raters still needed" in overview_of(small.study).as_text()
    small.browser().take_part("three")
    assert raters_needed(small) == 0
    assert set(ratings_that_count(small.study).values()) == {2}
    # Coming back would make three.
    assert admin.decide("/admin/exclude", first.rater, "").status_code == 409
    assert first.rater in {rater.rater for rater in overview_of(small.study).raters}, "excluded raters stay in sight"


def test_a_rater_who_is_included_again_takes_the_place_back(small: Served) -> None:
    small.browser().take_part("one")
    (rater,) = overview_of(small.study).raters
    admin = small.admin()
    admin.decide("/admin/exclude", rater.rater, "by mistake")
    assert raters_needed(small) == 2
    assert admin.decide("/admin/exclude", rater.rater, "").status_code == 303
    assert raters_needed(small) == 1
    small.browser().take_part("two")
    assert set(ratings_that_count(small.study).values()) == {2}


def test_somebody_excluded_while_rating_may_finish_and_does_not_count(small: Served) -> None:
    browser = small.browser().enter("one").to_rating()
    (rater,) = overview_of(small.study).raters
    small.admin().decide("/admin/exclude", rater.rater, "wrote that they were not looking")
    assert raters_needed(small) == 2
    browser.hand_in()
    assert browser.ask("GET", "/finish").headers["location"].endswith("cc=DONE1")
    assert raters_needed(small) == 2
    for name in ("two", "three"):
        small.browser().take_part(name)
    assert set(ratings_that_count(small.study).values()) == {2}


def test_every_status_is_handled_by_itself(serve: Callable[..., Served], tmp_path: Path) -> None:
    served = serve(tasks=3, per_task=2, raters=3, checks=False)
    finished = ("approved", "partly", "rejected", "returned", "late")
    for name in finished:
        served.browser().take_part(name)
    for name in ("left", "slow", "active"):
        served.browser().enter(name).to_rating()
    file = tmp_path / "export.csv"
    rows = {
        "approved": "APPROVED",
        "partly": "Partially Approved",
        "rejected": "REJECTED",
        "returned": "RETURNED",
        "late": "TIMED-OUT",
        "left": "RETURNED",
        "slow": "TIMED_OUT",
        "active": "GONE FISHING",
        "stranger": "RESERVED",
    }
    file.write_text("Participant id,Status\n" + "".join(f"{pid},{status}\n" for pid, status in rows.items()))
    assert apply_statuses(served.study, file).done == {
        "ids deleted": 2,
        "excluded, places freed": 1,
        "places freed": 3,
        "timed out there but finished here: kept, please pay them": 1,
        "with the status 'GONE FISHING', which is not known: nothing was done": 1,
        "unknown here": 1,
    }
    progress = overview_of(served.study).progress
    assert (progress.counting, progress.under_way, progress.raters_needed) == (3, 1, 5)
    assert served.column("SELECT count(*) FROM identity") == [6]
    # Once more changes nothing.
    again = apply_statuses(served.study, file).done
    assert overview_of(served.study).progress == progress
    assert not {"places freed", "excluded, places freed", "ids deleted"} & set(again)


def test_an_earlier_submissions_status_does_not_free_the_place_of_a_later_one(served: Served, tmp_path: Path) -> None:
    browser = served.browser().enter("again").to_rating()
    file = tmp_path / "export.csv"
    head = "Submission id,Participant id,Status\n"
    file.write_text(head + "sother,again,RETURNED\n")
    assert apply_statuses(served.study, file).done == {"an earlier submission: nothing was done": 1}
    assert browser.save(browser.answers()).status_code == 200
    file.write_text(head + "sother,again,RETURNED\nsagain,again,RETURNED\n")
    assert apply_statuses(served.study, file).done["places freed"] == 1


def test_more_raters_can_be_asked_for_and_fewer_only_where_nobody_sits(tmp_path: Path) -> None:
    write_study(tmp_path, tasks=2, per_task=2, raters=2, checks=False)
    file = tmp_path / "study.toml"

    def needed(count: int) -> int:
        text = file.read_text()
        before = next(line for line in text.splitlines() if line.startswith("raters ="))
        file.write_text(text.replace(before, f"raters = {count}"))
        with open_study(tmp_path, renew=True) as study:
            return overview_of(study).progress.needed

    with open_study(tmp_path) as study:
        assert overview_of(study).progress.needed == 4
    assert needed(5) == 10
    assert needed(1) == 2
    assert needed(3) == 6


# -- on the real server, many at once ---------------------------------------------------------------------------------

TASKS, RATERS, DISTURBED = 4, 3, 6


def test_exclusions_returns_and_withdrawals_in_the_middle_leave_exactly_k(tmp_path: Path) -> None:
    password = write_study(tmp_path, tasks=TASKS, per_task=2, raters=RATERS, checks=False)
    with serving(tmp_path) as server:
        people = [Annotator(server.port, f"p{n}", mischief=n % 4 == 0) for n in range(TASKS * RATERS)]
        researcher = Researcher(server.port, password)

        async def work() -> None:
            taking_part = (person.take_part() for person in people)
            await asyncio.gather(disturb(researcher, people, DISTURBED), *taking_part)
            await fill_up(server.port, researcher)

        asyncio.run(work())
    with open_study(tmp_path) as study:
        counts = ratings_that_count(study)
        progress = overview_of(study).progress
    assert set(counts.values()) == {RATERS}
    assert len(counts) == TASKS * 2 * 2 * 5
    assert (progress.counting, progress.raters_needed) == (TASKS * RATERS, 0)
    # Who was excluded may withdraw afterwards, and then counts as that.
    assert progress.excluded <= 2
    assert progress.withdrawn >= 2
    assert progress.excluded + progress.withdrawn >= 4
    # Whoever withdraws before they have a place leaves none behind.
    assert progress.slots["void"] >= progress.excluded


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


def check_answers(study: Study, people: Sequence[Annotator], tasks: int) -> None:
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
        check_answers(study, people, tasks)
