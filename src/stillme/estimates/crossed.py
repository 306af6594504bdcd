"""Intervals for prompts that were not tried: portraits and prompts are resampled independently.

A replicate draws portraits (or their blocks) and prompts with replacement; an edit counts as often as its portrait
was drawn times as often as its prompt was. The standard error adds the variance between portraits to the variance
between prompts. That counts the residual variance of single edits twice, which is conservative.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from stillme.estimates.bootstrap import (
    MAX_DEGENERATE,
    MIN_UNITS,
    Limits,
    Resampled,
    clipped,
    draws,
    logit_limits,
    ratio_limits,
    too_few_units,
    widest_limits,
)
from stillme.estimates.design import Comparison, Plan
from stillme.estimates.quantiles import t_quantile, wilson
from stillme.estimates.quantities import Floats, Quantity
from stillme.estimates.rounding import NOISE, interval, snapped
from stillme.estimates.settings import Settings
from stillme.types import Interval, NotEstimable, digest


def resample(plan: Plan, quantities: Sequence[Quantity], settings: Settings) -> Iterator[Resampled]:
    """Intervals of every comparison of a plan, for each quantity in turn."""
    levels = len(plan.levels)
    for quantity in quantities:
        results = _results(plan, quantity, settings)
        groups = [result.values for result in results[:levels]]
        yield Resampled(
            outcomes=tuple(_outcome(plan, quantity, result, settings.confidence) for result in results),
            groups=np.stack(groups) if groups else np.empty((0, settings.replicates)),
            values=np.array([result.value for result in results[:levels]]),
            flat=any(result.flat for result in results[:levels]),
        )


def limits(plan: Plan, quantities: Sequence[Quantity], settings: Settings) -> Iterator[tuple[Limits, ...]]:
    """For each quantity and each comparison of a plan: its interval at any confidence, from the same resamples."""
    for quantity in quantities:
        yield tuple(partial(_outcome, plan, quantity, result) for result in _results(plan, quantity, settings))


@dataclass(frozen=True, slots=True)
class _Result:
    """One comparison of one quantity, in the rows and in every resample."""

    comparison: Comparison
    value: float
    variance: float
    sides: tuple[float, ...]
    """The value of each side."""
    units: int
    """Portraits or blocks with any value, on the side that has fewer."""
    prompts: int
    flat: bool
    """Whether a side has the same value in every edit."""
    values: Floats
    variances: Floats


def _results(plan: Plan, quantity: Quantity, settings: Settings) -> list[_Result]:
    assert quantity.by_prompt is not None, "collapse with prompts=True where prompts are a sample"
    used = np.flatnonzero(quantity.by_prompt.counts.any(axis=0))
    sides = [_Sides.of(plan, quantity, comparison, used) for comparison in plan.comparisons]
    values = np.empty((len(sides), settings.replicates))
    variances = np.empty_like(values)
    stream = np.random.default_rng(int(digest([settings.seed, "prompts", used.tolist()]), 16))
    done = 0
    for counts in draws(plan, settings) if sides else ():
        rows = len(counts[0])
        drawn = stream.integers(0, max(1, len(used)), size=(rows, len(used)))
        drawn += np.arange(rows)[:, None] * len(used)
        prompts = np.bincount(drawn.ravel(), minlength=rows * len(used)).reshape(rows, len(used)).astype(np.float64)
        end = done + rows
        for place, compared in enumerate(sides):
            values[place, done:end], variances[place, done:end] = compared.under(counts, prompts)[:2]
        done = end
    return [compared.result(values[place], variances[place]) for place, compared in enumerate(sides)]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Sides:
    """One comparison of one quantity: sums and counts by unit and prompt, stratum by stratum."""

    comparison: Comparison
    is_rate: bool
    strata: tuple[tuple[int, tuple[Floats, ...]], ...]
    """The stratum's place in the plan; sums and counts, units × prompts, of each side in turn."""
    sizes: tuple[int, ...]
    prompts: int
    active: int

    @classmethod
    def of(cls, plan: Plan, quantity: Quantity, comparison: Comparison, used: np.ndarray) -> _Sides:
        assert quantity.by_prompt is not None
        masks = [comparison.members] if comparison.against is None else [comparison.members, comparison.against]
        columns: list[Floats] = []
        active: list[int] = []
        for mask in masks:
            inside = mask & (plan.unit >= 0)
            for cells in quantity.by_prompt:
                table = np.zeros((len(plan.names), len(used)))
                np.add.at(table, plan.unit[inside], cells[np.ix_(inside, used)])
                columns.append(table)
            active.append(int(np.count_nonzero(columns[-1].any(axis=1))))
        strata = tuple(
            (place, tuple(np.ascontiguousarray(column[units]) for column in columns))
            for place, units in enumerate(plan.strata)
            if any(column[units].any() for column in columns)
        )
        return cls(
            comparison=comparison,
            is_rate=quantity.is_rate,
            strata=strata,
            sizes=tuple(len(units) for units in plan.strata),
            prompts=len(used),
            active=min(active),
        )

    def under(self, counts: Sequence[Floats], prompts: Floats) -> tuple[Floats, Floats, list[Floats]]:
        """The value, its variance and each side's value in each of these resamples."""
        rows, width = len(prompts), 4 if self.comparison.against is not None else 2
        by_prompt = np.zeros((width, rows, self.prompts))
        for place, columns in self.strata:
            for column in range(width):
                by_prompt[column] += counts[place] @ columns[column]
        total = (by_prompt * prompts).sum(axis=2)
        value, weights, sides = np.zeros(rows), np.zeros((width, rows)), list[Floats]()
        with np.errstate(divide="ignore", invalid="ignore"):
            for place in range(0, width, 2):
                sign = 1.0 if place == 0 else -1.0
                mean = total[place] / total[place + 1]
                mean = snapped(mean) if self.is_rate else mean
                slope = sign / total[place + 1]
                if self.comparison.scale == "log ratio":
                    value += sign * np.log(mean)
                    slope = slope / mean
                else:
                    value += sign * mean
                weights[place], weights[place + 1] = slope, -slope * mean
                sides.append(mean)
            variance = self._between(prompts, np.einsum("cr,crj->rj", weights, by_prompt), self.prompts)
            for place, columns in self.strata:
                by_unit = sum(
                    (weights[column][:, None] * (prompts @ columns[column].T) for column in range(width)),
                    np.zeros((rows, self.sizes[place])),
                )
                variance += self._between(counts[place], by_unit, self.sizes[place])
        return value, variance, sides

    @staticmethod
    def _between(counts: Floats, residuals: Floats, size: int) -> Floats:
        if size < 2:
            return np.full(len(counts), math.inf)
        mean = (counts * residuals).sum(axis=1, keepdims=True) / size
        return size / (size - 1) * (counts * (residuals - mean) ** 2).sum(axis=1)

    def result(self, values: Floats, variances: Floats) -> _Result:
        ones = [np.ones((1, size)) for size in self.sizes]
        value, variance, sides = self.under(ones, np.ones((1, self.prompts)))
        return _Result(
            comparison=self.comparison,
            value=float(value[0]),
            variance=float(variance[0]),
            sides=tuple(float(side[0]) for side in sides),
            units=self.active,
            prompts=self.prompts,
            flat=bool(variance[0] <= (NOISE * (1 + max(abs(float(side[0])) for side in sides))) ** 2),
            values=values,
            variances=variances,
        )


