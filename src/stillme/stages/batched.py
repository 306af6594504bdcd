"""Judge by a provider's batch service: hand over, wait, collect, and survive a crash between any two steps.

The order of writing makes it safe. A ticket is in the ledger before its questions are sent; the provider's number
follows when it is known; answers are saved before the ticket is closed. A ticket without a number is looked for at the
provider before its questions are asked again. An answer that is already in the ledger is not saved twice.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Iterable, Set
from datetime import UTC, datetime
from typing import assert_never

from stillme.errors import StillmeError
from stillme.judges.model import ModelJudge
from stillme.stages.loop import Ended, Tally, Terms
from stillme.stages.tasks import Task
from stillme.store import AssessmentRow, Store
from stillme.store.tickets import Ticket
from stillme.types import Assessment
from stillme.vlm import Malformed, Reply
from stillme.vlm.batches import Awaited, Batches, Gone, Packed, Rejected, Unanswered
from stillme.vlm.couriers import Found, Nowhere, Perhaps, Sought

_STUMBLES = 5
"""Times in a row that a provider may not answer before the run ends; tickets wait for the next one."""
_ROUNDS = 3
"""How often questions are handed over again that never arrived."""


def judge_in_batches(
    judge: ModelJudge, tasks: Iterable[Task], store: Store, terms: Terms, tally: Tally, *, submit: bool
) -> Ended:
    """Collect what is under way and, with `submit`, hand over the rest. Ends when nothing is under way any more."""
    return _Counter(judge, store, terms, tally).run(tasks, submit=submit)


class _Counter:
    """Where questions are handed over and answers picked up."""

    def __init__(self, judge: ModelJudge, store: Store, terms: Terms, tally: Tally) -> None:
        self._judge, self._store, self._terms, self._tally = judge, store, terms, tally
        self._batches = Batches(judge.model)
        self._waiting: dict[str, Task] = {}
        """Tasks whose questions are under way, by key."""
        self._returned: list[Task] = []
        """Tasks whose ticket was given up."""
        self._stumbles = 0

    def run(self, tasks: Iterable[Task], *, submit: bool) -> Ended:
        under_way = {key for ticket in self._open() for key, _ in ticket.questions}
        for _ in range(_ROUNDS):
            ended = self._take_in(tasks, under_way, submit=submit) or self._wait()
            tasks, self._returned = self._returned, []
            if ended is not Ended.COMPLETE or not (submit and tasks):
                return ended
            under_way = set[str]()
        raise StillmeError(
            f"{self._judge.spec.use} took none of {_ROUNDS} batches in a row. Nothing was paid for them; run the same "
            'command to try again, or write delivery = "now".'
        )

    def _take_in(self, tasks: Iterable[Task], under_way: Set[str], *, submit: bool) -> Ended | None:
        packed: list[Packed] = []
        chosen: list[Task] = []
        for task in tasks:
            if task.key in under_way:
                self._waiting[task.key] = task
            elif submit:
                if ended := self._should_end():
                    return ended
                if unfit := self._judge.unfit(task.pair):
                    self._keep(task, self._judge.assessment(task.pair, unfit))
                    continue
                one = self._batches.pack(task.key, self._judge.question(task.pair))
                if not self._batches.has_room(packed, one, self._judge.settings.batch_size):
                    if ended := self._hand_over(chosen, packed):
                        return ended
                    packed, chosen = [], []
                packed.append(one)
                chosen.append(task)
        return self._hand_over(chosen, packed) if packed else None

    # -- handing over -----------------------------------------------------------------------------------------------

    def _hand_over(self, tasks: list[Task], packed: list[Packed]) -> Ended | None:
        expected = self._batches.expected(len(tasks))
        if self._is_too_dear(expected or 0.0):
            # What is already handed over is paid for: it is still collected.
            ended = self._wait()
            return Ended.OVER_BUDGET if ended is Ended.COMPLETE else ended
        ticket = Ticket(
            id=secrets.token_hex(8),
            judge=self._judge.spec.key,
            questions=[(task.key, each.sizes) for task, each in zip(tasks, packed, strict=True)],
            expected=expected,
            at=datetime.now(UTC),
        )
        named = [each.named(ticket.id_of(place)) for place, each in enumerate(packed)]
        self._waiting |= {task.key: task for task in tasks}
        self._store.tickets.add(ticket)
        try:
            batch = self._batches.hand_over(ticket.id, named)
        except Rejected as error:
            self._store.tickets.note(ticket, "abandoned", f"rejected: {error}")
            raise StillmeError(f"{self._judge.spec.use} did not take a batch of {len(tasks):,}: {error}") from None
        except Unanswered:
            return None  # looked for while waiting, as after a crash
        self._store.tickets.note(ticket, "submitted", batch)
        return None

    def _is_too_dear(self, more: float) -> bool:
        limit = self._terms.budget.dollars
        committed = sum(ticket.expected or 0.0 for ticket in self._store.tickets.open())
        return limit is not None and self._tally.cost + committed + more > limit

    # -- picking up -------------------------------------------------------------------------------------------------

    def _wait(self) -> Ended:
        while open_ := self._open():
            if ended := self._should_end():
                return ended
            before = len(open_)
            for ticket in open_:
                self._look_after(ticket)
            self._terms.watch(self._tally)
            if len(self._open()) == before:
                self._pause()
        return Ended.COMPLETE

    def _look_after(self, ticket: Ticket) -> None:
        try:
            if ticket.batch is None:
                self._search(ticket)
            elif self._batches.has_ended(ticket.batch):
                self._collect(ticket, ticket.batch)
            self._stumbles = 0
        except Gone as error:
            self._give_up(ticket, f"the provider no longer has it: {error}")
        except (Unanswered, Rejected) as error:
            self._stumbles += 1
            if self._stumbles > _STUMBLES or isinstance(error, Rejected):
                raise StillmeError(
                    f"{self._judge.spec.use} does not answer about its batches ({error}). What was handed over is "
                    "noted; run the same command to go on."
                ) from None

    def _give_up(self, ticket: Ticket, why: str) -> None:
        self._store.tickets.note(ticket, "abandoned", why)
        known = (self._waiting.pop(key, None) for key, _ in ticket.questions)
        self._returned += [task for task in known if task]

    def _search(self, ticket: Ticket) -> None:
        sought = Sought(ticket=ticket.id, since=ticket.at, requests=len(ticket.questions))
        match self._batches.find(sought):
            case Found(batch=batch):
                self._store.tickets.note(ticket, "submitted", batch)
            case Perhaps():
                pass
            case Nowhere():
                # A list may lag behind by a moment: only what is still absent after a pause never arrived.
                if (datetime.now(UTC) - ticket.at).total_seconds() >= self._judge.settings.poll_seconds:
                    self._give_up(ticket, "never reached the provider")
            case never:
                assert_never(never)

    def _collect(self, ticket: Ticket, batch: str) -> None:
        finished = self._store.finished_assessments([key for key, _ in ticket.questions])
        wanted = {
            ticket.id_of(place): (self._waiting[key], sizes)
            for place, (key, sizes) in enumerate(ticket.questions)
            if key in self._waiting and key not in finished
        }
        awaited = {
            id_: Awaited(question=self._judge.question(task.pair), sizes=sizes) for id_, (task, sizes) in wanted.items()
        }
        replies = self._batches.collect(batch, awaited) if awaited else {}
        again: list[tuple[Task, Malformed]] = []
        rows: list[AssessmentRow] = []
        for id_, reply in replies.items():
            task = wanted[id_][0]
            if isinstance(reply, Malformed):
                again.append((task, reply))
            else:
                rows.append(self._row(task, self._judge.assessment(task.pair, reply)))
        self._save(rows)
        for task, first in again:
            # Asked once more, at once: a second batch for a handful of answers would take another day.
            second: Reply = self._judge.model.ask_again(self._judge.question(task.pair), first)
            self._keep(task, self._judge.assessment(task.pair, second))
        dropped = sum(key not in self._waiting and key not in finished for key, _ in ticket.questions)
        self._store.tickets.note(ticket, "collected", f"{dropped} no longer asked for" if dropped else "")
        self._batches.tidy(batch)

    # -- keeping ----------------------------------------------------------------------------------------------------

    def _keep(self, task: Task, assessment: Assessment) -> None:
        self._save([self._row(task, assessment)])

    def _save(self, rows: list[AssessmentRow]) -> None:
        self._store.add_assessments(rows)
        for row in rows:
            self._tally.cost += row.cost
            self._tally.counts["failed" if row.assessment.failure else "judged"] += 1

    def _row(self, task: Task, assessment: Assessment) -> AssessmentRow:
        return AssessmentRow(
            key=task.key,
            pair=task.pair,
            judge=self._judge.spec,
            assessment=assessment,
            attempts=1,
            seconds=0.0,
            cost=assessment.cost,
        )

    # -- waiting ----------------------------------------------------------------------------------------------------

    def _open(self) -> list[Ticket]:
        return self._store.tickets.open(self._judge.spec.key)

    def _should_end(self) -> Ended | None:
        if self._terms.stop.requested:
            return Ended.INTERRUPTED
        seconds = self._terms.budget.seconds
        if seconds is not None and time.monotonic() - self._terms.started >= seconds:
            return Ended.OVER_BUDGET
        return None

    def _pause(self) -> None:
        end = time.monotonic() + self._judge.settings.poll_seconds
        while (left := end - time.monotonic()) > 0 and not self._should_end():
            time.sleep(min(left, 0.2))
