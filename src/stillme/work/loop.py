"""Run stages: perform batches in worker threads, save results, retry, keep to budget and pace, stop what cannot work.

All stages of a run are advanced by one thread, which is the only one that writes. A stage is a generator: it yields
whenever it has to wait, and returns how it ended.
"""

from __future__ import annotations

import heapq
import itertools
import logging
import math
import queue
import random
import time
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from typing import Any, Generic, TypeVar

from stillme.core.errors import StoreUnwritable
from stillme.core.types import Failed
from stillme.runs.store.rows import Attempt, Done
from stillme.work.breaker import Breaker
from stillme.work.pace import Pace
from stillme.work.pool import Order, Pool
from stillme.work.spending import Price
from stillme.work.stage import Limits, Session, Stage
from stillme.work.tally import Ended, Tally, worst
from stillme.work.workers import Placed, Worker, WorkerSpec

log = logging.getLogger(__name__)

T = TypeVar("T")
R = TypeVar("R")

Activity = Generator[None, None, Ended]
"""Work that is advanced step by step. It yields when it has to wait and returns how it ended."""

_SAVE_ROWS = 250
_SAVE_SECONDS = 0.5
"""At most this much finished work is unsaved at any time; of work that may cost money, only what came since the last
save began."""
_IDLE_SECONDS = 0.05
_SAVE_AGAIN_SECONDS = 1.0
_GRACE_SECONDS = 60.0
"""At least so long a call may still take after an end was asked for."""
_LONG_WAIT = 30.0
"""Seconds from which on a wait is announced."""


def steps(
    stage: Stage[T, R], batches: Iterable[Sequence[T] | None], *, limits: Limits, session: Session, tally: Tally
) -> Activity:
    """Do all batches; None among them means that there is nothing to do at the moment.

    Ends early, with everything saved, when stopped, out of budget, or without hope.
    """
    tally.begin()
    pool: Pool[T, R, Done[T, R]] = Pool(stage.perform, limits.concurrency, session.wake)
    with pool:
        ended = yield from _Loop(stage, iter(batches), pool, limits, session, tally).steps()
    tally.end(ended)
    session.options.watch(tally)
    return ended


def work_on(
    spec: WorkerSpec | None,
    here: Worker[T, R],
    stage_of: Callable[[Placed[T, R]], Stage[Any, R]],
    batches: Iterable[Sequence[Any] | None],
    *,
    limits: Limits,
    session: Session,
    tally: Tally,
) -> Activity:
    """Do all batches where the executor places the worker, once there is something to do the work."""
    worker = session.executor.worker(spec, here, concurrency=limits.concurrency, seconds=limits.seconds)
    with closing(worker):
        began = time.monotonic()
        while not worker.ready and not session.should_end():
            if not tally.waits and time.monotonic() - began >= _LONG_WAIT:
                tally.waits = "no worker has started yet"
                session.options.say(
                    f"{tally.name}: {tally.waits}; `ray status` shows what the cluster lacks. Ctrl-C ends the run."
                )
            yield
        tally.waits = ""
        limits = replace(limits, concurrency=worker.calls)
        return (yield from steps(stage_of(worker), batches, limits=limits, session=session, tally=tally))


def run(
    stage: Stage[T, R], batches: Iterable[Sequence[T] | None], *, limits: Limits, session: Session, tally: Tally
) -> Ended:
    """Do all batches of one stage."""
    return run_concurrently([steps(stage, batches, limits=limits, session=session, tally=tally)], session)


def run_sequentially(activities: Iterable[Activity]) -> Activity:
    """One after the other. A stage that cannot work does not keep the next from working."""
    ended: list[Ended] = []
    for activity in activities:
        ended.append((yield from activity))
        if ended[-1] in (Ended.INTERRUPTED, Ended.OVER_BUDGET):
            break
    return worst(*ended)


