"""Exactly k raters an item, one task a participant, whatever happens in which order."""

from __future__ import annotations

import sqlite3
import tempfile
from collections import Counter
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, invariant, multiple, precondition, rule

from stillme.study import assignment, entry
from stillme.study.answers import (
    SaveRequest,
    Seen,
    StalePage,
    SubmittedAnswer,
    complete_task,
    presented_items,
    save_answers,
)
from stillme.study.assignment import Held, NoPlace, order, swapped
from stillme.study.entry import withdraw
from stillme.study.items import Item, Output
from stillme.study.opening import Study
from tests.records import must_be
from tests.study.studies import small_study

LEASE = 3600.0
SEEN = Seen(pictures=3, decoded=64, shown=400)


def arrive(study: Study, name: str) -> str:
    with study.database.writing() as connection:
        token = entry.enter(study, connection, entry.Arrival(origin="prolific", name=name, submission="s"))
        visitor = entry.recognise(connection, token)
    assert visitor
    return visitor.participant


def claim(study: Study, who: str, now: float) -> Held | NoPlace:
    with study.database.writing() as connection:
        return assignment.claim(connection, study.drawn.items, who, now)


def all_answers(study: Study, held: Held) -> list[SubmittedAnswer]:
    with study.database.reading() as connection:
        shown = presented_items(study, connection, held.slot)
    places = [
        (at, side, question)
        for at, place in enumerate(shown)
        for side in range(place.sides)
        for question in range(len(place.questions))
    ]
    return [
        SubmittedAnswer(seq=n + 1, item=i, side=s, question=q, value=3, seen=SEEN) for n, (i, s, q) in enumerate(places)
    ]


def check_everything(study: Study, k: int) -> None:
    """What must hold at any moment."""
    with study.database.reading() as connection:
        rows = connection.execute("SELECT * FROM slot").fetchall()
        answers = connection.column("SELECT DISTINCT slot FROM answer")
    live = [row for row in rows if row["state"] != "void"]
    assert Counter((row["batch"], row["n"]) for row in live) == {
        (batch, n): 1 for batch in {row["batch"] for row in rows} for n in range(k)
    }
    holders = [row["participant"] for row in live if row["participant"]]
    assert len(holders) == len(set(holders)), "somebody has two tasks"
    for batch in {row["batch"] for row in rows}:
        assert sum(row["state"] == "done" and row["batch"] == batch for row in rows) <= k
    assert set(answers) <= {row["id"] for row in rows if row["state"] != "open"}


class Machine(RuleBasedStateMachine):
    """Any order of arriving, answering, expiring, returning, finishing and withdrawing."""

    people = Bundle("people")

    def __init__(self) -> None:
        super().__init__()
        self.stack = ExitStack()
        folder = Path(self.stack.enter_context(tempfile.TemporaryDirectory()))
        self.study = self.stack.enter_context(small_study(folder, tasks=2, per_task=2, raters=2, checks=False))
        self.now = 1_000_000.0
        self.count = 0
        self.held: dict[str, Held] = {}
        """As each participant's page remembers it, perhaps out of date."""
        self.withdrawn = 0

    def teardown(self) -> None:
        self.stack.close()

    @rule(target=people)
    def somebody_comes(self) -> object:
        self.count += 1
        return arrive(self.study, f"p{self.count}")

    @rule(who=people)
    def claims(self, who: str) -> None:
        got = claim(self.study, who, self.now)
        again = claim(self.study, who, self.now)
        assert type(got) is type(again)
        if isinstance(got, Held):
            assert (again.slot, again.epoch) == (got.slot, got.epoch)
            self.held[who] = got

    @rule(who=people, seq=st.integers(1, 9), value=st.integers(0, 5), item=st.integers(0, 1), side=st.integers(0, 1))
    def answers_something(self, who: str, seq: int, value: int, item: int, side: int) -> None:
        remembered = self.held.get(who)
        with self.study.database.reading() as connection:
            epoch = connection.value("SELECT epoch FROM slot WHERE participant = ? AND state = 'held'", (who,))
        saving = SaveRequest(
            epoch=remembered.epoch if remembered else 1,
            answers=[SubmittedAnswer(seq=seq, item=item, side=side, question=0, value=value, seen=SEEN)],
        )
        if epoch == saving.epoch:
            save_answers(self.study, who, saving)
        else:
            with pytest.raises(StalePage):
                save_answers(self.study, who, saving)

    @rule(who=people)
    def finishes(self, who: str) -> None:
        held = self.held.get(who)
        if held is None:
            return
        try:
            saving = all_answers(self.study, held)
            saving = [answer.model_copy(update={"seq": answer.seq + 100}) for answer in saving]
            save_answers(self.study, who, SaveRequest(epoch=held.epoch, answers=saving))
            assert complete_task(self.study, who, held.epoch) == []
        except StalePage:
            pass

    @rule(seconds=st.sampled_from([10.0, LEASE / 2, LEASE + 1]))
    def time_passes(self, seconds: float) -> None:
        self.now += seconds

    @rule()
    def slots_expire(self) -> None:
        with self.study.database.writing() as connection:
            assignment.expire(connection, self.now)

    @rule(who=people)
    def returns(self, who: str) -> None:
        with self.study.database.writing() as connection:
            slot = connection.value("SELECT id FROM slot WHERE participant = ? AND state <> 'void'", (who,))
            assert slot is None or assignment.release(connection, slot, "returned", self.now)

    @rule(who=people, reason=st.sampled_from(["guessed", ""]))
    def is_excluded_or_included(self, who: str, reason: str) -> None:
        with self.study.database.writing() as connection:
            if reason:
                assignment.exclude(connection, who, reason, self.now)
            else:
                assignment.include(connection, who)

    @invariant()
    def who_is_excluded_never_counts(self) -> None:
        with self.study.database.reading() as connection:
            assert not connection.row(
                "SELECT 1 FROM slot s JOIN participant p ON p.id = s.participant "
                "WHERE s.state = 'done' AND p.excluded IS NOT NULL"
            )

    @precondition(lambda self: self.count > 0)
    @rule(who=consumes(people))
    def withdraws(self, who: str) -> None:
        withdraw(self.study, who)
        self.withdrawn += 1
        self.held.pop(who, None)
        with self.study.database.reading() as connection:
            for table in ("slot", "session", "consent", "identity"):
                assert not connection.row(f"SELECT 1 FROM {table} WHERE participant = ?", (who,))
            kept = connection.value("SELECT withdrawn FROM study")
        assert kept == self.withdrawn

    @rule(target=people)
    def nobody(self) -> object:
        return multiple()

    @invariant()
    def exactly_k_places(self) -> None:
        check_everything(self.study, 2)


