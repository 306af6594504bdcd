"""Money and time: reserve the expected cost before a call, book the real one after it."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from typing import Literal

from stillme.audit import Audit
from stillme.core.errors import StillmeError
from stillme.core.protocols import expected_dollars

_KNOWN_AFTER = 5
"""Calls whose price tells more than the estimate made before the first."""
_CAUTION = 3.0
"""How many times its expected price is reserved for a call under way. Only the call that is about to start counts once,
so a price that rises up to this much overshoots the budget by one call's error, not by that of all calls under way."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Budget:
    """What may be spent. None is no limit."""

    dollars: float | None = None
    seconds: float | None = None


@dataclass(slots=True)
class Spending:
    """What was spent and what is promised, by all stages of a run together."""

    budget: Budget
    spent: float = 0.0
    """Dollars, those of earlier runs included."""
    reserved: float = 0.0
    """For calls under way."""
    started: float = field(default_factory=time.monotonic)

    def allows(self, dollars: float) -> bool:
        """Whether this much more may be promised."""
        limit = self.budget.dollars
        # A sum of tenths must reach its limit, whatever its last digits.
        return limit is None or self.spent + self.reserved + dollars <= limit * (1 + 1e-9)

    def reserve(self, dollars: float) -> None:
        """Promise what a call is expected to cost."""
        self.reserved += dollars

    def settle(self, reserved: float, cost: float) -> None:
        """Book what it cost in place of what was reserved."""
        # Rounding must not leave a debt.
        self.reserved = max(0.0, self.reserved - reserved)
        self.spent += cost

    @property
    def settled(self) -> bool:
        """Whether no call is under way that may still cost something, but for rounding."""
        return self.reserved < 1e-9

    @property
    def seconds_left(self) -> float | None:
        """Until the time budget ends; None without one."""
        limit = self.budget.seconds
        return None if limit is None else limit - (time.monotonic() - self.started)

    @property
    def out_of_time(self) -> bool:
        """Whether the time is up."""
        left = self.seconds_left
        return left is not None and left <= 0


class Price:
    """What the next call of one stage may cost: the most that one has cost so far, or what is expected."""

    def __init__(self, expected: float | None) -> None:
        self._expected = expected or 0.0
        self._most = 0.0
        self._answers = 0
        self._priced = 0

    @property
    def per_call(self) -> float:
        """Dollars that must be left before a call starts."""
        return self._most if self._priced >= _KNOWN_AFTER else max(self._expected, self._most)

    @property
    def reserved_per_call(self) -> float:
        """Dollars to reserve while it is under way."""
        return _CAUTION * self.per_call

    def learn(self, cost: float) -> None:
        """A call cost this much."""
        self._answers += 1
        self._priced += cost > 0
        self._most = max(self._most, cost)

    def calls_at_once(self, most: int) -> int:
        """One call until its price is known, then twice as many as have told theirs."""
        return min(most, max(1, 2 * self._answers))


def require_prices(audit: Audit, budget: Budget, stages: Collection[Literal["edit", "judge"]]) -> None:
    """Raise if dollars are limited and a price is unknown."""
    if problem := unknown_prices(audit, budget.dollars, stages):
        raise StillmeError(problem)


def unknown_prices(
    audit: Audit, dollars: float | None, stages: Collection[Literal["edit", "judge"]] = ("edit", "judge")
) -> str:
    """Why a budget of so many dollars cannot be kept; empty if it can."""
    unknown = [] if dollars is None else list(_unpriced(audit, stages))
    if not unknown:
        return ""
    return (
        f"The budget of ${dollars:,.2f} cannot be kept: the price of {', '.join(unknown)} is unknown. "
        "Set `price` in its parameters (zero for a server of your own), or add `--allow-unknown-cost`."
    )


def _unpriced(audit: Audit, stages: Collection[Literal["edit", "judge"]]) -> Iterator[str]:
    if "edit" in stages:
        yield from (f"extractor {named.name!r}" for named in audit.extractors if _unknown(named.extractor))
        yield from (f"editor {named.name!r}" for named in audit.editors if _unknown(named.editor))
    if "judge" in stages:
        asked = (named for named in audit.judges if not named.judge.capabilities.given)
        yield from (f"judge {named.name!r}" for named in asked if _unknown(named.judge))
        yield from (f"reader {named.name!r}" for named in audit.readers if _unknown(named.judge))


def _unknown(plugin: object) -> bool:
    return expected_dollars(plugin) is None
