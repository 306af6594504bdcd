"""What must be assumed before there are rows: by default, or from an earlier run."""

from __future__ import annotations

import math
import sqlite3
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from stillme.core import rubric
from stillme.core.errors import StillmeError, UnknownName
from stillme.core.files import recent_runs
from stillme.core.types import Interval
from stillme.estimates import Settings, intraclass_correlations
from stillme.estimates.quantities import Columns, Quantity
from stillme.runs import RecordedRun, folder_of
from stillme.runs.store import Store
from stillme.runs.store.summaries import Work

ICC, ICC_RANGE = 0.05, (0.01, 0.15)
"""Portraits that differ by 0.5, and by 0 to 1, on the logit scale (docs/statistics.md)."""
RATES = (0.10, 0.45)
SD = 1.0
"""Of single scores on a 1–5 scale."""

_BASELINE = "baseline"


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanOptions:
    """What the user asks for, and the defaults that they override."""

    detect: float | None = None
    """A gap between two groups' rates that must be detected."""
    rates: tuple[float, ...] = ()
    icc: float | None = None
    sd: float | None = None
    power: float = 0.8
    like: Path | None = None
    """An earlier run to take the rest from."""
    quantity: str = ""
    seconds: Mapping[str, float] = field(default_factory=dict[str, float])
    """Per edit, by editor; the empty name is for all others."""
    gpu_dollars: float | None = None
    """Per GPU hour."""

    def __post_init__(self) -> None:
        for name, share in (("--detect", self.detect), ("--icc", self.icc), *(("--rate", rate) for rate in self.rates)):
            if share is not None and not 0 < share < 1:
                raise StillmeError(f"{name} is {share:g}; write a share between 0 and 1, such as 0.1 for 10 points.")
        if not 0.5 <= self.power < 1:
            raise StillmeError(f"--power is {self.power:g}; write a share from 0.5 up to, not including, 1.")
        if self.sd is not None and not self.sd > 0:
            raise StillmeError(f"--sd is {self.sd:g}; write a number above 0.")
        if self.quantity and self.like is None:
            raise StillmeError("--quantity goes with --like, the run to take it from.")


@dataclass(frozen=True, slots=True, kw_only=True)
class AssumedRate:
    """How common a fault is, and the ICC of one portrait's edits with its range."""

    rate: float
    icc: float
    icc_low: float
    icc_high: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Assumptions:
    """Everything that the plan rests on."""

    rates: tuple[AssumedRate, ...]
    sd: float
    sd_icc: AssumedRate
    """The ICC of scores, for means; its rate has no meaning."""
    origin: str
    seconds: Mapping[str, float] = field(default_factory=dict[str, float])
    """Per edit or question, by the key of the specification, as measured on this machine, or in the run to be like."""
    dollars: Mapping[str, float] = field(default_factory=dict[str, float])
    """Per edit or question, likewise."""
    timed: Mapping[str, str] = field(default_factory=dict[str, str])
    """The run that seconds and dollars are from, likewise."""


def assume(options: PlanOptions, opened: Callable[[Path], RecordedRun], runs: Sequence[Path] = ()) -> Assumptions:
    """The user's numbers, else the earlier run's, else the defaults.

    Dollars are also those of `runs`, the audit's own and those that it reuses, and of other runs that were made on this
    machine; seconds only of those made on this machine.
    """
    if options.like is not None:
        return _from_run(opened(folder_of(options.like)), options.like, options)
    seconds: dict[str, float] = {}
    dollars: dict[str, float] = {}
    timed: dict[str, str] = {}
    here = recent_runs()
    made_here = {folder.resolve() for folder in here}
    for folder in (*runs, *here):
        # Another run that is damaged or of a later version only costs its numbers.
        with suppress(StillmeError, sqlite3.DatabaseError):
            if Store.exists(folder):
                with Store.reading(folder) as store:
                    took, cost = _measured(store)
                if folder.resolve() in made_here:
                    seconds = took | seconds
                dollars = cost | dollars
                timed = dict.fromkeys(cost, str(folder)) | timed
    return replace(_by_default(options), seconds=seconds, dollars=dollars, timed=timed)