def run_concurrently(activities: Sequence[Activity], session: Session) -> Ended:
    """Advance all of them in the calling thread until the last has ended.

    If one raises, the others finish what is under way and save it; then the exception goes on.
    """
    running, ended, error = list(activities), list[Ended](), None
    try:
        while running:
            session.wake.clear()
            for activity in list(running):
                try:
                    next(activity)
                except StopIteration as stopped:
                    ended.append(stopped.value)
                    running.remove(activity)
                except Exception as raised:
                    error = error or raised
                    running.remove(activity)
                    session.stop.requested = True
            if running:
                # Signals are handled while waiting.
                session.wake.wait(_IDLE_SECONDS)
    finally:
        for activity in running:
            try:
                activity.close()
            except Exception as raised:
                # The others must be closed too: each saves what it has.
                error = error or raised
    if error:
        raise error
    return worst(*ended)


@dataclass(order=True, slots=True)
class _Later(Generic[T, R]):
    ready: float
    number: int
    done: Done[T, R] = field(compare=False)


class _Loop(Generic[T, R]):
    """The calling thread's side of one stage: hands out batches, gathers results, saves."""

    def __init__(
        self,
        stage: Stage[T, R],
        batches: Iterator[Sequence[T] | None],
        pool: Pool[T, R, Done[T, R]],
        limits: Limits,
        session: Session,
        tally: Tally,
    ) -> None:
        self._stage, self._batches, self._pool, self._limits = stage, batches, pool, limits
        self._session, self._tally = session, tally
        self._spending, self._price = session.spending, Price(stage.expected)
        self._pace, self._breaker = Pace(), Breaker(replace(limits.policy, pause=limits.backoff))
        self._under_way: list[Order[T, Done[T, R]]] = []
        self._end_asked_at: float | None = None
        self._longest = 0.0
        """Seconds of the longest call so far."""
        self._unsaved_since: float | None = None
        """Since when nothing can be saved."""
        self._next_save = 0.0
        self._scarce = False
        """Whether the last save failed."""
        self._next: Sequence[T] | None = None
        self._exhausted = False
        self._later: list[_Later[T, R]] = []
        self._numbers = itertools.count()
        self._unsaved: list[Done[T, R]] = []
        self._tried: list[Attempt] = []
        self._saved_at = time.monotonic()
        self._ended: Ended | None = None
        self._error: BaseException | None = None
        self._announced = 0.0
        self._asked_again = False

    def steps(self) -> Activity:
        """Yields when there is nothing to hand out or to gather at the moment."""
        if reason := self._stage.halted():
            self._end(Ended.STOPPED, reason)
        try:
            while True:
                self._gather()
                self._give_up_overdue()
                if not self._ended and (ended := self._session.should_end()) and self._something_left():
                    self._end(ended, "the minutes in [budget] are over" if ended is Ended.OVER_BUDGET else "")
                while not self._ended and self._may_start() and (order := self._next_order()):
                    self._pool.give(order)
                    self._under_way.append(order)
                self._save_if_due()
                if not self._under_way and self._unsaved_since is None:
                    if self._error:
                        raise self._error
                    if self._ended or not self._something_left():
                        self._save()  # not only on the way out, where it would be tried but once
                        if self._unsaved_since is None and not self._error:
                            return self._ended or Ended.COMPLETE
                yield
        finally:
            # Also on the way out of an exception: what was computed is kept.
            self._unsaved.extend(later.done for later in self._later)
            self._tally.counts.update(self._stage.label(later.done.result) for later in self._later)
            self._save_all()

    # -- handing out ------------------------------------------------------------------------------------------------

    def _something_left(self) -> bool:
        """Whether there is a task that has not been handed out; looks at the next one, to know."""
        if self._next is None and not self._exhausted:
            try:
                self._next = next(self._batches)
            except StopIteration:
                self._exhausted = True
        return bool(self._later) or not self._exhausted or self._next is not None

    def _may_start(self) -> bool:
        """Whether pace, breaker and budget allow one more call now."""
        if self._unsaved_since is not None or not self._something_left():
            return False
        at_once = self._limits.concurrency
        if self._suspicious or self._breaker.open:
            at_once = 1
            if not self._under_way and self._breaker.open and self._breaker.seconds_until_trial > 0:
                return False
        elif not self._breaker.ever_answered and not self._session.options.allow_failures:
            # Until one has worked, no more than are needed to see that none does.
            at_once = min(at_once, self._limits.policy.alike)
        elif not self._pace.limited and self._spending.budget.dollars is None:
            # One more for every worker, so that none has to wait for this thread.
            at_once *= 2
        if self._spending.budget.dollars is not None:
            at_once = self._price.calls_at_once(at_once)
        if len(self._under_way) >= at_once:
            return False
        if self._pace.seconds_until_ready > 0:
            self._announce_wait()
            return False
        if not self._breaker.open:
            self._tally.waits = ""
        return self._affordable()

    def _affordable(self) -> bool:
        size = len(self._next) if self._next is not None else 1
        if self._spending.allows(size * self._price.per_call):
            return True
        # What other stages have reserved may turn out to be cheaper.
        if not self._under_way and self._spending.settled:
            limit = self._spending.budget.dollars or 0.0
            self._end(
                Ended.OVER_BUDGET,
                f"${self._spending.spent:,.2f} of the ${limit:,.2f} in [budget] are spent, and one more may cost "
                f"${self._price.per_call:,.4f}",
            )
        return False

    def _next_order(self) -> Order[T, Done[T, R]] | None:
        # While much fails, a task that has not failed yet tells more.
        order: Order[T, Done[T, R]] | None = None
        if not (self._breaker.open and self._next is not None):
            order = self._from_later()
        # Where the first all failed alike, nothing new is asked before one of them was asked again.
        if order is None and self._next is not None and not self._suspicious:
            order = Order(self._next, len(self._next) * self._price.reserved_per_call)
            self._next = None
        if order is not None:
            self._spending.reserve(order.reserved)
            self._pace.start()
        return order

    def _from_later(self) -> Order[T, Done[T, R]] | None:
        if not self._later or self._later[0].ready > time.monotonic():
            return None
        done = heapq.heappop(self._later).done
        self._tally.retried += done.attempts > 0
        return Order([done.task], self._price.reserved_per_call, done)

    def _announce_wait(self) -> None:
        """Say how long the other side asks to wait, if that is long; end if the time budget does not allow it."""
        wait = self._pace.pause_left
        if wait < _LONG_WAIT:
            return
        left = self._spending.seconds_left
        if left is not None and wait > left:
            self._end(Ended.OVER_BUDGET, f"the provider asks to wait {_minutes(wait)}, longer than [budget] allows")
            return
        self._tally.waits = f"the provider asks to wait {_minutes(wait)}"
        if time.monotonic() >= self._announced:
            self._announced = time.monotonic() + wait
            self._session.options.say(f"{self._tally.name}: {self._tally.waits}. Ctrl-C ends the run; nothing is lost.")
        self._session.options.watch(self._tally)

    # -- gathering --------------------------------------------------------------------------------------------------

    def _gather(self) -> None:
        arrived = False
        while True:
            try:
                order, results = self._pool.results.get_nowait()
            except queue.Empty:
                break
            arrived = True
            if not order.given_up:
                self._under_way.remove(order)
            if isinstance(results, BaseException):
                self._spending.settle(order.reserved, 0.0)
                self._error = self._error or results
                self._end(Ended.INTERRUPTED)
                continue
            finished = self._done(order, results)
            self._spending.settle(order.reserved, sum(self._stage.cost(done.result) for done in finished))
            for done in finished:
                self._take_late(done) if order.given_up else self._take(done)
        if arrived:
            self._tally.cost = self._spending.spent
            self._session.options.watch(self._tally)

    def _done(self, order: Order[T, Done[T, R]], results: Sequence[R]) -> list[Done[T, R]]:
        """The results of a call with what they took; `zip` refuses too few or too many."""
        seconds = (order.ended - order.began) / len(order.tasks)
        self._longest = max(self._longest, order.ended - order.began)
        earlier = order.earlier
        return [
            Done(
                task=task,
                result=result,
                attempts=1 + (earlier.attempts if earlier else 0),
                started=order.began,
                last_seconds=seconds,
                seconds=seconds + (earlier.seconds if earlier else 0.0),
                cost=self._stage.cost(result) + (earlier.cost if earlier else 0.0),
                unpriced=self._stage.unpriced(result) or bool(earlier and earlier.unpriced),
            )
            for task, result in zip(order.tasks, results, strict=True)
        ]

    def _give_up_overdue(self) -> None:
        """Wait no longer for calls over their time limit or, once an end was asked for, over the longest so far."""
        now = time.monotonic()
        limit = math.inf if self._stage.ends_calls else self._limits.seconds
        if self._session.should_end():
            self._end_asked_at = self._end_asked_at or now
            grace = max(_GRACE_SECONDS, 2 * self._longest) + self._end_asked_at
        else:
            grace = math.inf
        for order in list(self._under_way):
            if not order.began or (now - order.began < limit and now < grace):
                continue
            self._under_way.remove(order)
            self._pool.give_up(order)
            late = now - order.began >= limit
            error = (
                f"no answer within {limit:g} s, its time limit"
                if late
                else f"no answer {now - order.began:.0f} s after it was asked, when the run had to end"
            )
            # What it may cost stays reserved: it can still be charged.
            failed = self._stage.failed(Failed(error=error, retryable=late, status="time limit"))
            for done in self._done(replace(order, ended=now), [failed] * len(order.tasks)):
                self._take(done)

    def _take_late(self, done: Done[T, R]) -> None:
        """An answer after its time limit: it was paid for, so it is kept."""
        failure = self._stage.failure(done.result)
        if failure is not None:
            self._note(done, failure)
            return
        self._later = [later for later in self._later if later.done.task is not done.task]
        heapq.heapify(self._later)
        self._finish(done)

    def _take(self, done: Done[T, R]) -> None:
        failure = self._stage.failure(done.result)
        self._price.learn(self._stage.cost(done.result))
        if failure is None:
            self._pace.answered()
            self._breaker.answered()
            self._tally.waits = ""
            self._finish(done)
            return
        was_open = self._breaker.open
        self._breaker.failed(failure)
        if self._breaker.open:
            self._tally.waits = f"no call has worked since {self._breaker.since}; retrying one at a time"
            if not was_open:
                self._session.options.say(f"{self._tally.name}: {self._tally.waits} ({failure.error.rstrip('.')}).")
        if failure.throttled:
            self._pace.slow_down(failure.retry_after, done.started)
            self._tally.throttled += 1
            self._take_back()
            # Asking too fast is no try: the task goes back to the queue as it was.
            done = replace(done, attempts=done.attempts - 1)
        else:
            self._note(done, failure)
        again = failure.retryable and not failure.fatal and done.attempts < self._limits.attempts
        if self._suspicious and not self._asked_again:
            # One of them is asked a second time: a fault of the moment must not stop everything.
            again = self._asked_again = True
        if again and not self._ended:
            heapq.heappush(self._later, _Later(self._ready_at(failure, done.attempts), next(self._numbers), done))
        else:
            self._finish(replace(done, attempts=max(1, done.attempts)))
        self._stop_if_hopeless(failure, done.attempts)

    def _finish(self, done: Done[T, R]) -> None:
        self._tally.counts[self._stage.label(done.result)] += 1
        self._unsaved.append(done)

    @property
    def _suspicious(self) -> bool:
        """Whether the first answers all failed alike."""
        return self._breaker.hopeless and not self._session.options.allow_failures

    def _stop_if_hopeless(self, failure: Failed, attempts: int) -> None:
        if self._ended:
            return
        if failure.fatal:
            self._end(Ended.STOPPED, failure.error)
        elif self._suspicious and attempts > 1:
            self._end(
                Ended.STOPPED,
                f"the first {self._limits.policy.alike} answers failed alike: {failure.error.rstrip('.')}. "
                "To ask the others nevertheless, add `--allow-failures`",
            )
        elif self._breaker.outage:
            self._end(Ended.OUTAGE, f"no call has worked since {self._breaker.since}: {failure.error}")

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
        if failure.throttled:
            return time.monotonic()  # the pace of all workers decides
        backoff = min(60.0, self._limits.backoff * 2 ** (attempts - 1))
        pause = failure.retry_after if failure.retry_after is not None else backoff
        # Spread, so that calls that failed together do not come back together.
        return time.monotonic() + pause + backoff * random.uniform(0.0, 0.25)

    def _end(self, ended: Ended, reason: str = "") -> None:
        """Start nothing more; what is under way is still gathered."""
        self._ended, self._tally.reason = ended, reason
        self._tally.waits = ""
        self._take_back()

    def _take_back(self) -> None:
        """Take orders back that no worker has begun; they are given out again, if at all, when it is time."""
        for order in self._pool.take_back():
            self._under_way.remove(order)
            self._spending.settle(order.reserved, 0.0)
            if order.earlier is not None:
                heapq.heappush(self._later, _Later(0.0, next(self._numbers), order.earlier))
            else:
                self._batches, self._exhausted = itertools.chain([order.tasks], self._batches), False

    # -- saving -----------------------------------------------------------------------------------------------------

    def _save_if_due(self) -> None:
        may_cost = self._stage.expected != 0.0 and (self._unsaved or self._tried)
        if may_cost or len(self._unsaved) >= _SAVE_ROWS or time.monotonic() - self._saved_at >= _SAVE_SECONDS:
            self._save()

    def _save(self) -> None:
        """Save what there is; if that fails, keep it and try again, for as long as an outage is borne."""
        now = time.monotonic()
        if now < self._next_save:
            return
        try:
            self._save_all()
        except (OSError, StoreUnwritable) as error:
            self._next_save, self._scarce = now + _SAVE_AGAIN_SECONDS, True
            if self._unsaved_since is None:
                self._unsaved_since = now
                how_long = _minutes(self._limits.policy.outage)
                self._session.options.say(
                    f"{self._tally.name}: {len(self._unsaved):,} results cannot be saved: {str(error).rstrip('.')}. "
                    f"Nothing new is started. stillme retries for {how_long}; then, or with Ctrl-C, the run ends."
                )
            if now - self._unsaved_since >= self._limits.policy.outage or self._session.should_end():
                self._error = self._error or error
                self._unsaved_since = None
                self._end(Ended.INTERRUPTED)
            return
        if self._unsaved_since is not None:
            self._unsaved_since = None
            self._session.options.say(f"{self._tally.name}: saved; going on.")

    def _save_all(self) -> None:
        if self._scarce:
            self._save_dearest_first()
        if self._tried:
            self._stage.keep(self._tried)
            self._tried = []
        if self._unsaved:
            self._stage.save(self._unsaved)
            self._tally.saved += len(self._unsaved)
            self._unsaved = []
            if not self._ended and (reason := self._stage.halted()):
                self._end(Ended.STOPPED, reason)
        self._saved_at = time.monotonic()
        self._scarce = False

    def _save_dearest_first(self) -> None:
        """One by one, because there may be room for some results only; goes through all before it raises."""
        left, problem = list[Done[T, R]](), None
        for done in sorted(self._unsaved, key=lambda done: -done.cost):
            try:
                self._stage.save([done])
                self._tally.saved += 1
            except (OSError, StoreUnwritable) as error:
                problem = problem or error
                left.append(done)
        self._unsaved = left
        if problem:
            raise problem


def _minutes(seconds: float) -> str:
    return f"{seconds / 60:.0f} min" if seconds >= 90 else f"{seconds:.0f} s"
