"""What a stage is: its work, its limits, what all stages of a run share, and which of its tasks have no row yet."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Generic, TypeVar

from stillme.audit.config import ExecutorSection
from stillme.core.types import Failed
from stillme.runs.store import Store
from stillme.runs.store.rows import Attempt, Done, Table
from stillme.runs.store.rows import Stage as StageName
from stillme.work.breaker import FailurePolicy
from stillme.work.executors import Executor, Local
from stillme.work.interrupt import Stop
from stillme.work.options import RunOptions
from stillme.work.spending import Spending
from stillme.work.tally import Ended, Tally

T = TypeVar("T")
R = TypeVar("R")

_LOOK_AHEAD = 500
"""Tasks whose keys are looked up together: one query each, and memory stays flat."""


def _never() -> str:
    return ""


def _is_priced(_: object) -> bool:
    return False


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage(Generic[T, R]):
    """What one kind of work consists of."""

    perform: Callable[[Sequence[T]], Sequence[R]]
    """Does a batch, in a worker thread. An exception ends the run; what a task can survive is a `Failed` inside R."""
    failed: Callable[[Failed], R]
    """The result of a task that came to nothing."""
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
    expected: float | None = 0.0
    """The approximate cost of one task, in dollars; None if unknown."""
    unpriced: Callable[[R], bool] = _is_priced
    """Whether a result cost something unknown."""
    halted: Callable[[], str] = _never
    """Why to start nothing more, by what was saved so far; empty to go on."""
    ends_calls: bool = False
    """Whether `perform` itself ends a call at its time limit."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """How many tasks run at once, and how often they are retried."""

    concurrency: int = 1
    attempts: int = 4
    """Tries per task in one run, the first included. A call that was asked to slow down is not counted."""
    backoff: float = 1.0
    """Seconds before the second try; doubles with each further one, up to a minute."""
    seconds: float = 3600.0
    """That one call may take."""
    policy: FailurePolicy = field(default_factory=FailurePolicy)


def limits_of(executor: ExecutorSection, concurrency: int, time_limit: float | None = None) -> Limits:
    """The limits of a stage, given its editor's or judge's concurrency and time limit."""
    return Limits(
        concurrency=min(concurrency, executor.workers or concurrency),
        attempts=executor.attempts,
        seconds=time_limit or executor.time_limit,
        policy=FailurePolicy(outage=executor.outage_minutes * 60),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Session:
    """What all stages of a run share: options, budget, interruption, and who does the work."""

    options: RunOptions = field(default_factory=RunOptions)
    spending: Spending
    stop: Stop
    wake: threading.Event = field(default_factory=threading.Event)
    """Set by workers when there is something to gather."""
    executor: Executor = field(default_factory=Local)

    def should_end(self) -> Ended | None:
        """Whether to start nothing more, whatever it costs."""
        if self.stop.requested:
            return Ended.INTERRUPTED
        return Ended.OVER_BUDGET if self.spending.out_of_time else None


def missing(
    tasks: Iterable[T],
    key: Callable[[T], str],
    finished: Callable[[Sequence[str]], set[str]],
    tally: Tally,
    *,
    failed: Callable[[Sequence[str]], set[str]] | None = None,
    only_failed: bool = False,
) -> Iterator[T]:
    """The tasks that have no final row, looked up a chunk at a time so that no grid is ever held whole.

    Those that `failed` before come last: what fails always must not keep a rerun from the rest.
    """
    stream = iter(tasks)
    again: list[T] = []
    while chunk := list(itertools.islice(stream, _LOOK_AHEAD)):
        keys = [key(task) for task in chunk]
        done = finished(keys)
        tally.already += len(done)
        tried = failed(keys) if failed else set[str]()
        for task, name in zip(chunk, keys, strict=True):
            if name in done:
                continue
            if name in tried:
                again.append(task)
            elif not only_failed:
                yield task
    yield from again


def missing_in(
    store: Store,
    table: Table,
    tasks: Iterable[T],
    session: Session,
    tally: Tally,
    *,
    finished: Callable[[Sequence[str]], set[str]] | None = None,
) -> Iterator[T]:
    """Those that have no final row in a table of the ledger."""
    finished = finished or partial(store.finished, table)
    failed, only_failed = partial(store.failed, table), session.options.only_failed
    return missing(tasks, _key_of, finished, tally, failed=failed, only_failed=only_failed)


def _key_of(task: Any) -> str:
    return task.key


def grouped(tasks: Iterable[T], size: int, together: Callable[[T], object] | None = None) -> Iterator[list[T]]:
    """Neighbouring tasks in batches of up to `size`, which share `together` where it is given."""
    runs = itertools.groupby(tasks, together) if together else [(None, iter(tasks))]
    for _, neighbours in runs:
        while batch := list(itertools.islice(neighbours, size)):
            yield batch
