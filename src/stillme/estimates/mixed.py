"""A mixed ordinal model: scores as cuts of a latent scale, with an intercept of its own for each portrait.

Cumulative logits, one effect for each group, portraits normal around it. The likelihood integrates the portraits out
by adaptive Gauss–Hermite quadrature; without other covariates a portrait is its counts of scores, so the number of
edits does not matter. It says in odds what the contrasts say in points, and it assumes more than they do: proportional
odds, normal portraits, and edits of a portrait that are otherwise independent.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Any

import numpy as np

from stillme.estimates import design
from stillme.estimates.quantiles import student
from stillme.estimates.quantities import Columns, Floats, Measured
from stillme.estimates.rows import Edits, Scores
from stillme.estimates.settings import Settings
from stillme.types import Interval, NotEstimable

NODES = 15
MOST = 12
"""Distinct scores above which a scale is no longer taken as ordinal."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OddsRatio:
    """How many times the odds of a higher score are those of the reference group, for portraits alike in luck."""

    axis: str
    editor: str
    arm: str
    judge: str
    factor: str
    level: str
    reference: str
    outcome: Interval | NotEstimable
    spread: float | None
    """The standard deviation between portraits on the logit scale; by maximum likelihood, so a little small."""
    portraits: int
    edits: int


def odds_ratios(edits: Edits, scores: Sequence[Scores], settings: Settings) -> list[OddsRatio]:
    """Fit the model to every 1–5 axis, for each editor, arm, judge and factor.

    The reference is the declared one, else the first level by name.
    """
    columns = Columns.of(edits)
    found: list[OddsRatio] = []
    for measured in columns.measured(scores):
        if measured.is_rate or measured.bounds is None:
            continue
        for factor in settings.factors:
            found += _of_factor(columns, measured, factor, settings)
    return found


def _of_factor(columns: Columns, measured: Measured, factor: str, settings: Settings) -> list[OddsRatio]:
    declared = settings.reference.get(factor)
    plan = design.by_factor(columns, factor, declared)
    groups = [each for each in plan.comparisons if each.scope == "group"]
    rows = measured.counted
    values, codes = np.unique(np.round(measured.value[rows], 9), return_inverse=True)
    counts = np.zeros((len(columns.portraits), len(values)))
    np.add.at(counts, (columns.rank[rows], codes), 1.0)
    rated = counts.sum(axis=1)
    first = next((place for place, each in enumerate(groups) if each.group == declared), 0)
    level = np.full(len(rated), -1)
    for place, each in enumerate(groups):
        level[each.members & (rated > 0)] = place
    kept = level >= 0
    reason = _unfit(values, [each.group for each in groups], level, counts)
    fit = None if reason else fit_model(counts[kept], level[kept], len(groups), first)
    if fit is None:
        reason = reason or "the model did not settle: some group has only the highest or only the lowest score"
    found: list[OddsRatio] = []
    for place, each in enumerate(groups):
        if place == first:
            continue
        both = kept & ((level == place) | (level == first))
        found.append(
            OddsRatio(
                axis=measured.name,
                editor=measured.editor,
                arm=measured.arm,
                judge=measured.judge,
                factor=factor,
                level=each.group,
                reference=groups[first].group,
                outcome=_interval(fit, place, int(kept.sum()), settings) if fit else NotEstimable(reason=reason),
                spread=fit.spread if fit else None,
                portraits=int(both.sum()),
                edits=int(rated[both].sum()),
            )
        )
    return found


def _unfit(values: Floats, names: list[str], level: np.ndarray, counts: Floats) -> str:
    if len(values) < 2:
        return "every edit has the same score"
    if len(values) > MOST:
        return f"there are {len(values)} distinct scores, too many for cuts of a scale"
    empty = [name for place, name in enumerate(names) if np.count_nonzero(level == place) < 2]
    if empty:
        return f"{empty[0]} has rated edits of fewer than two portraits"
    if counts.sum(axis=1).max() < 2:
        return "with one edit a portrait, portraits and edits cannot be told apart"
    return ""


@dataclass(frozen=True, slots=True)
class Fit:
    """The model at its maximum."""

    effects: Floats
    """Log-odds of each level against the reference, whose own is 0."""
    errors: Floats
    spread: float
    log_likelihood: float


