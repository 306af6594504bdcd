"""Run a stage: perform batches, save results, retry with backoff, and watch the budget."""

from __future__ import annotations

import heapq
import itertools
import logging
import queue
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Generic, TypeVar

from stillme.audit.config import ExecutorSection
from stillme.stages.interrupt import Stop
from stillme.store.attempts import Attempt
from stillme.store.attempts import Stage as StageName
from stillme.types import Failed

log = logging.getLogger(__name__)

T = TypeVar("T")
R = TypeVar("R")

_LOOK_AHEAD = 500
"""Tasks whose keys are looked up together: one query each, and memory stays flat."""
_SAVE_ROWS = 250
_SAVE_SECONDS = 0.5
"""At most this much finished work is unsaved at any time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Done(Generic[T, R]):
    """A task with its result."""

    task: T
    result: R
    attempts: int
    last_seconds: float
    """Of the last attempt."""
    seconds: float
    """Of all attempts."""
    cost: float
    """Of all attempts, in dollars."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage(Generic[T, R]):
    """What one kind of work consists of."""

    perform: Callable[[Sequence[T]], Sequence[R]]
    """Does a batch, in a worker thread. An exception ends the run; what a task can survive is a `Failed` inside R."""
    failure: Callable[[R], Failed | None]
    label: Callable[[R], str]
    """The word under which a result is counted."""
    cost: Callable[[R], float]
    save: Callable[[Sequence[Done[T, R]]], None]
    """Keeps results for good, in the calling thread."""
    name: StageName
    key: Callable[[T], str]
    """What a task's rows are kept under."""
    keep: Callable[[Sequence[Attempt]], None]
    """Keeps tries that failed, in the calling thread."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """How many tasks run at once, and how often they are retried."""

    concurrency: int = 1
    attempts: int = 4
    """Tries per task in one run, the first included."""
    backoff: float = 1.0
    """Seconds before the second try; doubles with each further one, up to a minute."""


def limits_of(executor: ExecutorSection, concurrency: int) -> Limits:
    """The limits of a stage, given its editor's or judge's concurrency."""
    return Limits(concurrency=min(concurrency, executor.workers or concurrency), attempts=executor.attempts)


@dataclass(frozen=True, slots=True, kw_only=True)
class Budget:
    """What may be spent. None is no limit."""

    dollars: float | None = None
    seconds: float | None = None

    def exhausted_by(self, cost: float, elapsed: float) -> bool:
        """Whether to start nothing more."""
        over_money = self.dollars is not None and cost >= self.dollars
        return over_money or (self.seconds is not None and elapsed >= self.seconds)


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """Budget, interruption and progress of the work."""

    budget: Budget
    stop: Stop
    watch: Callable[[Tally], None]
    started: float = field(default_factory=time.monotonic)
    """When the first stage began: the time budget is for all stages together."""

    def exhausted_by(self, tally: Tally) -> bool:
        """Whether the budget allows nothing more."""
        return self.budget.exhausted_by(tally.cost, time.monotonic() - self.started)


@dataclass(slots=True)
class Tally:
    """The progress of the work. The worker loop writes it; the progress display reads it."""

    name: str
    total: int
    cost: float = 0.0
    """Dollars, what earlier runs spent included."""
    already: int = 0
    counts: Counter[str] = field(default_factory=lambda: Counter[str]())
    retried: int = 0
    started: float = field(default_factory=time.monotonic)

    @property
    def done(self) -> int:
        """Results of this run."""
        return self.counts.total()

    @property
    def elapsed(self) -> float:
        """Seconds since the start."""
        return time.monotonic() - self.started

    @property
    def rate(self) -> float:
        """Results per second of this run."""
        return self.done / self.elapsed if self.elapsed > 0 else 0.0

    @property
    def remaining_seconds(self) -> float | None:
        """At the present rate; None before there is one."""
        left = self.total - self.already - self.done
        return left / self.rate if self.rate > 0 else None


class Ended(StrEnum):
    """Why the work ended."""

    COMPLETE = "complete"
    INTERRUPTED = "interrupted"
    OVER_BUDGET = "over budget"


def missing(
    tasks: Iterable[T], key: Callable[[T], str], finished: Callable[[Sequence[str]], set[str]], tally: Tally
) -> Iterator[T]:
    """The tasks that have no final row, looked up a chunk at a time so that no grid is ever held whole."""
    stream = iter(tasks)
    while chunk := list(itertools.islice(stream, _LOOK_AHEAD)):
        done = finished([key(task) for task in chunk])
        tally.already += len(done)
        yield from (task for task in chunk if key(task) not in done)


def grouped(tasks: Iterable[T], size: int, together: Callable[[T], object] | None = None) -> Iterator[list[T]]:
    """Neighbouring tasks in batches of up to `size`, which share `together` where it is given."""
    runs = itertools.groupby(tasks, together) if together else [(None, iter(tasks))]
    for _, neighbours in runs:
        while batch := list(itertools.islice(neighbours, size)):
            yield batch


def run(stage: Stage[T, R], batches: Iterable[Sequence[T]], *, limits: Limits, terms: Terms, tally: Tally) -> Ended:
    """Do all batches. Returns early, with everything saved, when stopped or out of budget."""
    with _Pool(stage, limits) as pool:
        return _Loop(stage, iter(batches), pool, limits, terms, tally).run()


def in_turn(parts: Iterable[tuple[Tally, Callable[[], Ended]]]) -> tuple[Ended, list[Tally]]:
    """Run several stages one after the other, up to the first that does not complete."""
    tallies: list[Tally] = []
    for tally, begin in parts:
        tallies.append(tally)
        ended = begin()
        if ended is not Ended.COMPLETE:
            return ended, tallies
    return Ended.COMPLETE, tallies


@dataclass(frozen=True, slots=True)
class _Order(Generic[T, R]):
    tasks: Sequence[T]
    earlier: Done[T, R] | None = None
    """The failed attempt that this one repeats."""


@dataclass(order=True, slots=True)
class _Later(Generic[T, R]):
    ready: float
    number: int
    done: Done[T, R] = field(compare=False)


class _Pool(Generic[T, R]):
    """Daemon threads, so that a second Ctrl-C need not wait for an edit that takes a minute."""

    def __init__(self, stage: Stage[T, R], limits: Limits) -> None:
        self._stage = stage
        self._orders: queue.SimpleQueue[_Order[T, R] | None] = queue.SimpleQueue()
        self.results: queue.SimpleQueue[list[Done[T, R]] | BaseException] = queue.SimpleQueue()
        self._threads = [threading.Thread(target=self._serve, daemon=True) for _ in range(limits.concurrency)]

    def __enter__(self) -> _Pool[T, R]:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        for _thread in self._threads:
            self._orders.put(None)

    def give(self, order: _Order[T, R]) -> None:
        self._orders.put(order)

    def _serve(self) -> None:
        while (order := self._orders.get()) is not None:
            try:
                self.results.put(self._perform(order))
            except BaseException as error:
                self.results.put(error)

    def _perform(self, order: _Order[T, R]) -> list[Done[T, R]]:
        started = time.perf_counter()
        results = self._stage.perform(order.tasks)
        seconds = (time.perf_counter() - started) / len(order.tasks)
        earlier = order.earlier
        return [
            Done(
                task=task,
                result=result,
                attempts=1 + (earlier.attempts if earlier else 0),
                last_seconds=seconds,
                seconds=seconds + (earlier.seconds if earlier else 0.0),
                cost=self._stage.cost(result) + (earlier.cost if earlier else 0.0),
            )
            for task, result in zip(order.tasks, results, strict=True)
        ]


class _Loop(Generic[T, R]):
    """The calling thread's side: hands out batches, gathers results, saves."""

    def __init__(
        self,
        stage: Stage[T, R],
        batches: Iterator[Sequence[T]],
        pool: _Pool[T, R],
        limits: Limits,
        terms: Terms,
        tally: Tally,
    ) -> None:
        self._stage, self._batches, self._pool, self._limits = stage, batches, pool, limits
        self._terms, self._tally = terms, tally
        self._in_flight = 0
        self._exhausted = False
        self._later: list[_Later[T, R]] = []
        self._numbers = itertools.count()
        self._unsaved: list[Done[T, R]] = []
        self._tried: list[Attempt] = []
        self._saved_at = time.monotonic()

    def run(self) -> Ended:
        try:
            while True:
                ended = self._should_end()
                while not ended and self._in_flight < 2 * self._limits.concurrency and (order := self._next_order()):
                    self._pool.give(order)
                    self._in_flight += 1
                if self._in_flight:
                    self._gather()
                elif ended or (self._exhausted and not self._later):
                    return ended or Ended.COMPLETE
                else:
                    time.sleep(min(0.05, max(0.0, self._later[0].ready - time.monotonic())))
        finally:
            # Also on the way out of an exception: what was computed is kept.
            self._unsaved.extend(later.done for later in self._later)
            self._tally.counts.update(self._stage.label(later.done.result) for later in self._later)
            self._save()

    def _should_end(self) -> Ended | None:
        if self._terms.stop.requested:
            return Ended.INTERRUPTED
        if self._terms.exhausted_by(self._tally) and not (self._exhausted and not self._later):
            return Ended.OVER_BUDGET
        return None

    def _next_order(self) -> _Order[T, R] | None:
        if self._later and self._later[0].ready <= time.monotonic():
            done = heapq.heappop(self._later).done
            self._tally.retried += 1
            return _Order([done.task], done)
        if not self._exhausted:
            batch = next(self._batches, None)
            if batch is not None:
                return _Order(batch)
            self._exhausted = True
        return None

    def _gather(self) -> None:
        try:
            # Signals are handled while waiting; the short time-out also lets a pending save happen.
            arrived = self._pool.results.get(timeout=0.1)
        except queue.Empty:
            self._save_if_due()
            return
        self._in_flight -= 1
        if isinstance(arrived, BaseException):
            raise arrived
        for done in arrived:
            self._tally.cost += self._stage.cost(done.result)
            failure = self._stage.failure(done.result)
            if failure:
                self._note(done, failure)
            if (
                failure
                and failure.retryable
                and done.attempts < self._limits.attempts
                and not self._terms.stop.requested
            ):
                heapq.heappush(self._later, _Later(self._ready_at(failure, done.attempts), next(self._numbers), done))
            else:
                self._tally.counts[self._stage.label(done.result)] += 1
                self._unsaved.append(done)
        self._save_if_due()
        self._terms.watch(self._tally)

    def _note(self, done: Done[T, R], failure: Failed) -> None:
        attempt = Attempt(
            stage=self._stage.name,
            key=self._stage.key(done.task),
            number=done.attempts,
            error=failure.error,
            retryable=failure.retryable,
            status=failure.status,
            seconds=done.last_seconds,
            cost=self._stage.cost(done.result),
        )
        log.info("%s %s: attempt %d failed: %s", attempt.stage, attempt.key, attempt.number, failure.error)
        self._tried.append(attempt)

    def _ready_at(self, failure: Failed, attempts: int) -> float:
        pause = failure.retry_after if failure.retry_after is not None else self._limits.backoff * 2 ** (attempts - 1)
        return time.monotonic() + min(pause, 60.0)

    def _save_if_due(self) -> None:
        if len(self._unsaved) >= _SAVE_ROWS or time.monotonic() - self._saved_at >= _SAVE_SECONDS:
            self._save()

    def _save(self) -> None:
        if self._tried:
            self._stage.keep(self._tried)
            self._tried = []
        if self._unsaved:
            self._stage.save(self._unsaved)
            self._unsaved = []
        self._saved_at = time.monotonic()
