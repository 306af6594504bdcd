"""A judge's questions with pairs of known truth among them, and where the answers are kept."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import cast

from stillme.audit import Audit, NamedJudge
from stillme.core.types import Assessment, Pair
from stillme.runs.control_pairs.asking import ControlPair, ControlPairs, ControlTask
from stillme.runs.store import AssessmentRow, Store
from stillme.runs.store.rows import Done
from stillme.work.shards import Shard
from stillme.work.stage import Session, missing_in
from stillme.work.tally import Tally
from stillme.work.tasks import Task, example_of

Asked = Task | ControlTask


class Answers:
    """Where the answers of one judge are kept: real ones as assessments, the others apart."""

    def __init__(self, named: NamedJudge, store: Store, control_pairs: ControlPairs) -> None:
        self._judge, self._store, self._control_pairs = named.judge.spec, store, control_pairs

    @property
    def stopped(self) -> str:
        """Why the judge must not go on; empty while it may."""
        return self._control_pairs.stopped

    def save(self, finished: Sequence[Done[Asked, Assessment]]) -> None:
        """Keep them for good."""
        real = [
            AssessmentRow(
                key=done.task.key,
                edit=done.task.pair.edit,
                epoch=done.task.pair.epoch,
                judge=self._judge,
                assessment=done.result,
                attempts=done.attempts,
                seconds=done.seconds,
                cost=done.cost,
            )
            for done in finished
            if isinstance(done.task, Task)
        ]
        if real:
            self._store.add(real)
        known = [cast("Done[ControlTask, Assessment]", done) for done in finished if isinstance(done.task, ControlTask)]
        if known:
            self._control_pairs.save(known)


class Mixture:
    """Real questions, with the control pairs that have no answer yet at their places among them."""

    def __init__(
        self,
        named: NamedJudge,
        audit: Audit,
        store: Store,
        control_pairs: ControlPairs,
        session: Session,
        tally: Tally,
    ) -> None:
        self._named, self._audit, self._store = named, audit, store
        planned = _of_shard(control_pairs.planned(), session.options.shard)
        self._waiting = missing_in(store, "control_pair", planned, session, tally)
        self._next: ControlTask | None = None
        self._asked = store.count_answers(named.judge.spec.key) if control_pairs.count else 0
        """Real questions that were handed out, those of earlier runs included."""
        self._sent, self._lock = self._asked, threading.Lock()
        """Those that were sent: a worker may wait, and pictures take their time."""
        self._template_pair: Pair | None = None
        self._made = threading.Event()

    def among(self, tasks: Iterable[Task]) -> Iterator[Asked]:
        """The tasks; after each of them the next control pair, if it is due. So the first question is never one."""
        for task in tasks:
            yield task
            self._asked += 1
            if len(task.pair.sources) == 1:
                self._template_pair = task.pair
            if control_pair := self._due():
                yield control_pair

    def rest(self) -> Iterator[Asked]:
        """The control pairs that are due when there are no more real questions."""
        while control_pair := self._due():
            yield control_pair

    def send(self, tasks: Sequence[Asked]) -> None:
        """These are sent now, for the first time or again: what comes before a control pair is counted here."""
        with self._lock:
            for task in tasks:
                if isinstance(task, ControlTask) and not task.sent:
                    task.answered_before = self._sent
                self._sent += isinstance(task, Task) and not task.sent
                task.sent = True

    def _due(self) -> ControlTask | None:
        """The next control pair, if this is its place. Its pictures are made while the questions before it are sent."""
        self._next = self._next or self._coming()
        if self._next is None or self._next.control_pair.place > self._asked:
            return None
        # Others must not overtake it meanwhile.
        self._made.wait()
        task, self._next = self._next, None
        return task

    def _coming(self) -> ControlTask | None:
        self._template_pair = self._template_pair or example_of(self._named, self._audit, self._store)
        control_pair = next(self._waiting, None) if self._template_pair else None
        if control_pair is None or self._template_pair is None:
            return None
        task = ControlTask(control_pair=control_pair, model=self._template_pair, pictures=self._store.pictures)
        self._made.clear()
        threading.Thread(target=self._make, args=(task,), daemon=True).start()
        return task

    def _make(self, task: ControlTask) -> None:
        try:
            # What goes wrong here goes wrong again, and is reported, where the judge is asked.
            with suppress(Exception):
                _ = task.pair
        finally:
            self._made.set()


def _of_shard(control_pairs: Iterable[ControlPair], shard: Shard | None) -> Iterator[ControlPair]:
    """Those that one of several processes asks, as far apart among its questions as among all."""
    for control_pair in control_pairs:
        if shard is None:
            yield control_pair
        elif control_pair.number % shard.count == shard.number - 1:
            yield replace(control_pair, place=max(1, control_pair.place // shard.count))
