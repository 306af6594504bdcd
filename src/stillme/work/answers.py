"""A judge's questions with pairs of known truth among them, and where the answers are kept."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial

from stillme.audit import Audit, NamedJudge
from stillme.core.types import Assessment, Pair
from stillme.runs.control_pairs.asking import Answer, Sentinel, Sentinels, SentinelTask
from stillme.runs.store import AssessmentRow, Store
from stillme.work.loop import missing
from stillme.work.shards import Shard
from stillme.work.tally import Tally
from stillme.work.tasks import Task, example_of

Asked = Task | SentinelTask


@dataclass(frozen=True, slots=True, kw_only=True)
class Answered:
    """What a judge said, and what that took."""

    task: Asked
    assessment: Assessment
    attempts: int
    seconds: float
    cost: float


class Answers:
    """Where the answers of one judge are kept: real ones as assessments, the others apart."""

    def __init__(self, named: NamedJudge, store: Store, sentinels: Sentinels) -> None:
        self._judge, self._store, self._sentinels = named.judge.spec, store, sentinels

    @property
    def stopped(self) -> str:
        """Why the judge must not go on; empty while it may."""
        return self._sentinels.stopped

    def finished(self, keys: Sequence[str]) -> set[str]:
        """Which of these need no more work."""
        return self._store.finished("assessment", keys) | self._store.finished("sentinel", keys)

    def save(self, answered: Sequence[Answered]) -> None:
        """Keep them for good."""
        real = [
            AssessmentRow(
                key=answer.task.key,
                edit=answer.task.pair.edit,
                epoch=answer.task.pair.epoch,
                judge=self._judge,
                assessment=answer.assessment,
                attempts=answer.attempts,
                seconds=answer.seconds,
                cost=answer.cost,
            )
            for answer in answered
            if isinstance(answer.task, Task)
        ]
        if real:
            self._store.add(real)
        known = [
            Answer(
                task=answer.task,
                assessment=answer.assessment,
                attempts=answer.attempts,
                seconds=answer.seconds,
                cost=answer.cost,
            )
            for answer in answered
            if isinstance(answer.task, SentinelTask)
        ]
        if known:
            self._sentinels.save(known)


class Mixture:
    """Real questions, with the sentinels that have no answer yet at their places among them."""

    def __init__(
        self,
        named: NamedJudge,
        audit: Audit,
        store: Store,
        sentinels: Sentinels,
        tally: Tally,
        *,
        only_failed: bool,
        shard: Shard | None = None,
    ) -> None:
        self._named, self._audit, self._store = named, audit, store
        self._waiting = missing(
            _of_shard(sentinels.planned(), shard),
            lambda sentinel: sentinel.key,
            partial(store.finished, "sentinel"),
            tally,
            failed=partial(store.failed, "sentinel"),
            only_failed=only_failed,
        )
        self._next: SentinelTask | None = None
        self._asked = store.count_answers(named.judge.spec.key) if sentinels.count else 0
        """Real questions that were handed out, those of earlier runs included."""
        self._sent, self._lock = self._asked, threading.Lock()
        """Those that were sent: a worker may wait, and pictures take their time."""
        self._template_pair: Pair | None = None
        self._made = threading.Event()

    def among(self, tasks: Iterable[Task]) -> Iterator[Asked]:
        """The tasks; after each of them the next sentinel, if it is due. So the first question is never one."""
        for task in tasks:
            yield task
            self._asked += 1
            if len(task.pair.sources) == 1:
                self._template_pair = task.pair
            if sentinel := self._due():
                yield sentinel

    def rest(self) -> Iterator[Asked]:
        """The sentinels that are due when there are no more real questions."""
        while sentinel := self._due():
            yield sentinel

    def send(self, tasks: Sequence[Asked]) -> None:
        """These are sent now, for the first time or again: what comes before a sentinel is counted here."""
        with self._lock:
            for task in tasks:
                if isinstance(task, SentinelTask) and not task.sent:
                    task.answered_before = self._sent
                self._sent += isinstance(task, Task) and not task.sent
                task.sent = True

    def _due(self) -> SentinelTask | None:
        """The next sentinel, if this is its place. Its pictures are made while the questions before it are asked."""
        self._next = self._next or self._coming()
        if self._next is None or self._next.sentinel.place > self._asked:
            return None
        # Others must not overtake it meanwhile.
        self._made.wait()
        task, self._next = self._next, None
        return task

    def _coming(self) -> SentinelTask | None:
        self._template_pair = self._template_pair or example_of(self._named, self._audit, self._store)
        sentinel = next(self._waiting, None) if self._template_pair else None
        if sentinel is None or self._template_pair is None:
            return None
        task = SentinelTask(sentinel=sentinel, model=self._template_pair, pictures=self._store.pictures)
        self._made.clear()
        threading.Thread(target=self._make, args=(task,), daemon=True).start()
        return task

    def _make(self, task: SentinelTask) -> None:
        try:
            # What goes wrong here goes wrong again, and is reported, where the judge is asked.
            with suppress(Exception):
                _ = task.pair
        finally:
            self._made.set()


def _of_shard(sentinels: Iterable[Sentinel], shard: Shard | None) -> Iterator[Sentinel]:
    """Those that one of several processes asks, as far apart among its questions as among all."""
    for sentinel in sentinels:
        if shard is None:
            yield sentinel
        elif sentinel.number % shard.count == shard.number - 1:
            yield replace(sentinel, place=max(1, sentinel.place // shard.count))
