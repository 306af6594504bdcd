"""What has to be assumed before there are rows, by default or from an earlier run."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from stillme import rubric
from stillme.errors import StillmeError, UnknownName
from stillme.estimates import Settings, intraclass_correlations
from stillme.estimates.quantities import Columns, Quantity
from stillme.planning.power import icc_of
from stillme.results import opened
from stillme.store import Store
from stillme.store.summaries import Work
from stillme.types import Interval

ICC, ICC_RANGE = 0.05, (0.01, 0.15)
"""Portraits that differ by 0.5, and by 0 to 1, on the logit scale (docs/statistics.md)."""
RATES = (0.10, 0.45)
SD = 1.0
"""Of single scores on a 1–5 scale."""

_BASELINE = "baseline"


def _none() -> Mapping[str, float]:
    return {}


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """What the user wants to know, and knows better than the defaults."""

    detect: float | None = None
    """A gap between two groups' rates that must be found."""
    rates: tuple[float, ...] = ()
    icc: float | None = None
    portrait_sd: float | None = None
    sd: float | None = None
    power: float = 0.8
    like: Path | None = None
    """An earlier run to take the rest from."""
    quantity: str = ""
    seconds: Mapping[str, float] = field(default_factory=_none)
    """Per edit, by editor; the empty name is for all others."""
    gpu_dollars: float | None = None
    """Per GPU hour."""

    def __post_init__(self) -> None:
        for name, share in (("--detect", self.detect), ("--icc", self.icc), *(("--rate", rate) for rate in self.rates)):
            if share is not None and not 0 < share < 1:
                raise StillmeError(f"{name} is {share:g}; write a share between 0 and 1, such as 0.1 for ten points.")
        if not 0.5 <= self.power < 1:
            raise StillmeError(f"--power is {self.power:g}; write a share from 0.5 up to, not including, 1.")
        for name, value in (("--portrait-sd", self.portrait_sd), ("--sd", self.sd)):
            if value is not None and not value > 0:
                raise StillmeError(f"{name} is {value:g}; write a number above 0.")
        if self.icc is not None and self.portrait_sd is not None:
            raise StillmeError("--icc and --portrait-sd say the same thing; give one.")
        if self.quantity and self.like is None:
            raise StillmeError("--quantity goes with --like, the run to take it from.")


@dataclass(frozen=True, slots=True, kw_only=True)
class Likely:
    """How common a fault is and how alike the edits of one portrait are."""

    rate: float
    icc: float
    low: float
    high: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Assumed:
    """Everything that the plan rests on."""

    rates: tuple[Likely, ...]
    sd: float
    sd_icc: Likely
    """How alike scores are, for means; its rate means nothing."""
    origin: str
    seconds: Mapping[str, float] = field(default_factory=_none)
    """Per edit, by the key or the plugin's name of an editor, as measured in an earlier run."""
    dollars: Mapping[str, float] = field(default_factory=_none)
    """Per edit or question, likewise."""

    def as_json(self) -> dict[str, Any]:
        """For `--json`."""
        return {
            "origin": self.origin,
            "rates": [{"rate": e.rate, "icc": e.icc, "icc_low": e.low, "icc_high": e.high} for e in self.rates],
            "sd": self.sd,
            "sd_icc": self.sd_icc.icc,
        }


def assume(asked: Asked) -> Assumed:
    """The user's numbers, else the earlier run's, else the defaults."""
    if asked.like is not None:
        return _from_run(asked.like, asked)
    rates = tuple(_likely(rate, asked) for rate in asked.rates or RATES)
    origin = "your numbers" if asked.icc is not None or asked.portrait_sd is not None else "defaults"
    return Assumed(rates=rates, sd=asked.sd or SD, sd_icc=_likely(0.5, asked), origin=origin)


def _likely(rate: float, asked: Asked) -> Likely:
    if asked.icc is not None:
        return Likely(rate=rate, icc=asked.icc, low=asked.icc, high=asked.icc)
    if asked.portrait_sd is not None:
        icc = icc_of(asked.portrait_sd, rate)
        return Likely(rate=rate, icc=icc, low=icc, high=icc)
    return Likely(rate=rate, icc=ICC, low=ICC_RANGE[0], high=ICC_RANGE[1])


def _from_run(path: Path, asked: Asked) -> Assumed:
    with opened(path) as run:
        gathered = run.results
        seconds, dollars = _measured(run.store)
        settings = Settings(factors=(), replicates=400, seed=run.settings.seed)
    found = [
        each for each in intraclass_correlations(gathered.edits, gathered.scores, settings) if each.arm == _BASELINE
    ]
    name = asked.quantity or next((each.quantity for each in found if _is_usable(each)), "")
    chosen = [each for each in found if each.quantity == name]
    if asked.quantity and not chosen:
        known = sorted({each.quantity for each in found if each.quantity in rubric.load().rates})
        raise UnknownName.among("rate", asked.quantity, known, f"{path} has {', '.join(known) or 'none'}.")
    outcomes = [each.icc for each in chosen if isinstance(each.icc, Interval)]
    if not outcomes or name not in rubric.load().rates:
        raise StillmeError(f"{path} has no rate whose spread between portraits can be estimated; leave out --like.")
    columns = Columns.of(gathered.edits)
    here = [each for each in columns.quantities(gathered.scores) if each.arm == _BASELINE]
    rate, _ = _pooled([each for each in here if each.name == name])
    _, sd = _pooled([each for each in here if each.name == rubric.load().rates[name].axis])
    rates = asked.rates or (rate,)
    likely = tuple(_like(each, outcomes, asked) for each in rates)
    return Assumed(
        rates=likely,
        sd=asked.sd or sd or SD,
        sd_icc=likely[0],
        origin=f"{rubric.load().title(name)} in {path}",
        seconds=seconds,
        dollars=dollars,
    )


def _like(rate: float, outcomes: list[Interval], asked: Asked) -> Likely:
    """As alike as in the earlier run, on average over its editors, unless the user knows better."""
    if asked.icc is not None or asked.portrait_sd is not None:
        return _likely(rate, asked)
    return Likely(
        rate=rate,
        icc=float(np.mean([_share(each.value) for each in outcomes])),
        low=min(_share(each.low) for each in outcomes),
        high=max(_share(each.high) for each in outcomes),
    )


def _is_usable(found: Any) -> bool:
    return found.quantity in rubric.load().rates and isinstance(found.icc, Interval)


def _share(value: float) -> float:
    """Less alike than independent edits is chance."""
    return min(max(value, 0.0), 0.99)


def _pooled(quantities: list[Quantity]) -> tuple[float, float]:
    """Mean and standard deviation of single edits, over editors."""
    total = sum(float(each.counts.sum()) for each in quantities)
    if not total:
        return 0.0, 0.0
    mean = sum(float(each.sums.sum()) for each in quantities) / total
    square = sum(float(each.squares.sum()) for each in quantities) / total
    return mean, math.sqrt(max(0.0, square - mean**2))


def _measured(store: Store) -> tuple[dict[str, float], dict[str, float]]:
    seconds: dict[str, float] = {}
    dollars: dict[str, float] = {}
    works: tuple[Work, ...] = ("edit", "assessment")
    for work in works:
        for key, use, took, cost in store.averages(work):
            # The same specification speaks first, else the same plugin with other parameters.
            for name in (key, use):
                seconds.setdefault(name, took)
                dollars.setdefault(name, cost)
    return seconds, dollars
