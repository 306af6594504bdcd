"""Exactly k raters an item, one task a participant, whatever happens in which order."""

from __future__ import annotations

import tempfile
from collections import Counter
from contextlib import ExitStack
from pathlib import Path

import numpy as np
import pytest
import sqlalchemy as sa
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, invariant, multiple, precondition, rule

from stillme.study import assignment, entry
from stillme.study import schema as t
from stillme.study.answers import Answers, SaveRequest, Seen, StalePage, SubmittedAnswer
from stillme.study.assignment import BatchItem, Closed, Full, Held, PassedOn, order, swapped
from stillme.study.entry import withdraw
from stillme.study.opening import Study
from tests.study.studies import small_study

LEASE = 3600.0
SEEN = Seen(pictures=3, decoded=64, shown=400)


def arrive(study: Study, name: str) -> str:
    with study.database.writing() as connection:
        token = entry.enter(study, connection, entry.Arrival(origin="prolific", name=name, submission="s"))
        visitor = entry.recognise(study, connection, token)
    assert visitor
    return visitor.participant


def claim(study: Study, who: str, now: float) -> assignment.Claim:
    with study.database.writing() as connection:
        return assignment.claim(connection, study.id, who, now)


def all_answers(study: Study, held: Held) -> list[SubmittedAnswer]:
    with study.database.reading() as connection:
        shown = Answers(study).shown(connection, held.slot)
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
        rows = connection.execute(sa.select(t.slot)).all()
        answers = connection.execute(sa.select(t.answer.c.slot).distinct()).scalars().all()
    live = [row for row in rows if row.state != "void"]
    assert Counter((row.batch, row.n) for row in live) == {
        (batch, n): 1 for batch in {row.batch for row in rows} for n in range(k)
    }
    holders = [row.participant for row in live if row.participant]
    assert len(holders) == len(set(holders)), "somebody has two tasks"
    for batch in {row.batch for row in rows}:
        assert sum(row.state == "done" and row.batch == batch for row in rows) <= k
    assert set(answers) <= {row.id for row in rows if row.state != "open"}


class Machine(RuleBasedStateMachine):
    """Any order of arriving, answering, expiring, returning, finishing and withdrawing."""

    people = Bundle("people")

    def __init__(self) -> None:
        super().__init__()
        self.stack = ExitStack()
        folder = Path(self.stack.enter_context(tempfile.TemporaryDirectory()))
        self.study = self.stack.enter_context(small_study(folder, tasks=2, per_task=2, raters=2, checks=False))
        self.answers = Answers(self.study)
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
            assert isinstance(again, Held)
            assert (again.slot, again.epoch) == (got.slot, got.epoch)
            self.held[who] = got

    @rule(who=people, seq=st.integers(1, 9), value=st.integers(0, 5), item=st.integers(0, 1), side=st.integers(0, 1))
    def answers_something(self, who: str, seq: int, value: int, item: int, side: int) -> None:
        remembered = self.held.get(who)
        with self.study.database.reading() as connection:
            row = connection.execute(
                sa.select(t.slot.c.epoch, t.slot.c.state).where(t.slot.c.participant == who, t.slot.c.state == "held")
            ).first()
        saving = SaveRequest(
            epoch=remembered.epoch if remembered else 1,
            answers=[SubmittedAnswer(seq=seq, item=item, side=side, question=0, value=value, seen=SEEN)],
        )
        if row is not None and row.epoch == saving.epoch:
            self.answers.save(who, saving)
        else:
            with pytest.raises(StalePage):
                self.answers.save(who, saving)

    @rule(who=people)
    def finishes(self, who: str) -> None:
        held = self.held.get(who)
        if held is None:
            return
        try:
            saving = all_answers(self.study, held)
            saving = [answer.model_copy(update={"seq": answer.seq + 100}) for answer in saving]
            self.answers.save(who, SaveRequest(epoch=held.epoch, answers=saving))
            assert self.answers.complete(who, held.epoch) == []
        except StalePage:
            pass

    @rule(seconds=st.sampled_from([10.0, LEASE / 2, LEASE + 1]))
    def time_passes(self, seconds: float) -> None:
        self.now += seconds

    @rule()
    def slots_expire(self) -> None:
        with self.study.database.writing() as connection:
            assignment.expire(connection, self.study.id, self.now)

    @rule(who=people)
    def returns(self, who: str) -> None:
        with self.study.database.writing() as connection:
            row = connection.execute(
                sa.select(t.slot.c.id).where(t.slot.c.participant == who, t.slot.c.state != "void")
            ).first()
            if row:
                assert assignment.release(connection, row.id, "returned", self.now)

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
            counting = (t.slot.c.state == "done") & t.participant.c.excluded.is_not(None)
            rows = sa.select(t.slot.c.id).join(t.participant, t.participant.c.id == t.slot.c.participant)
            assert not connection.execute(rows.where(counting)).all()

    @precondition(lambda self: self.count > 0)
    @rule(who=consumes(people))
    def withdraws(self, who: str) -> None:
        withdraw(self.study, who)
        self.withdrawn += 1
        self.held.pop(who, None)
        with self.study.database.reading() as connection:
            for table in (t.slot, t.session, t.consent, t.identity):
                assert not connection.execute(sa.select(table).where(table.c.participant == who)).all()
            kept = connection.execute(sa.select(t.study.c.withdrawn)).scalar_one()
        assert kept == self.withdrawn

    @rule(target=people)
    def nobody(self) -> object:
        return multiple()

    @invariant()
    def exactly_k_places(self) -> None:
        check_everything(self.study, 2)