def _by_default(options: PlanOptions) -> Assumptions:
    rates = tuple(_assumed_rate(rate, options) for rate in options.rates or RATES)
    origin = "your numbers" if options.icc is not None else "defaults"
    return Assumptions(rates=rates, sd=options.sd or SD, sd_icc=_assumed_rate(0.5, options), origin=origin)


def _assumed_rate(rate: float, options: PlanOptions) -> AssumedRate:
    if options.icc is not None:
        return AssumedRate(rate=rate, icc=options.icc, icc_low=options.icc, icc_high=options.icc)
    return AssumedRate(rate=rate, icc=ICC, icc_low=ICC_RANGE[0], icc_high=ICC_RANGE[1])


def _from_run(run: RecordedRun, path: Path, options: PlanOptions) -> Assumptions:
    gathered = run.results
    seconds, dollars = _measured(run.store)
    settings = Settings(factors=())
    correlations = [
        correlation
        for correlation in intraclass_correlations(gathered.edits, gathered.scores, settings)
        if correlation.arm == _BASELINE
    ]
    rates_known = rubric.load().rates
    usable = (c.quantity for c in correlations if c.quantity in rates_known and isinstance(c.icc, Interval))
    name = options.quantity or next(usable, "")
    chosen = [correlation for correlation in correlations if correlation.quantity == name]
    if options.quantity and not chosen:
        known = sorted({correlation.quantity for correlation in correlations} & set(rates_known))
        raise UnknownName.among("rate", options.quantity, known, f"{path} has {', '.join(known) or 'none'}.")
    iccs = [correlation.icc for correlation in chosen if isinstance(correlation.icc, Interval)]
    if not iccs or name not in rates_known:
        raise StillmeError(f"{path} has no rate whose spread between portraits can be estimated; leave out --like.")
    quantities = [q for q in Columns.of(gathered.edits).quantities(gathered.scores) if q.arm == _BASELINE]
    measured_rate, _ = _pooled([quantity for quantity in quantities if quantity.name == name])
    _, sd = _pooled([quantity for quantity in quantities if quantity.name == rates_known[name].axis])
    rates = tuple(_measured_rate(rate, iccs, options) for rate in options.rates or (measured_rate,))
    return Assumptions(
        rates=rates,
        sd=options.sd or sd or SD,
        sd_icc=rates[0],
        origin=f"{rubric.load().title(name)} in {path}",
        seconds=seconds,
        dollars=dollars,
        timed=dict.fromkeys(seconds, str(path)),
    )


def _measured_rate(rate: float, iccs: list[Interval], options: PlanOptions) -> AssumedRate:
    """With the mean ICC of the earlier run's editors, unless the user gives one."""
    if options.icc is not None:
        return _assumed_rate(rate, options)
    return AssumedRate(
        rate=rate,
        icc=float(np.mean([share_of(icc.value) for icc in iccs])),
        icc_low=min(share_of(icc.low) for icc in iccs),
        icc_high=max(share_of(icc.high) for icc in iccs),
    )


def share_of(value: float) -> float:
    """A negative ICC is chance."""
    return min(max(value, 0.0), 0.99)


def _pooled(quantities: list[Quantity]) -> tuple[float, float]:
    """Mean and standard deviation of single edits, over editors."""
    total = sum(float(quantity.counts.sum()) for quantity in quantities)
    if not total:
        return 0.0, 0.0
    mean = sum(float(quantity.sums.sum()) for quantity in quantities) / total
    square = sum(float(quantity.squares.sum()) for quantity in quantities) / total
    return mean, math.sqrt(max(0.0, square - mean**2))


def _measured(store: Store) -> tuple[dict[str, float], dict[str, float]]:
    seconds: dict[str, float] = {}
    dollars: dict[str, float] = {}
    works: tuple[Work, ...] = ("edit", "assessment")
    for work in works:
        for key, took, cost in store.averages(work):
            seconds[key], dollars[key] = took, cost
    return seconds, dollars