# Time in answers is the real clock's, so leases that answers renew end long after those of claims; both orders occur.
Machine.TestCase.settings = settings(max_examples=20, stateful_step_count=25, deadline=None)
TestAssignment = Machine.TestCase


@pytest.fixture
def study(tmp_path: Path):
    with small_study(tmp_path / "study", tasks=2, per_task=3, raters=3) as opened:
        yield opened


def test_the_most_filled_batch_is_completed_first(study: Study) -> None:
    got = [claim(study, arrive(study, f"p{n}"), 1.0) for n in range(6)]
    with study.database.reading() as connection:
        of_slot = dict(connection.execute("SELECT id, batch FROM slot").fetchall())
    batches = [of_slot[held.slot] for held in got if isinstance(held, Held)]
    assert batches[:3] == [batches[0]] * 3
    assert len(set(batches)) == 2
    assert claim(study, arrive(study, "late"), 1.0) == NoPlace(why="full")
    check_everything(study, 3)


def test_the_database_itself_refuses_a_second_rater_in_a_place(study: Study) -> None:
    one, two = arrive(study, "p1"), arrive(study, "p2")
    held = must_be(Held, claim(study, one, 1.0))

    def insert(**values: object) -> None:
        with study.database.writing() as connection:
            taken = connection.row("SELECT batch, n FROM slot WHERE id = ?", (held.slot,))
            connection.insert("slot", {"id": "x", **taken, "state": "held", "participant": two, **values})

    with pytest.raises(sqlite3.IntegrityError):
        insert()
    with pytest.raises(sqlite3.IntegrityError):
        insert(n=99, participant=one)


def item_of(name: str, kind: Any = "real", **more: Any) -> Item:
    two = (Output(file="a"), Output(file="b"))
    return Item(id=name, kind=kind, prompt="", questions=(), source="", outputs=two, **more)


def test_every_output_is_on_each_side_equally_often() -> None:
    for offset in (0, 1):
        assert sum(swapped(item_of("x"), offset, n) for n in range(4)) == 2
        assert abs(sum(swapped(item_of("x"), offset, n) for n in range(3)) - 1.5) == 0.5


def test_half_of_a_tasks_first_outputs_are_on_either_side(study: Study) -> None:
    with study.database.reading() as connection:
        offsets = dict(connection.execute("SELECT id, offset FROM item").fetchall())
    alike: dict[tuple[int, str], list[int]] = {}
    for item in study.drawn.items:
        alike.setdefault((item.batch, item.kind), []).append(offsets[item.id])
    assert max(map(len, alike.values())) >= 2
    assert all(sum(sides) in (len(sides) // 2, len(sides) - len(sides) // 2) for sides in alike.values())


def test_repeats_come_after_their_originals_and_checks_are_spread() -> None:
    real = [item_of(f"i{n}") for n in range(48)]
    again = [item_of(f"r{n}", "repeat", repeats=f"i{n}") for n in range(2)]
    checks = [item_of(f"a{n}", "attention") for n in range(2)]
    seen = set()
    for seed in range(50):
        ordered = [item.id for item in order([*real, *again, *checks], np.random.default_rng(seed))]
        assert sorted(ordered) == sorted(item.id for item in [*real, *again, *checks])
        assert all(ordered.index(f"r{n}") - ordered.index(f"i{n}") > 10 for n in range(2))
        assert ordered[0] not in ("a0", "a1")
        assert abs(ordered.index("a0") - ordered.index("a1")) >= 1
        seen.add(tuple(ordered))
    assert len(seen) == 50


def test_the_order_is_stored_before_anything_is_shown_and_differs_between_people(study: Study) -> None:
    orders = []
    for n in range(2):
        held = must_be(Held, claim(study, arrive(study, f"p{n}"), 1.0))
        with study.database.reading() as connection:
            orders.append([place.item.id for place in presented_items(study, connection, held.slot)])
    assert sorted(orders[0]) == sorted(orders[1])
    assert orders[0] != orders[1]
