"""Judge by a provider's batch API: submit, wait, collect, and survive a crash between any two steps.

The order of writes makes it safe. A ticket is in the ledger before its questions are sent; the batch's ID is added when
it is known; answers are saved before the ticket is closed. A ticket without an ID is looked up at the provider before
its questions are sent again. An answer that is already in the ledger is not saved twice.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Generator, Iterable, Set
from datetime import UTC, datetime
from typing import assert_never

from stillme.errors import StillmeError
from stillme.judges.model import ModelJudge
from stillme.stages.answers import Answered, Answers, Asked
from stillme.stages.loop import Activity, Terms
from stillme.stages.tally import Ended, Tally
from stillme.stages.workers import brought
from stillme.store import Store
from stillme.store.tickets import Ticket
from stillme.types import Assessment, Failed, Pair
from stillme.vlm import Malformed, Reply
from stillme.vlm.batch_apis import Located, LostBatch, MaybeSubmitted, NotSubmitted
from stillme.vlm.batches import (
    BatchClient,
    BatchGone,
    BatchRejected,
    BatchStateUnknown,
    EncodedQuestion,
    PendingQuestion,
)

_MAX_ERRORS = 5
"""Errors in a row before the run ends; tickets stay open for the next run."""
_ROUNDS = 3
"""How often questions that never arrived are submitted."""


def judge_in_batches(
    judge: ModelJudge,
    tasks: Iterable[Asked],
    store: Store,
    answers: Answers,
    terms: Terms,
    tally: Tally,
    *,
    submit: bool,
) -> Activity:
    """Collect what is in a batch and, with `submit`, submit the rest. Ends when no batch is open."""
    tally.begin()
    ended = yield from _BatchRun(judge, store, answers, terms, tally).run(tasks, submit=submit)
    tally.end(ended)
    return ended


class _BatchRun:
    """One judge's open batches, from submission to saved answers."""

    def __init__(self, judge: ModelJudge, store: Store, answers: Answers, terms: Terms, tally: Tally) -> None:
        self._judge, self._store, self._answers, self._terms, self._tally = judge, store, answers, terms, tally
        self._client = BatchClient(judge.model)
        self._waiting: dict[str, Asked] = {}
        """Tasks whose questions are in a batch, by key."""
        self._resubmit: list[Asked] = []
        """Tasks whose ticket was abandoned."""
        self._errors_in_a_row = 0

    def run(self, tasks: Iterable[Asked], *, submit: bool) -> Activity:
        for ticket in self._open():
            self._terms.spending.reserve(ticket.expected or 0.0)
        submitted = {key for ticket in self._open() for key, _ in ticket.questions}
        for _ in range(_ROUNDS):
            ended = (yield from self._start(tasks, submitted, submit=submit)) or (yield from self._wait())
            if self._answers.stopped:
                self._tally.reason = self._answers.stopped
                return Ended.STOPPED
            tasks, self._resubmit = self._resubmit, []
            if ended is not Ended.COMPLETE or not (submit and tasks):
                return ended
            submitted = set[str]()
        raise StillmeError(
            f"{self._judge.spec.use} accepted none of {_ROUNDS} batches in a row, so none was charged. Run the same "
            'command to try again, or write delivery = "now".'
        )

    def _start(
        self, tasks: Iterable[Asked], submitted: Set[str], *, submit: bool
    ) -> Generator[None, None, Ended | None]:
        batch: list[tuple[Asked, EncodedQuestion]] = []
        size = 0
        for task in tasks:
            if task.key in submitted:
                self._waiting[task.key] = task
            elif submit and not self._answers.stopped:
                if ended := self._terms.should_end():
                    return ended
                pair = self._judge.check_labels(task.pair) or self._brought(task)
                if isinstance(pair, Failed):
                    self._save([self._row(task, self._judge.assessment(task.pair, pair))])
                    continue
                question = self._client.encode(self._judge.question(pair))
                if len(batch) == self._judge.settings.batch_size or not self._client.fits(question, size):
                    if ended := (yield from self._submit(batch)):
                        return ended
                    batch, size = [], 0
                batch.append((task, question))
                size += question.bytes
        return (yield from self._submit(batch)) if batch else None

    # -- submitting -------------------------------------------------------------------------------------------------

    def _submit(self, batch: list[tuple[Asked, EncodedQuestion]]) -> Generator[None, None, Ended | None]:
        expected = self._client.expected_dollars(len(batch))
        if not self._terms.spending.allows(expected or 0.0):
            # What is already submitted is charged, so it is still collected.
            ended = yield from self._wait()
            return Ended.OVER_BUDGET if ended is Ended.COMPLETE else ended
        ticket = Ticket(
            id=secrets.token_hex(8),
            judge=self._judge.spec.key,
            questions=[(task.key, question.sizes) for task, question in batch],
            expected=expected,
            at=datetime.now(UTC),
        )
        questions = [question.with_id(ticket.id_of(place)) for place, (_, question) in enumerate(batch)]
        self._waiting |= {task.key: task for task, _ in batch}
        self._store.add_ticket(ticket)
        self._terms.spending.reserve(expected or 0.0)
        try:
            id_ = self._client.submit(ticket.id, questions)
        except BatchRejected as error:
            self._store.add_ticket_event(ticket, "abandoned", f"rejected: {error}")
            self._client.clean_up_ticket(ticket.id)
            self._terms.spending.settle(expected or 0.0, 0.0)
            raise StillmeError(f"{self._judge.spec.use} rejected a batch of {len(batch):,}: {error}") from None
        except BatchStateUnknown:
            return None  # looked up while waiting, as after a crash
        self._store.add_ticket_event(ticket, "submitted", id_)
        return None

    # -- collecting -------------------------------------------------------------------------------------------------

    def _wait(self) -> Activity:
        while open_ := self._open():
            if ended := self._terms.should_end():
                return ended
            before = len(open_)
            for ticket in open_:
                self._advance(ticket)
            self._terms.watch(self._tally)
            if len(self._open()) == before:
                yield from self._pause()
        return Ended.COMPLETE

    def _advance(self, ticket: Ticket) -> None:
        try:
            if ticket.batch is None:
                self._look_up(ticket)
            elif self._client.has_ended(ticket.batch):
                self._collect(ticket, ticket.batch)
            self._errors_in_a_row = 0
        except BatchGone as error:
            self._abandon(ticket, f"the provider no longer has it: {error}")
        except (BatchStateUnknown, BatchRejected) as error:
            self._errors_in_a_row += 1
            if self._errors_in_a_row > _MAX_ERRORS or isinstance(error, BatchRejected):
                raise StillmeError(
                    f"{self._judge.spec.use} does not give the state of its batches ({error}). What was submitted is "
                    "on record; run the same command to continue."
                ) from None

    def _abandon(self, ticket: Ticket, reason: str) -> None:
        self._store.add_ticket_event(ticket, "abandoned", reason)
        self._client.clean_up_ticket(ticket.id)
        self._terms.spending.settle(ticket.expected or 0.0, 0.0)
        tasks = (self._waiting.pop(key, None) for key, _ in ticket.questions)
        self._resubmit += [task for task in tasks if task]

    def _look_up(self, ticket: Ticket) -> None:
        lost = LostBatch(ticket=ticket.id, since=ticket.at, requests=len(ticket.questions))
        match self._client.look_up(lost):
            case Located(batch=batch):
                self._store.add_ticket_event(ticket, "submitted", batch)
            case MaybeSubmitted():
                pass
            case NotSubmitted():
                # The provider's list may lag: only what is still missing after a pause never arrived.
                if (datetime.now(UTC) - ticket.at).total_seconds() >= self._judge.settings.poll_seconds:
                    self._abandon(ticket, "never reached the provider")
            case never:
                assert_never(never)

    def _collect(self, ticket: Ticket, batch: str) -> None:
        finished = self._answers.finished([key for key, _ in ticket.questions])
        wanted = {
            ticket.id_of(place): (self._waiting[key], sizes)
            for place, (key, sizes) in enumerate(ticket.questions)
            if key in self._waiting and key not in finished
        }
        pending = {
            id_: PendingQuestion(question=self._judge.question(task.pair), sizes=sizes)
            for id_, (task, sizes) in wanted.items()
        }
        replies = self._client.collect(batch, pending) if pending else {}
        malformed: list[tuple[Asked, Malformed]] = []
        rows: list[Answered] = []
        for id_, reply in replies.items():
            task = wanted[id_][0]
            if isinstance(reply, Malformed):
                malformed.append((task, reply))
            else:
                rows.append(self._row(task, self._judge.assessment(task.pair, reply)))
        self._save(rows)
        for task, first in malformed:
            # Not in another batch, which could take another day for a handful of answers.
            pair = self._brought(task)
            lost = isinstance(pair, Failed)
            second: Reply = pair if lost else self._judge.model.ask_again(self._judge.question(pair), first)
            self._save([self._row(task, self._judge.assessment(task.pair, second))])
        dropped = sum(key not in self._waiting and key not in finished for key, _ in ticket.questions)
        # Before the ticket is closed: after a crash in between, the next run would not know of the uploads.
        self._client.clean_up(batch)
        self._store.add_ticket_event(ticket, "collected", f"{dropped} no longer asked for" if dropped else "")
        self._terms.spending.settle(ticket.expected or 0.0, 0.0)

    def _brought(self, task: Asked) -> Pair | Failed:
        """The pair with its pictures on this machine, or how they are lost. Where no store answers, nothing is lost."""
        pair = brought(task.pair, self._store.pictures)
        if isinstance(pair, Failed) and pair.retryable:
            raise StillmeError(pair.error)
        return pair

    # -- saving -----------------------------------------------------------------------------------------------------

    def _save(self, rows: list[Answered]) -> None:
        self._answers.save(rows)
        for row in rows:
            self._terms.spending.settle(0.0, row.cost)
            self._tally.counts["failed" if row.assessment.failure else "judged"] += 1
        self._tally.cost = self._terms.spending.spent

    def _row(self, task: Asked, assessment: Assessment) -> Answered:
        return Answered(task=task, assessment=assessment, attempts=1, seconds=0.0, cost=assessment.cost)

    # -- waiting ----------------------------------------------------------------------------------------------------

    def _open(self) -> list[Ticket]:
        return self._store.tickets.open(self._judge.spec.key)

    def _pause(self) -> Generator[None]:
        """Until it is time to look again."""
        end = time.monotonic() + self._judge.settings.poll_seconds
        while time.monotonic() < end and not self._terms.should_end():
            yield
