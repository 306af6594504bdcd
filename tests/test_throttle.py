"""No minute holds more requests or tokens than allowed, and a pause holds for everybody."""

from __future__ import annotations

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stillme.throttle import RateLimiter


class Clock:
    """Time that passes only by sleeping."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


def moments(limiter: RateLimiter, clock: Clock, used: list[int]) -> list[float]:
    """When each question is asked, one after the other, each as soon as it is allowed."""
    asked = []
    for tokens in used:
        turn = limiter.wait(clock.sleep)
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


def test_a_pause_holds_everybody_and_a_shorter_one_does_not_end_it():
    clock = Clock()
    limiter = RateLimiter(6000, now=clock)
    limiter.pause(30)
    limiter.pause(5)
    limiter.wait(clock.sleep)
    assert clock.now >= 1030


def test_a_pause_counts_for_turns_that_are_already_claimed():
    clock = Clock()
    limiter = RateLimiter(now=clock)
    turn = limiter.reserve()
    limiter.pause(5)
    assert limiter.seconds_until(turn) == 5


def test_time_that_was_not_used_is_not_saved_up():
    clock = Clock()
    limiter = RateLimiter(60, now=clock)
    limiter.wait(clock.sleep)
    clock.sleep(600)
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

    limiter = RateLimiter()
    limiter.pause(0.05)
    assert asyncio.run(both()) == ["worked", "waited"]
