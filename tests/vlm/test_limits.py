"""The allowance: never more requests or tokens a minute than allowed, whatever the answers take."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from stillme.vlm.limits import Allowance


class Clock:
    """Time that passes when told."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def turns(allowance: Allowance, clock: Clock, used: list[int]) -> list[float]:
    """Ask one question after the other, each as soon as it is allowed."""
    asked = []
    for tokens in used:
        turn, set_aside = allowance.take()
        clock.now += max(0.0, allowance.wait(turn))
        asked.append(clock.now)
        allowance.settle(set_aside, tokens)
    return asked


@given(st.floats(1, 600), st.integers(2, 60))
def test_no_minute_holds_more_requests_than_its_share(per_minute: float, count: int):
    clock = Clock()
    asked = turns(Allowance(per_minute, None, now=clock), clock, [100] * count)
    for start in asked:
        assert sum(start <= moment < start + 60 for moment in asked) <= per_minute + 1


@given(st.lists(st.integers(1, 20_000), min_size=2, max_size=60))
def test_tokens_are_spaced_by_what_answers_really_take(used: list[int]):
    clock = Clock()
    asked = turns(Allowance(None, 60_000, now=clock), clock, used)
    for earlier, later in zip(range(len(used)), range(1, len(used)), strict=False):
        assert asked[later] - asked[0] >= sum(used[: earlier + 1]) / 1000 - 1e-6


def test_a_pause_that_the_provider_asks_for_counts_for_everybody():
    clock = Clock()
    allowance = Allowance(None, None, now=clock)
    turn, _ = allowance.take()
    allowance.hold(5)
    assert allowance.wait(turn) == 5


def test_without_limits_nobody_waits():
    clock = Clock()
    assert set(turns(Allowance(None, None, now=clock), clock, [5000] * 20)) == {1000.0}
