"""No minute holds more requests or tokens than allowed, and nobody sleeps longer than Ctrl-C may take."""

from __future__ import annotations

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stillme.core.throttle import PATIENCE, RateLimiter, TooEarly, Turn, call_with_retry
from stillme.core.types import Failed


class Clock:
    """Time that passes only by sleeping."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.slept: list[float] = []

    def __call__(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.now += seconds


def moments(limiter: RateLimiter, clock: Clock, used: list[int]) -> list[float]:
    """When each question is asked, one after the other, each as soon as it is allowed."""
    asked = []
    for tokens in used:
        while isinstance(turn := limiter.wait(clock.sleep), TooEarly):
            clock.now += turn.seconds
        asked.append(clock.now)
        limiter.settle(turn, tokens)
    return asked


@given(st.floats(1, 600), st.integers(2, 60))
def test_no_minute_holds_more_requests_than_its_share(per_minute: float, count: int):
    clock = Clock()
    asked = moments(RateLimiter(per_minute, now=clock), clock, [100] * count)
    for start in asked:
        assert sum(start <= moment < start + 60 for moment in asked) <= per_minute + 1


def test_requests_are_spaced_evenly():
    clock = Clock()
    asked = moments(RateLimiter(30, now=clock), clock, [0] * 120)
    assert all(later - earlier >= 60 - 1e-6 for earlier, later in zip(asked, asked[30:], strict=False))


@given(st.lists(st.integers(1, 20_000), min_size=2, max_size=60))
def test_tokens_are_spaced_by_what_answers_really_take(used: list[int]):
    clock = Clock()
    asked = moments(RateLimiter(None, 60_000, now=clock), clock, used)
    for later in range(1, len(used)):
        assert asked[later] - asked[0] >= sum(used[:later]) / 1000 - 1e-6


def test_without_limits_nobody_waits():
    clock = Clock()
    assert set(moments(RateLimiter(now=clock), clock, [5000] * 1000)) == {1000.0}


@given(st.floats(0.1, 600), st.integers(2, 60))
def test_nobody_sleeps_longer_than_patience(per_minute: float, count: int):
    clock = Clock()
    moments(RateLimiter(per_minute, 10_000, now=clock), clock, [3000] * count)
    assert all(seconds <= PATIENCE for seconds in clock.slept)


def test_a_turn_that_is_too_far_away_is_not_used_up():
    clock = Clock()
    limiter = RateLimiter(6, now=clock)
    assert isinstance(limiter.claim(), Turn)
    assert [limiter.claim() for _ in range(3)] == [TooEarly(10.0)] * 3
    clock.now += 10
    assert limiter.claim() == Turn(at=1010.0, tokens=4000.0), "the three who came too early did not push it back"
    failed = TooEarly(10.0).failed("gpt")
    assert (failed.throttled, failed.retryable, failed.fatal, failed.retry_after) == (True, True, False, 10.0)


def test_time_that_was_not_used_is_not_saved_up():
    clock = Clock()
    limiter = RateLimiter(60, now=clock)
    limiter.wait(clock.sleep)
    clock.now += 600
    limiter.wait(clock.sleep)
    limiter.wait(clock.sleep)
    assert clock.now == pytest.approx(1601)


def test_waiting_does_not_block_the_event_loop():
    async def both() -> list[str]:
        order: list[str] = []

        async def waiting() -> None:
            await limiter.wait_async()
            order.append("waited")

        async def working() -> None:
            order.append("worked")

        await asyncio.gather(waiting(), working())
        return order

    limiter = RateLimiter(1200)
    limiter.claim()
    assert asyncio.run(both()) == ["worked", "waited"]


# -- a single question ------------------------------------------------------------------------------------------------

BUSY = Failed(error="429: slow down", retryable=True, throttled=True, retry_after=7.0)


def asked_patiently(*answers: Failed | str) -> tuple[Failed | str, list[float], int]:
    """The answer, the pauses, and how many answers were not needed."""
    clock, left = Clock(), list(answers)
    answer = call_with_retry(lambda: left.pop(0), lambda said: said if isinstance(said, Failed) else None, clock.sleep)
    return answer, clock.slept, len(left)


def test_a_single_question_waits_as_long_as_it_is_asked_to():
    assert asked_patiently(BUSY, BUSY, "yes") == ("yes", [7.0, 7.0], 0)


def test_a_single_question_gives_up_after_a_few_tries():
    assert asked_patiently(*[BUSY] * 9) == (BUSY, [7.0] * 4, 4)


@pytest.mark.parametrize(
    "failed",
    [
        Failed(error="503: down", retryable=True),
        Failed(error="401: wrong key", retryable=True, fatal=True),
        Failed(error="429: come back tomorrow", retryable=True, throttled=True, retry_after=80_000.0),
    ],
    ids=lambda failed: failed.error,
)
def test_what_waiting_does_not_help_is_returned_at_once(failed: Failed):
    assert asked_patiently(failed, "yes") == (failed, [], 1)
