"""The worker loop, over tasks that are plain numbers."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stillme.stages.loop import Budget, Done, Ended, Limits, Stage, Stop, Tally, Terms, grouped, missing, run
from stillme.store import Attempt
from stillme.types import Failed

Result = str | Failed


class Crash(BaseException):
    """Stands for kill -9: nothing after it happens."""


@dataclass
class Ledger:
    """A store that can die in the middle of anything."""

    rows: dict[str, str] = field(default_factory=dict)
    failures: list[str] = field(default_factory=list)
    attempts: list[Attempt] = field(default_factory=list)

    def finished(self, keys: Sequence[str]) -> set[str]:
        return {key for key in keys if key in self.rows}

    def save(self, finished: Sequence[Done[int, Result]]) -> None:
        for done in finished:
            if isinstance(done.result, Failed):
                self.failures.append(str(done.task))
            else:
                assert str(done.task) not in self.rows, "done twice"
                self.rows[str(done.task)] = done.result


def go(
    ledger: Ledger,
    tasks: int,
    perform: Callable[[Sequence[int]], Sequence[Result]],
    *,
    limits: Limits | None = None,
    budget: Budget | None = None,
    stop: Stop | None = None,
    cost: float = 0.0,
    batch: int = 1,
) -> tuple[Ended, Tally]:
    tally = Tally("count", tasks)
    stage: Stage[int, Result] = Stage(
        perform=perform,
        failure=lambda result: result if isinstance(result, Failed) else None,
        label=lambda result: "failed" if isinstance(result, Failed) else "done",
        cost=lambda _: cost,
        save=ledger.save,
        name="edit",
        key=str,
        keep=ledger.attempts.extend,
    )
    ended = run(
        stage,
        grouped(missing(range(tasks), str, ledger.finished, tally), batch),
        limits=limits or Limits(backoff=0.0),
        terms=Terms(budget=budget or Budget(), stop=stop or Stop(), watch=lambda _: None),
        tally=tally,
    )
    return ended, tally


def say(tasks: Sequence[int]) -> list[Result]:
    return [f"#{task}" for task in tasks]


@given(st.integers(0, 40), st.lists(st.integers(0, 40), max_size=6), st.integers(1, 4), st.integers(1, 5))
def test_any_interleaving_of_crash_and_resume_gives_the_rows_of_an_undisturbed_run(
    tasks: int, crashes: list[int], concurrency: int, batch: int
):
    undisturbed = Ledger()
    go(undisturbed, tasks, say)
    ledger = Ledger()
    for crash_at in crashes:
        seen = iter(range(10**6))

        def dying(asked: Sequence[int], seen: Iterator[int] = seen, crash_at: int = crash_at) -> list[Result]:
            if next(seen) == crash_at:
                raise Crash
            return say(asked)

        with contextlib.suppress(Crash):
            go(ledger, tasks, dying, limits=Limits(concurrency=concurrency), batch=batch)
    go(ledger, tasks, say, limits=Limits(concurrency=concurrency), batch=batch)
    assert ledger.rows == undisturbed.rows


def test_what_was_computed_before_a_crash_is_saved():
    ledger = Ledger()

    def dying(asked: Sequence[int]) -> list[Result]:
        if asked[0] == 7:
            raise Crash
        return say(asked)

    with pytest.raises(Crash):
        go(ledger, 20, dying)
    assert set(ledger.rows) >= {str(task) for task in range(7)}


@given(st.integers(0, 30), st.integers(1, 6))
def test_retries_end_in_success_or_in_one_failure(tasks: int, failures: int):
    tried: dict[int, int] = {}

    def flaky(asked: Sequence[int]) -> list[Result]:
        tried[asked[0]] = tried.get(asked[0], 0) + 1
        return [Failed(error="503", retryable=True)] if tried[asked[0]] <= failures else say(asked)

    ledger = Ledger()
    ended, tally = go(ledger, tasks, flaky, limits=Limits(attempts=4, backoff=0.0))
    assert ended is Ended.COMPLETE
    if failures < 4:
        assert len(ledger.rows) == tasks
        assert tally.retried == tasks * failures
    else:
        assert len(ledger.failures) == tasks
        assert set(tried.values()) <= {4}


def test_a_lasting_failure_is_not_retried():
    tried: list[int] = []

    def hopeless(asked: Sequence[int]) -> list[Result]:
        tried.extend(asked)
        return [Failed(error="bad prompt", retryable=False)]

    go(Ledger(), 3, hopeless)
    assert sorted(tried) == [0, 1, 2]


def test_the_wait_that_the_other_side_asked_for_is_kept():
    times: list[float] = []

    def limited(_: Sequence[int]) -> list[Result]:
        times.append(time.monotonic())
        return [Failed(error="429", retryable=True, retry_after=0.2)] if len(times) == 1 else ["ok"]

    go(Ledger(), 1, limited, limits=Limits(backoff=0.0))
    assert times[1] - times[0] >= 0.2


def test_failed_attempts_cost_too():
    costs: list[float] = []
    tried: list[int] = []

    def flaky(asked: Sequence[int]) -> list[Result]:
        tried.extend(asked)
        return [Failed(error="503", retryable=True)] if len(tried) < 3 else say(asked)

    class Costs(Ledger):
        def save(self, finished: Sequence[Done[int, Result]]) -> None:
            costs.extend(done.cost for done in finished)

    _, tally = go(Costs(), 1, flaky, cost=0.5)
    assert costs == [1.5]
    assert tally.cost == 1.5


def test_money_that_is_spent_starts_nothing_more():
    ledger = Ledger()
    ended, tally = go(ledger, 100, say, budget=Budget(dollars=1.0), cost=0.1)
    assert ended is Ended.OVER_BUDGET
    # What was already under way when the budget ran out is paid for and kept.
    assert 10 <= len(ledger.rows) <= 13
    assert tally.cost == pytest.approx(0.1 * len(ledger.rows))
    assert go(ledger, 100, say)[0] is Ended.COMPLETE
    assert len(ledger.rows) == 100


def test_time_that_is_up_starts_nothing_more():
    def slow(asked: Sequence[int]) -> list[Result]:
        time.sleep(0.02)
        return say(asked)

    ledger = Ledger()
    assert go(ledger, 1000, slow, budget=Budget(seconds=0.2))[0] is Ended.OVER_BUDGET
    assert 0 < len(ledger.rows) < 100


def test_a_stop_finishes_what_is_running_and_saves_it():
    stop = Stop()
    begun: list[int] = []

    def stopping(asked: Sequence[int]) -> list[Result]:
        begun.extend(asked)
        if asked[0] == 5:
            stop.requested = True
        return say(asked)

    ledger = Ledger()
    ended, _ = go(ledger, 100, stopping, stop=stop)
    assert ended is Ended.INTERRUPTED
    assert set(ledger.rows) == {str(task) for task in begun}
    assert len(begun) < 12


def test_no_more_than_the_allowed_number_is_under_way():
    lock, running, most = threading.Lock(), 0, 0

    def counting(asked: Sequence[int]) -> list[Result]:
        nonlocal running, most
        with lock:
            running += 1
            most = max(most, running)
        time.sleep(0.005)
        with lock:
            running -= 1
        return say(asked)

    go(Ledger(), 60, counting, limits=Limits(concurrency=3))
    assert most == 3


def test_the_grid_is_never_held_whole():
    ahead = produced = consumed = 0

    def producing() -> Iterator[int]:
        nonlocal produced, ahead
        for task in range(20_000):
            produced += 1
            ahead = max(ahead, produced - consumed)
            yield task

    def consuming(asked: Sequence[int]) -> list[Result]:
        nonlocal consumed
        consumed += len(asked)
        return say(asked)

    tally = Tally("count", 20_000)
    ledger = Ledger()
    stage: Stage[int, Result] = Stage(
        perform=consuming,
        failure=lambda _: None,
        label=lambda _: "done",
        cost=lambda _: 0.0,
        save=ledger.save,
        name="edit",
        key=str,
        keep=ledger.attempts.extend,
    )
    batches = grouped(missing(producing(), str, ledger.finished, tally), 10)
    terms = Terms(budget=Budget(), stop=Stop(), watch=lambda _: None)
    run(stage, batches, limits=Limits(), terms=terms, tally=tally)
    assert len(ledger.rows) == 20_000
    assert ahead <= 600


@given(st.lists(st.integers(0, 3)), st.integers(1, 4))
def test_batches_share_what_they_must_and_lose_nothing(tasks: list[int], size: int):
    batches = list(grouped(tasks, size, lambda task: task))
    assert [task for batch in batches for task in batch] == tasks
    assert all(len(batch) <= size and len(set(batch)) == 1 for batch in batches)


def test_the_time_budget_is_for_all_works_together():
    terms = Terms(budget=Budget(seconds=60), stop=Stop(), watch=lambda _: None, started=time.monotonic() - 61)
    assert terms.exhausted_by(Tally("second editor", 10)), "a new tally must not bring new time"
