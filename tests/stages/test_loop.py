"""The worker loop, over tasks that are plain numbers."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stillme.core.types import IN_WORDS, MALFORMED, Failed
from stillme.runs.store import Attempt
from stillme.runs.store.rows import Done
from stillme.work.breaker import Breaker, FailurePolicy
from stillme.work.interrupt import Stop
from stillme.work.loop import Activity, run, run_concurrently, steps
from stillme.work.options import RunOptions
from stillme.work.spending import Budget, Spending
from stillme.work.stage import Limits, Session, Stage, grouped, missing
from stillme.work.tally import Ended, Tally

Result = str | Failed


class Crash(BaseException):
    """Stands for kill -9: nothing after it happens."""


@dataclass
class Ledger:
    """A store that can die in the middle of anything."""

    rows: dict[str, str] = field(default_factory=lambda: dict[str, str]())
    failures: list[str] = field(default_factory=lambda: list[str]())
    attempts: list[Attempt] = field(default_factory=lambda: list[Attempt]())

    def finished(self, keys: Sequence[str]) -> set[str]:
        return {key for key in keys if key in self.rows}

    def failed(self, keys: Sequence[str]) -> set[str]:
        return {key for key in keys if key in self.failures}

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
    cost: float | Callable[[], float] = 0.0,
    expected: float | None = 0.0,
    batch: int = 1,
    spending: Spending | None = None,
    say: Callable[[str], None] = lambda _: None,
    allow_failures: bool = False,
) -> tuple[Ended, Tally]:
    tally = Tally("count", tasks)
    ended = run(
        stage_of(ledger, perform, cost=cost, expected=expected),
        grouped(missing(range(tasks), str, ledger.finished, tally, failed=ledger.failed), batch),
        limits=limits or Limits(backoff=0.0),
        session=Session(
            spending=spending or Spending(budget or Budget()),
            stop=stop or Stop(),
            options=RunOptions(say=say, allow_failures=allow_failures),
        ),
        tally=tally,
    )
    return ended, tally


def stage_of(
    ledger: Ledger,
    perform: Callable[[Sequence[int]], Sequence[Result]],
    *,
    cost: float | Callable[[], float] = 0.0,
    expected: float | None = 0.0,
) -> Stage[int, Result]:
    costs: dict[int, float] = {}

    def cost_of(result: Result) -> float:
        return costs.setdefault(id(result), cost() if callable(cost) else cost)

    return Stage(
        perform=perform,
        failed=lambda failure: failure,
        failure=lambda result: result if isinstance(result, Failed) else None,
        label=lambda result: "failed" if isinstance(result, Failed) else "done",
        cost=cost_of,
        save=ledger.save,
        name="edit",
        key=str,
        keep=ledger.attempts.extend,
        expected=expected,
    )


def say(tasks: Sequence[int]) -> list[Result]:
    return [f"#{task}" for task in tasks]


def slowly(seconds: float) -> Callable[[Sequence[int]], list[Result]]:
    def answer(tasks: Sequence[int]) -> list[Result]:
        time.sleep(seconds)
        return say(tasks)

    return answer


def always(error: str, *, retryable: bool = True, **how: Any) -> Callable[[Sequence[int]], list[Result]]:
    """The same failure for whatever is asked."""
    return lambda _: [Failed(error=error, retryable=retryable, **how)]


def a_session(**options: Any) -> Session:
    return Session(spending=Spending(Budget()), stop=Stop(), **options)


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
    batches = grouped(missing(producing(), str, ledger.finished, tally), 10)
    run(stage_of(ledger, consuming), batches, limits=Limits(), session=a_session(), tally=tally)
    assert len(ledger.rows) == 20_000
    assert ahead <= 600


@given(st.lists(st.integers(0, 3)), st.integers(1, 4))
def test_batches_share_what_they_must_and_lose_nothing(tasks: list[int], size: int):
    batches = list(grouped(tasks, size, lambda task: task))
    assert [task for batch in batches for task in batch] == tasks
    assert all(len(batch) <= size and len(set(batch)) == 1 for batch in batches)


def test_time_that_is_up_starts_nothing_more_in_this_stage_or_the_next():
    spending = Spending(Budget(seconds=600))

    def an_hour_later(asked: Sequence[int]) -> list[Result]:
        if asked[0] == 5:
            spending.started -= 3600
        return say(asked)

    ledger = Ledger()
    assert go(ledger, 1000, an_hour_later, spending=spending)[0] is Ended.OVER_BUDGET
    assert 5 < len(ledger.rows) < 100
    ended, tally = go(Ledger(), 10, say, spending=spending)
    assert ended is Ended.OVER_BUDGET, "a new stage must not bring new time"
    assert "minutes" in tally.reason


# -- money -------------------------------------------------------------------------------------------------------------


@given(st.integers(1, 64), st.floats(0.2, 5.0), st.lists(st.floats(0.8, 1.2), min_size=8, max_size=8))
def test_dollars_are_kept_at_any_concurrency_however_wrong_the_estimate_is(
    concurrency: int, wrong: float, noise: list[float]
):
    dear = 0.01
    turns = iter(range(10**6))

    def cost() -> float:
        return dear * noise[next(turns) % len(noise)]

    spending = Spending(Budget(dollars=0.3))
    ended, _ = go(
        Ledger(),
        1000,
        say,
        limits=Limits(concurrency=concurrency, backoff=0.0),
        spending=spending,
        cost=cost,
        expected=dear * wrong,
    )
    assert ended is Ended.OVER_BUDGET
    # At most what the price of the calls under way was underestimated by, once the first has told its price.
    assert spending.spent <= 0.3 + dear * max(0.2, 1.2 - 0.2 * wrong)
    assert spending.spent >= 0.3 - 2 * dear * max(1.2, wrong)
    assert spending.reserved == pytest.approx(0.0)


@pytest.mark.parametrize("concurrency", [1, 16, 64])
def test_a_price_that_triples_midway_overshoots_by_one_calls_error(concurrency: int):
    cheap, dear = 0.01, 0.03
    turns = iter(range(10**6))

    spending = Spending(Budget(dollars=1.0))
    ended, _ = go(
        Ledger(),
        1000,
        slowly(0.005),
        limits=Limits(concurrency=concurrency),
        spending=spending,
        cost=lambda: cheap if next(turns) < 30 else dear,
        expected=cheap,
    )
    assert ended is Ended.OVER_BUDGET
    assert 1.0 - dear <= spending.spent <= 1.0 + (dear - cheap) + 1e-9


def test_a_finished_run_is_not_over_budget():
    spending = Spending(Budget(dollars=1.0))
    ended, _ = go(Ledger(), 10, say, spending=spending, cost=0.1, expected=0.1)
    assert (ended, round(spending.spent, 9)) == (Ended.COMPLETE, 1.0)
    ledger = Ledger(rows={str(task): "there" for task in range(5)})
    assert go(ledger, 5, say, spending=spending, cost=0.1, expected=0.1)[0] is Ended.COMPLETE


def test_a_stage_does_not_call_itself_over_budget_while_another_holds_a_reservation():
    """Both expect far more than a call costs; there is room for one expected call at a time."""
    spending, stop = Spending(Budget(dollars=0.05)), Stop()
    session = Session(spending=spending, stop=stop)

    ledgers = Ledger(), Ledger()
    stages = [
        activity(ledger, slowly(0.05), session, tasks=10, cost=0.0005, expected=0.03, limits=Limits())
        for ledger in ledgers
    ]
    assert run_concurrently(stages, session) is Ended.COMPLETE
    assert [len(ledger.rows) for ledger in ledgers] == [10, 10]


# -- faults of the whole stage -----------------------------------------------------------------------------------------


def test_a_fault_of_the_account_stops_the_stage_with_the_providers_sentence():
    asked: list[int] = []

    def locked(tasks: Sequence[int]) -> list[Result]:
        asked.extend(tasks)
        return [Failed(error="401: no such key", retryable=True, fatal=True, status="401")]

    ledger = Ledger()
    ended, tally = go(ledger, 500, locked, limits=Limits(concurrency=4))
    assert (ended, tally.reason) == (Ended.STOPPED, "401: no such key")
    assert len(asked) <= 12
    assert len(ledger.failures) == len(asked), "what was asked is on record"


def test_the_same_error_for_the_first_answers_stops_the_stage_and_a_rerun_tries_others_first():
    asked: list[int] = []

    def text_only(tasks: Sequence[int]) -> list[Result]:
        asked.extend(tasks)
        if tasks[0] >= 200:
            return say(tasks)
        return [Failed(error=f"400: Invalid image. (req_{tasks[0]:08x})", retryable=False, status="400")]

    ledger = Ledger()
    ended, tally = go(ledger, 400, text_only)
    assert ended is Ended.STOPPED
    assert "the first 10 answers failed alike: 400: Invalid image." in tally.reason
    assert len(asked) < 15
    first = set(asked)
    asked.clear()
    go(ledger, 400, text_only)
    assert not first & set(asked), "what failed before comes last"
    ended, _ = go(ledger, 400, text_only, allow_failures=True)
    assert ended is Ended.COMPLETE
    assert len(ledger.rows) == 200


def test_a_fault_of_the_moment_for_the_first_answers_does_not_stop_the_stage():
    asked: set[int] = set()

    def once_for_each(tasks: Sequence[int]) -> list[Result]:
        if tasks[0] in asked:
            return say(tasks)
        asked.update(tasks)
        return [Failed(error="400: Invalid image.", retryable=False, status="400")]

    ledger = Ledger()
    ended, _ = go(ledger, 40, once_for_each, limits=Limits(concurrency=4))
    assert ended is Ended.COMPLETE
    assert (len(ledger.rows), len(ledger.failures)) == (1, 39)
    assert go(ledger, 40, once_for_each)[0] is Ended.COMPLETE
    assert len(ledger.rows) == 40


def test_different_errors_and_errors_after_an_answer_do_not_stop_the_stage():
    def folder(tasks: Sequence[int]) -> list[Result]:
        return [Failed(error=f"{tasks[0]}.png is missing", retryable=False)]

    assert go(Ledger(), 50, folder)[0] is Ended.COMPLETE

    bad = always("400: bad", retryable=False, status="400")
    assert go(Ledger(), 50, lambda tasks: bad(tasks) if tasks[0] else say(tasks))[0] is Ended.COMPLETE


def test_answers_in_words_are_no_outage_but_stop_an_editor_that_never_edits():
    def words(tasks: Sequence[int]) -> list[Result]:
        return [Failed(error=f"answered in words: {'very ' * tasks[0]}nice", retryable=True, status=IN_WORDS)]

    def chatty(tasks: Sequence[int]) -> list[Result]:
        return say(tasks) if tasks[0] in (0, 49) else words(tasks)

    limits = Limits(attempts=1, backoff=0.0, policy=FailurePolicy(outage=0.0, unproven=0.0))
    ledger = Ledger()
    ended, _ = go(ledger, 50, chatty, limits=limits)
    assert ended is Ended.COMPLETE
    assert len(ledger.rows) == 2
    ended, tally = go(Ledger(), 50, words, limits=limits)
    assert ended is Ended.STOPPED
    assert "the first 10 answers failed alike: answered in words" in tally.reason


def test_a_short_outage_is_waited_for_with_few_calls():
    down_until = time.monotonic() + 0.6
    asked: list[int] = []

    def down(tasks: Sequence[int]) -> list[Result]:
        asked.extend(tasks)
        return say(tasks) if time.monotonic() > down_until else [Failed(error="503", retryable=True, status="503")]

    ledger = Ledger()
    ended, _ = go(ledger, 300, down, limits=Limits(concurrency=4, backoff=0.05))
    assert ended is Ended.COMPLETE
    assert len(ledger.rows) == 300
    assert len(asked) < 340, "while nothing works, calls are retried one at a time"


def test_calls_under_way_when_an_outage_begins_do_not_lengthen_the_pause():
    now = 100.0
    breaker = Breaker(FailurePolicy(pause=1.0, outage=12.0), now=lambda: now)
    breaker.answered()
    down = Failed(error="503", retryable=True, status="503")
    for _ in range(40):
        breaker.failed(down)
    assert breaker.seconds_until_trial == 1.0
    pauses: list[float] = []
    while not breaker.outage:
        pauses.append(breaker.seconds_until_trial)
        now += breaker.seconds_until_trial
        breaker.failed(down)
    assert pauses == [1.0, 2.0, 4.0, 5.0], "and none reaches beyond the end of policy"


def test_an_outage_is_said_when_it_begins_and_a_long_one_ends_the_stage():
    said: list[str] = []
    answered = iter(range(10**6))

    def dies(tasks: Sequence[int]) -> list[Result]:
        return say(tasks) if next(answered) < 20 else [Failed(error="503: gone", retryable=True, status="503")]

    ledger = Ledger()
    limits = Limits(concurrency=4, backoff=0.02, policy=FailurePolicy(outage=0.5))
    ended, tally = go(ledger, 100_000, dies, limits=limits, say=said.append)
    (sentence,) = said
    assert sentence.startswith("count: no call has worked since ")
    assert sentence.endswith("retrying one at a time (503: gone).")
    assert ended is Ended.OUTAGE
    assert tally.reason.startswith("no call has worked since ")
    assert tally.reason.endswith("503: gone")
    assert len(ledger.attempts) < 80, "not every task is tried"


def test_until_a_call_has_worked_few_are_under_way():
    asked: list[int] = []

    def babbles(tasks: Sequence[int]) -> list[Result]:
        asked.extend(tasks)
        time.sleep(0.02)
        # Babble is never worded twice alike.
        return [Failed(error=f"malformed twice: no JSON in {tasks[0]!r} words", retryable=False, status=MALFORMED)]

    ended, _ = go(Ledger(), 1000, babbles, limits=Limits(concurrency=64))
    assert ended is Ended.STOPPED
    assert len(asked) <= 21, "a model that never answers in the schema is paid for few questions"


# -- rate limits -------------------------------------------------------------------------------------------------------


def test_a_polite_server_fails_nobody_at_the_defaults():
    """Two calls a second, as in the field, scaled to twenty: everything above is turned away with a Retry-After."""
    lock, granted, turned_away = threading.Lock(), list[float](), 0

    def polite(tasks: Sequence[int]) -> list[Result]:
        nonlocal turned_away
        with lock:
            now = time.monotonic()
            if len([at for at in granted if now - at < 0.1]) >= 2:
                turned_away += 1
                return [Failed(error="429", retryable=True, throttled=True, retry_after=0.1, status="429")]
            granted.append(now)
        return say(tasks)

    ledger = Ledger()
    ended, tally = go(ledger, 40, polite, limits=Limits(concurrency=16, attempts=2))
    assert ended is Ended.COMPLETE
    assert len(ledger.rows) == 40
    assert not ledger.failures
    assert tally.throttled == turned_away < 80


def test_a_long_wait_is_said_and_ends_with_the_time_budget_or_one_stop():
    said: list[str] = []
    busy = always("429", throttled=True, retry_after=600.0, status="429")
    started = time.monotonic()
    ended, tally = go(Ledger(), 5, busy, budget=Budget(seconds=60))
    assert ended is Ended.OVER_BUDGET
    assert "asks to wait 10 min" in tally.reason
    stop = Stop()

    def hear(sentence: str) -> None:
        said.append(sentence)
        stop.requested = True

    ended, _ = go(Ledger(), 5, busy, stop=stop, say=hear)
    assert ended is Ended.INTERRUPTED
    assert time.monotonic() - started < 60
    assert len(said) == 1
    assert "the provider asks to wait 10 min" in said[0]


# -- several stages ----------------------------------------------------------------------------------------------------


def activity(
    ledger: Ledger,
    perform: Callable[[Sequence[int]], Sequence[Result]],
    session: Session,
    *,
    tasks: int = 20,
    limits: Limits | None = None,
    **costs: float,
) -> Activity:
    tally = Tally("count", tasks)
    batches = grouped(missing(range(tasks), str, ledger.finished, tally), 1)
    wanted = limits or Limits(concurrency=2)
    return steps(stage_of(ledger, perform, **costs), batches, limits=wanted, session=session, tally=tally)


def test_stages_run_at_the_same_time_and_save_in_one_thread():
    barrier = threading.Barrier(2, timeout=60)
    writers: set[int] = set()

    class Watched(Ledger):
        def save(self, finished: Sequence[Done[int, Result]]) -> None:
            writers.add(threading.get_ident())
            super().save(finished)

    def meeting(tasks: Sequence[int]) -> list[Result]:
        if tasks[0] == 0:
            barrier.wait()  # passes only if both stages are under way
        return say(tasks)

    session, one, other = a_session(), Watched(), Watched()
    both = [activity(ledger, meeting, session) for ledger in (one, other)]
    assert run_concurrently(both, session) is Ended.COMPLETE
    assert (len(one.rows), len(other.rows)) == (20, 20)
    assert writers == {threading.get_ident()}


def test_what_is_under_way_is_kept_when_a_stage_breaks():
    begun: list[int] = []

    def breaking(tasks: Sequence[int]) -> list[Result]:
        begun.extend(tasks)
        if tasks[0] == 3:
            raise OSError("the disk is full")
        time.sleep(0.05)
        return say(tasks)

    ledger, other = Ledger(), Ledger()
    session = a_session()
    broken = activity(ledger, breaking, session, tasks=100, limits=Limits(concurrency=8))
    with pytest.raises(OSError, match="disk is full"):
        run_concurrently([broken, activity(other, slowly(0.02), session)], session)
    assert {int(key) for key in ledger.rows} == set(begun) - {3}
    assert other.rows, "the other stage saved what it had"


def test_a_call_over_its_time_limit_is_given_up_and_its_late_answer_is_kept():
    ledger, answered = Ledger(), threading.Event()

    def slow(tasks: Sequence[int]) -> list[Result]:
        match tasks[0]:
            case 0:
                while not ledger.attempts:  # until it is given up
                    time.sleep(0.01)
                answered.set()
            case 7:
                assert answered.wait(60)
            case _:
                time.sleep(0.25)  # so that the last call begins, and may be late, much later than the first
        return say(tasks)

    limits = Limits(concurrency=2, attempts=1, seconds=3.0)
    ended, tally = go(ledger, 8, slow, limits=limits)
    assert ended is Ended.COMPLETE
    assert [attempt.status for attempt in ledger.attempts] == ["time limit"]
    assert tally.counts["failed"] == 1
    assert len(ledger.rows) == 8, "the answer came while others were asked, and was paid for"


def test_a_hanging_call_does_not_keep_a_stop_or_the_time_budget_from_ending(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("stillme.work.loop._GRACE_SECONDS", 0.3)
    for budget, stopped in ((Budget(seconds=0.2), False), (Budget(), True)):
        ledger, stop, gone = Ledger(), Stop(), threading.Event()

        def hanging(
            tasks: Sequence[int], stop: Stop = stop, stopped: bool = stopped, gone: threading.Event = gone
        ) -> list[Result]:
            if tasks[0] == 1:
                stop.requested = stopped
                gone.wait(120)
            return say(tasks)

        go(ledger, 20, hanging, limits=Limits(concurrency=2), budget=budget, stop=stop)
        assert "1" in ledger.failures, "nobody waited for its answer"
        gone.set()


@pytest.mark.parametrize("expected", [0.3, None], ids=["priced", "of unknown price"])
def test_what_may_cost_money_is_saved_before_the_next_answer_comes(
    monkeypatch: pytest.MonkeyPatch, expected: float | None
):
    monkeypatch.setattr("stillme.work.loop._SAVE_SECONDS", 600.0)
    ledger, saved = Ledger(), list[int]()

    def perform(tasks: Sequence[int]) -> list[Result]:
        end = time.monotonic() + 60
        while len(ledger.rows) + len(ledger.attempts) < tasks[0] and time.monotonic() < end:
            time.sleep(0.01)
        saved.append(len(ledger.rows) + len(ledger.attempts))
        return [Failed(error="busy", retryable=False) if tasks[0] % 2 else "done"]

    go(ledger, 4, perform, expected=expected)
    assert saved == [0, 1, 2, 3]


def test_of_what_waits_for_a_full_disk_the_dearest_is_saved_first(monkeypatch: pytest.MonkeyPatch):
    """Also where the disk stays full and the run has to end. There is room for three once all results have come."""
    monkeypatch.setattr("stillme.work.loop._SAVE_AGAIN_SECONDS", 0.01)
    ledger, room, arrived = Ledger(), 3, set[Result]()
    save = ledger.save

    def saved(finished: Sequence[Done[int, Result]]) -> None:
        if len(arrived) < 8 or len(ledger.rows) + len(finished) > room:
            raise OSError("No space left on device")
        save(finished)

    def label(result: Result) -> str:
        arrived.add(result)
        return "made"

    monkeypatch.setattr(ledger, "save", saved)
    made = stage_of(ledger, lambda tasks: [str(task) for task in tasks], expected=1.0)
    stage = replace(made, cost=lambda result: float(str(result)), label=label)
    session = a_session(options=RunOptions(allow_failures=True))
    limits = Limits(concurrency=8, policy=FailurePolicy(outage=0.5))
    with pytest.raises(OSError, match="No space left"):
        run(stage, [[task] for task in range(8)], limits=limits, session=session, tally=Tally("count", 8))
    assert set(ledger.rows) == {"7", "6", "5"}