def _outcome(plan: Plan, quantity: Quantity, result: _Result, confidence: float) -> Interval | NotEstimable:
    """Choose the interval that this much data supports."""
    if result.units < 2:
        return too_few_units(result.units, result.comparison)
    if result.prompts < 2:
        return NotEstimable(reason="there is only one prompt, which says nothing about others")
    is_ratio = result.comparison.scale == "log ratio"
    if is_ratio and min(result.sides) <= 0:
        return NotEstimable(reason="the rate of one side is 0, so there is no ratio")
    tail, fewer = (1 + confidence) / 2, min(result.units, result.prompts)
    error = math.sqrt(result.variance)
    usable = np.isfinite(result.values) & (result.variances > 1e-8 * result.variance)
    noun = f"prompts and {plan.noun}"
    stable = fewer >= MIN_UNITS and not result.flat and np.mean(~usable) <= MAX_DEGENERATE
    if stable and quantity.is_rate and result.comparison.against is None:
        low, high = logit_limits(result.value, error, t_quantile(tail, fewer - 1))
        method = f"Student's t of the logit over {noun}"
    elif stable:
        t = np.sort((result.values[usable] - result.value) / np.sqrt(result.variances[usable]))
        low, high = widest_limits(result.value, error, t, fewer - 1, confidence)
        method = f"bootstrap-t and Student's t over {noun}, the wider limits"
    elif result.flat and quantity.is_rate:
        bounds = [wilson(rate, fewer, confidence) for rate in result.sides]
        if is_ratio:
            low, high = ratio_limits(result.sides, bounds)
        else:
            low = bounds[0][0] - (bounds[1][1] if len(bounds) > 1 else 0.0)
            high = bounds[0][1] - (bounds[1][0] if len(bounds) > 1 else 0.0)
        method = f"Wilson on the number of {noun}, whichever are fewer"
    elif result.flat:
        low = high = result.value
        method = f"no spread between {noun}"
    else:
        half = t_quantile(tail, fewer - 1) * error
        low, high, method = result.value - half, result.value + half, f"Student's t over {noun}"
    if not is_ratio:
        low, high = clipped(low, high, quantity, result.comparison)
    return interval(result.value, low, high, confidence=confidence, method=method)
