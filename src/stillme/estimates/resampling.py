"""Intervals by resampling: of portraits, or of portraits and prompts where prompts are a sample too."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from stillme.estimates import bootstrap, crossed
from stillme.estimates.bootstrap import Limits, Resampled
from stillme.estimates.design import Plan
from stillme.estimates.quantities import Quantity
from stillme.estimates.settings import Settings


def resample(plan: Plan, quantities: Sequence[Quantity], settings: Settings) -> Iterator[Resampled]:
    """Intervals of every comparison of a plan, for each quantity in turn."""
    if settings.prompts == "sample":
        return crossed.resample(plan, quantities, settings)
    return bootstrap.resample(plan, quantities, settings)


def limits(plan: Plan, quantities: Sequence[Quantity], settings: Settings) -> Iterator[tuple[Limits, ...]]:
    """For each quantity and each comparison of a plan: its interval at any confidence, from the same resamples."""
    if settings.prompts == "sample":
        return crossed.limits(plan, quantities, settings)
    return bootstrap.limits(plan, quantities, settings)