# Time in answers is the real clock's, so leases that answers renew end long after those of claims; both orders occur.
Machine.TestCase.settings = settings(max_examples=30, stateful_step_count=25, deadline=None)
TestAssignment = Machine.TestCase


@pytest.fixture
def study(tmp_path: Path):
    with small_study(tmp_path / "study", tasks=2, per_task=3, raters=3) as opened:
        yield opened


def test_the_most_filled_batch_is_completed_first(study: Study) -> None:
    got = [claim(study, arrive(study, f"p{n}"), 1.0) for n in range(6)]
    batches = [held.batch for held in got if isinstance(held, Held)]
    assert batches[:3] == [batches[0]] * 3
    assert len(set(batches)) == 2
    assert claim(study, arrive(study, "late"), 1.0) == Full()
    check_everything(study, 3)


def test_a_lapsed_place_comes_back_to_its_owner_unless_somebody_took_it(study: Study) -> None:
    people = [arrive(study, f"p{n}") for n in range(6)]
    first = claim(study, people[0], 0.0)
    assert isinstance(first, Held)
    Answers(study).save(people[0], SaveRequest(epoch=first.epoch, answers=all_answers(study, first)[:4]))
    with study.database.writing() as connection:
        # Answers renew the lease by the real clock.
        connection.execute(t.slot.update().values(lease_until=10.0))
        assert assignment.expire(connection, study.id, 11.0) == 1
    back = claim(study, people[0], 12.0)
    assert isinstance(back, Held)
    assert (back.slot, back.epoch) == (first.slot, first.epoch + 1)
    with pytest.raises(StalePage):
        Answers(study).save(people[0], SaveRequest(epoch=first.epoch))
    with study.database.reading() as connection:
        assert connection.execute(sa.select(sa.func.count()).select_from(t.answer)).scalar_one() == 4
    for who in people[1:]:
        claim(study, who, 13.0 + LEASE)  # the first place has lapsed again and is given away
    claim(study, arrive(study, "p7"), 13.0 + LEASE)
    assert claim(study, people[0], 14.0 + LEASE) == PassedOn("expired")
    check_everything(study, 3)


def test_a_closed_study_takes_nobody(study: Study) -> None:
    with study.database.writing() as connection:
        connection.execute(t.study.update().values(state="closed"))
    assert claim(study, arrive(study, "p"), 1.0) == Closed()


def test_the_database_itself_refuses_a_second_rater_in_a_place(study: Study) -> None:
    one, two = arrive(study, "p1"), arrive(study, "p2")
    held = claim(study, one, 1.0)
    assert isinstance(held, Held)

    def insert(**values: object) -> None:
        with study.database.writing() as connection:
            row = {"id": "x", "batch": held.batch, "n": held.n, "state": "held", "participant": two}
            connection.execute(t.slot.insert().values(**{**row, **values}))

    with pytest.raises(sa.exc.IntegrityError):
        insert()
    with pytest.raises(sa.exc.IntegrityError):
        insert(n=99, participant=one)


def test_every_output_is_on_each_side_equally_often() -> None:
    for offset in (0, 1):
        item = BatchItem(id="x", kind="real", offset=offset, sides=2)
        assert sum(swapped(item, n) for n in range(4)) == 2
        assert abs(sum(swapped(item, n) for n in range(3)) - 1.5) == 0.5


def test_half_of_a_tasks_first_outputs_are_on_either_side(study: Study) -> None:
    counted = sa.select(t.batch_item.c.batch, t.item.c.kind, sa.func.count(), sa.func.sum(t.item.c.offset))
    with study.database.reading() as connection:
        joined = counted.join(t.item, t.batch_item.c.item == t.item.c.id).group_by(t.batch_item.c.batch, t.item.c.kind)
        rows = connection.execute(joined).all()
    assert max(n for *_, n, _ in rows) >= 2
    assert all(on_b in (n // 2, n - n // 2) for *_, n, on_b in rows)


def test_repeats_come_after_their_originals_and_checks_are_spread() -> None:
    real = [BatchItem(id=f"i{n}", kind="real", offset=0, sides=2) for n in range(48)]
    again = [BatchItem(id=f"r{n}", kind="repeat", offset=0, sides=2, repeats=f"i{n}") for n in range(2)]
    checks = [BatchItem(id=f"a{n}", kind="attention", offset=0, sides=2) for n in range(2)]
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
        held = claim(study, arrive(study, f"p{n}"), 1.0)
        assert isinstance(held, Held)
        with study.database.reading() as connection:
            orders.append([place.item for place in Answers(study).shown(connection, held.slot)])
    assert sorted(orders[0]) == sorted(orders[1])
    assert orders[0] != orders[1]