def fit_model(counts: Floats, level: np.ndarray, levels: int, reference: int) -> Fit | None:
    """Maximise the likelihood of portraits × scores; None where it has no maximum."""
    optimize: Any = import_module("scipy.optimize")
    kinds = counts.shape[1]
    others = [place for place in range(levels) if place != reference]
    shares = np.cumsum(counts.sum(axis=0) / counts.sum())[:-1]
    cuts = np.log(shares / (1 - shares))
    # Cuts as a first one and the logarithms of steps, so that they stay in order; spread as a logarithm.
    start = np.concatenate([cuts[:1], np.log(np.diff(cuts)), np.zeros(len(others)), [math.log(0.5)]])

    def lost(at: Floats) -> float:
        steps, effects = at[: kinds - 1], np.zeros(levels)
        effects[others] = at[kinds - 1 : -1]
        thresholds = np.cumsum(np.concatenate([steps[:1], np.exp(np.clip(steps[1:], -20, 20))]))
        return -log_likelihood(counts, thresholds, effects[level], math.exp(min(at[-1], 5.0)))

    best = optimize.minimize(lost, start, method="BFGS", options={"gtol": 1e-4 * counts.sum() ** 0.5})
    at: Floats = np.asarray(best.x, dtype=np.float64)
    curvature = _hessian(lost, at)
    free = len(at) - 1 if at[-1] < -4 else len(at)
    # Where portraits hardly differ the spread lies at its edge and has no curvature of its own.
    try:
        covariance = np.linalg.inv(curvature[:free, :free])
    except np.linalg.LinAlgError:
        return None
    where = slice(kinds - 1, kinds - 1 + len(others))
    variance = np.array([float(covariance[place, place]) for place in range(kinds - 1, kinds - 1 + len(others))])
    effects, errors = np.zeros(levels), np.zeros(levels)
    effects[others] = at[where]
    if not (np.isfinite(variance).all() and (variance > 0).all() and (np.abs(effects) < 10).all()):
        return None
    errors[others] = np.sqrt(variance)
    return Fit(effects, errors, math.exp(float(at[-1])), -float(best.fun))


def log_likelihood(counts: Floats, thresholds: Floats, shift: Floats, spread: float) -> float:
    """Of portraits × scores, each portrait's luck integrated out around its own most likely value."""
    nodes, weights = np.polynomial.hermite_e.hermegauss(NODES)
    middle = np.zeros(len(counts))
    width = np.ones(len(counts))
    for _ in range(12):
        slope, bend = _derivatives(counts, thresholds, shift + spread * middle, spread)
        width = 1 / np.sqrt(bend + 1)
        step = np.clip((slope - middle) * width**2, -1.5, 1.5)
        middle = middle + step
        if np.abs(step).max() < 1e-7:
            break
    luck = middle[:, None] + width[:, None] * nodes[None, :]
    chances = _chances(thresholds, shift[:, None] + spread * luck)
    joint = np.einsum("pk,pnk->pn", counts, np.log(chances)) - luck**2 / 2 + nodes**2 / 2
    top = joint.max(axis=1)
    summed = np.log((weights * np.exp(joint - top[:, None])).sum(axis=1)) + top
    return float((summed + np.log(width) - math.log(math.sqrt(2 * math.pi))).sum())


def _chances(thresholds: Floats, place: Floats) -> Floats:
    """The chance of each score at each place of the latent scale."""
    below = 1 / (1 + np.exp(-np.clip(thresholds - place[..., None], -30, 30)))
    edges = np.concatenate([np.zeros((*place.shape, 1)), below, np.ones((*place.shape, 1))], axis=-1)
    return np.maximum(np.diff(edges, axis=-1), 1e-12)


def _derivatives(counts: Floats, thresholds: Floats, place: Floats, spread: float) -> tuple[Floats, Floats]:
    """Slope and expected bend of each portrait's log-likelihood in its luck."""
    below = 1 / (1 + np.exp(-np.clip(thresholds - place[:, None], -30, 30)))
    steep = below * (1 - below)
    edges = np.concatenate([np.zeros((len(place), 1)), steep, np.zeros((len(place), 1))], axis=1)
    change = -np.diff(edges, axis=1) * spread
    chances = _chances(thresholds, place)
    slope = (counts * change / chances).sum(axis=1)
    bend = counts.sum(axis=1) * (change**2 / chances).sum(axis=1)
    return slope, bend


def _hessian(function: Any, at: Floats, step: float = 1e-3) -> Floats:
    """Second derivatives by central differences."""
    size = len(at)
    moves = np.eye(size) * step
    found = np.empty((size, size))
    for one in range(size):
        for other in range(one, size):
            corners = [
                function(at + first * moves[one] + second * moves[other]) * first * second
                for first in (1, -1)
                for second in (1, -1)
            ]
            found[one, other] = found[other, one] = sum(corners) / (4 * step * step)
    return found


def _interval(fit: Fit, place: int, portraits: int, settings: Settings) -> Interval:
    freedom = max(1, portraits - len(fit.effects))
    half = student((1 + settings.confidence) / 2, freedom) * float(fit.errors[place])
    middle = float(fit.effects[place])
    return Interval(
        value=math.exp(middle),
        low=math.exp(middle - half),
        high=math.exp(middle + half),
        confidence=settings.confidence,
        method="cumulative logit with a random intercept for each portrait; Wald, Student's t",
    )
