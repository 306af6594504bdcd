"""A mixed ordinal model: scores as cuts of a latent scale, with a random intercept for each portrait.

Cumulative logits, one effect for each group, portraits normal around it. The random intercepts are integrated out
numerically; without other covariates a portrait is its counts of scores, so the number of edits does not matter. It
gives in odds what the contrasts give in points, and it assumes more than they do: proportional odds, normally
distributed portraits, and edits of a portrait that are otherwise independent.

Where the scores of groups do not overlap (separation), the likelihood grows without end, and an optimiser stops where
its precision does. Such groups are recognised from the scores, before anything is fitted.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stillme.estimates import design
from stillme.estimates.products import products
from stillme.estimates.quantiles import t_quantile
from stillme.estimates.quantities import Columns, Floats, Measured
from stillme.estimates.rows import Edits, Flags, Scores
from stillme.estimates.settings import Settings
from stillme.types import Interval, NotEstimable

MAX_CATEGORIES = 12
"""Distinct scores above which a scale is not taken as ordinal."""

MAX_FACTOR = 1000.0
"""Limits further away than this factor are no estimate: it takes a share of 50 % to 0.1 % or 99.9 %."""

_DIGITS = 6
"""Significant digits of results. Optimisers agree on no more across processors."""
_STEPS, _NEAR = 30, 0.1
"""Steps at most to polish a maximum, and how far they may lead."""
_GAIN = 1e-8
"""A gain of log-likelihood that is none."""
MAX_SPREAD = 30.0
"""On the logit scale: a larger one cannot be distinguished from portraits that have one score each."""
_SMALL_SPREAD = 0.01
_RANGE = 12.0
"""Standard deviations of the random intercept that are integrated over."""
_MAX_NODES = 4000


@dataclass(frozen=True, slots=True, kw_only=True)
class OddsRatio:
    """The odds of a higher score in a group, divided by those in the reference group, for otherwise equal portraits."""

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
    return [
        ratio
        for measured in columns.measured(scores)
        if not measured.is_rate and measured.bounds is not None
        for factor in settings.factors
        for ratio in _of_factor(columns, measured, factor, settings)
    ]


def _of_factor(columns: Columns, measured: Measured, factor: str, settings: Settings) -> list[OddsRatio]:
    declared = settings.reference.get(factor)
    plan = design.by_factor(columns, factor, settings)
    groups = [comparison for comparison in plan.comparisons if comparison.scope == "group"]
    rows = measured.counted
    values, codes = np.unique(np.round(measured.value[rows], 9), return_inverse=True)
    counts = np.zeros((len(columns.portraits), len(values)))
    np.add.at(counts, (columns.rank[rows], codes), 1.0)
    rated = counts.sum(axis=1)
    names = [group.group for group in groups]
    reference = names.index(declared) if declared in names else 0
    level = np.full(len(rated), -1)
    for place, group in enumerate(groups):
        level[group.members & (rated > 0)] = place
    occurs = counts[level >= 0].any(axis=0)
    counts, values = counts[:, occurs], values[occurs]
    outcomes, spread = _outcomes(counts, level, values, names, reference, settings.confidence)
    ratios: list[OddsRatio] = []
    for place, name in enumerate(names):
        if place == reference:
            continue
        both = (level == place) | (level == reference)
        ratios.append(
            OddsRatio(
                axis=measured.name,
                editor=measured.editor,
                arm=measured.arm,
                judge=measured.judge,
                factor=factor,
                level=name,
                reference=names[reference],
                outcome=outcomes[place],
                spread=spread if isinstance(outcomes[place], Interval) else None,
                portraits=int(both.sum()),
                edits=int(rated[both].sum()),
            )
        )
    return ratios


def _outcomes(
    counts: Floats, level: np.ndarray, values: Floats, names: list[str], reference: int, confidence: float
) -> tuple[list[Interval | NotEstimable], float | None]:
    """Each level's odds ratio to the reference, and the standard deviation between portraits."""
    reason = _unfit(counts, level, values, names)
    if reason:
        return [NotEstimable(reason=reason)] * len(names), None
    by_level = np.array([counts[level == place].sum(axis=0) for place in range(len(names))])
    overlaps = overlapping(by_level > 0, reference)
    outcomes: list[Interval | NotEstimable] = [
        NotEstimable(reason=_separated(by_level, values, names, place, reference)) for place in range(len(names))
    ]
    kept = [place for place in range(len(names)) if overlaps[place]]
    if len(kept) < 2:
        return outcomes, None
    inside = np.isin(level, kept)
    used = counts[inside][:, by_level[kept].any(axis=0)]
    fit: Fit | None = None
    if (np.count_nonzero(used, axis=1) < 2).all():
        reason = "every portrait has one score only, so the spread between portraits has no finite estimate"
    else:
        fit = fit_model(used, np.searchsorted(kept, level[inside]), len(kept), kept.index(reference))
        reason = "the fit did not converge: hardly any portrait has different scores"
    for index, place in enumerate(kept):
        outcomes[place] = _interval(fit, index, len(used), confidence) if fit else NotEstimable(reason=reason)
    return outcomes, _significant(fit.spread) if fit else None


def _unfit(counts: Floats, level: np.ndarray, values: Floats, names: list[str]) -> str:
    """Why no model can be fitted to these scores; empty where one can."""
    if len(values) < 2:
        return "every edit has the same score"
    if len(values) > MAX_CATEGORIES:
        return f"there are {len(values)} distinct scores, too many for an ordinal scale"
    few = [name for place, name in enumerate(names) if np.count_nonzero(level == place) < 2]
    if few:
        return f"{few[0]} has rated edits of fewer than two portraits"
    if counts[level >= 0].sum(axis=1).max() < 2:
        return "with one edit a portrait, the spread between portraits cannot be estimated"
    return ""


def overlapping(seen: Flags, reference: int) -> Flags:
    """Which levels have a finite odds ratio to the reference, from levels × scores: which of them occur.

    A level with several scores ties the cuts between its lowest and its highest score to its own effect: none can grow
    without end unless all do. So levels are comparable if the cuts that they span are connected. A level with one score
    belongs to the cuts on both sides of it, if these are connected; at an end of the scale it has only one.
    """
    low, high = seen.argmax(axis=1), seen.shape[1] - 1 - seen[:, ::-1].argmax(axis=1)
    component: NDArray[np.intp] = np.arange(seen.shape[1] - 1, dtype=np.intp)
    for start, end in zip(low, high, strict=True):
        if start < end:
            component[np.isin(component, component[start:end])] = component[start]
    # Cuts of no level, beyond both ends of the scale.
    edges = np.concatenate([[-1], component, [-2]])
    finite = (low < high) | (edges[low] == edges[low + 1])
    return finite & finite[reference] & (edges[low + 1] == edges[low[reference] + 1])


def _separated(by_level: Floats, values: Floats, names: list[str], place: int, reference: int) -> str:
    """Why a level has no finite odds ratio to the reference."""
    for one in (place, reference):
        scores = values[by_level[one] > 0]
        if len(scores) == 1 and scores[0] in (values[0], values[-1]):
            end = "lowest" if scores[0] == values[0] else "highest"
            return f"{names[one]} has only the {end} score, so the odds ratio is not finite (separation)"
    two = f"{names[place]} and {names[reference]}"
    return f"the scores of {two} do not overlap, so the odds ratio is not finite (separation)"


@dataclass(frozen=True, slots=True)
class Fit:
    """The model at its maximum."""

    effects: Floats
    """Log-odds of each level against the reference, whose own is 0."""
    errors: Floats
    spread: float
    log_likelihood: float


def fit_model(counts: Floats, level: NDArray[np.intp], levels: int, reference: int) -> Fit | None:
    """Maximise the likelihood of portraits × scores; None where the optimiser finds no maximum.

    Levels must overlap. The model without random intercepts comes first: it is the maximum itself where portraits
    differ no more than chance makes them, and a good start elsewhere.
    """
    model = _Model.of(counts, level, levels, reference)
    plain = _maximum(model, model.start())
    if plain is None:
        return None
    gain = model.loss(plain.at) - model.loss(np.append(plain.at, math.log(_SMALL_SPREAD)))
    if gain <= _GAIN:
        return plain.fit(model)
    mixed = _maximum(model, np.append(plain.at, math.log(0.5)))
    return mixed.fit(model) if mixed else None


@dataclass(frozen=True, slots=True)
class _Model:
    """The likelihood and its gradient, by parameters: cuts, effects and, if there is one more, the log of the spread.

    Cuts are a first one and the logarithms of steps, so that they stay in order.
    """

    counts: Floats
    """Levels × portraits × scores; a level with fewer portraits than another ends with rows of zeros."""
    present: Flags
    """Levels × portraits: which rows are portraits."""
    reference: int
    most: float
    """Scores of the portrait that has most."""

    @classmethod
    def of(cls, counts: Floats, level: NDArray[np.intp], levels: int, reference: int) -> _Model:
        """From portraits × scores."""
        sizes = np.bincount(level, minlength=levels)
        present: Flags = np.less(np.arange(int(sizes.max())), sizes[:, None])
        table = np.zeros((*present.shape, counts.shape[1]))
        table[present] = counts[np.argsort(level, kind="stable")]
        return cls(table, present, reference, float(counts.sum(axis=1).max()))

    @property
    def levels(self) -> int:
        return len(self.counts)

    @property
    def cuts(self) -> int:
        return self.counts.shape[2] - 1

    @property
    def others(self) -> list[int]:
        return [place for place in range(self.levels) if place != self.reference]

    def start(self) -> Floats:
        shares = np.cumsum(self.counts.sum(axis=(0, 1)) / self.counts.sum())[:-1]
        cuts = np.log(shares / (1 - shares))
        return np.concatenate([cuts[:1], np.log(np.diff(cuts)), np.zeros(self.levels - 1)])

    def steps(self, at: Floats) -> Floats:
        return np.exp(np.clip(at[1 : self.cuts], -20, 20))

    def has_spread(self, at: Floats) -> bool:
        return len(at) > self.cuts + self.levels - 1

    def unpacked(self, at: Floats) -> tuple[Floats, Floats, float]:
        """Thresholds, effects and the spread."""
        effects = np.zeros(self.levels)
        effects[self.others] = at[self.cuts : self.cuts + self.levels - 1]
        spread = math.exp(min(float(at[-1]), math.log(MAX_SPREAD))) if self.has_spread(at) else 0.0
        return np.cumsum(np.concatenate([at[:1], self.steps(at)])), effects, spread

    def loss(self, at: Floats) -> float:
        return self.loss_and_gradient(at)[0]

    def gradient(self, at: Floats) -> Floats:
        return self.loss_and_gradient(at)[1]

    def loss_and_gradient(self, at: Floats) -> tuple[float, Floats]:
        """The gradient is that of the joint density, averaged over each portrait's random intercept."""
        thresholds, effects, spread = self.unpacked(at)
        intercepts, log_weights = self._intercepts(spread)
        # Levels × values of the random intercept × cuts or scores.
        z = thresholds - effects[:, None, None] - spread * intercepts[:, None]
        below, above = _logistic(z)
        chances = _chances(z, below, above)
        joint = products(self.counts, np.log(chances).transpose(0, 2, 1)) + log_weights
        top = joint.max(axis=2, keepdims=True)
        weights = np.exp(joint - top)
        total = weights.sum(axis=2, keepdims=True)
        shares = products((weights / total).transpose(0, 2, 1), self.counts) / chances
        slopes = below * above * (shares[..., :-1] - shares[..., 1:])
        # A step moves all later thresholds.
        by_cut = np.cumsum(slopes.sum(axis=(0, 1))[::-1])[::-1] * np.concatenate([[1.0], self.steps(at)])
        by_level = -slopes.sum(axis=(1, 2))
        by_spread = [-float((slopes.sum(axis=(0, 2)) * spread * intercepts).sum())] if self.has_spread(at) else []
        loss = -float((np.log(total) + top)[self.present].sum())
        return loss, -np.concatenate([by_cut, by_level[self.others], by_spread])

    def _intercepts(self, spread: float) -> tuple[Floats, Floats]:
        """Values of the random intercept, and the logarithm of its density there times the step between them.

        The trapezoidal rule converges exponentially here if steps are shorter than what the sharpest portrait is wide,
        and its values do not depend on the portrait, so that the gradient is exactly that of the sum.
        """
        if spread == 0:
            return np.zeros(1), np.zeros(1)
        sharpest = math.sqrt(1 + spread**2 * self.most / 3)
        intercepts = np.linspace(-_RANGE, _RANGE, min(_MAX_NODES, 1 + math.ceil(2 * _RANGE * sharpest / 0.6)))
        return intercepts, math.log(intercepts[1] - intercepts[0]) - (intercepts**2 + math.log(2 * math.pi)) / 2

    def information(self, at: Floats) -> Floats:
        """The second derivatives of the loss, by central differences of the gradient."""
        steps = np.eye(len(at)) * 1e-4
        table = np.stack([(self.gradient(at + step) - self.gradient(at - step)) / 2e-4 for step in steps])
        return (table + table.T) / 2


@dataclass(frozen=True, slots=True)
class _Maximum:
    at: Floats
    covariance: Floats

    def fit(self, model: _Model) -> Fit:
        _, effects, spread = model.unpacked(self.at)
        errors = np.zeros(model.levels)
        errors[model.others] = np.sqrt(np.diag(self.covariance)[model.cuts : model.cuts + model.levels - 1])
        return Fit(effects, errors, spread, -model.loss(self.at))


def _maximum(model: _Model, start: Floats) -> _Maximum | None:
    """The maximum of the likelihood; None unless its gradient is 0 there and its information positive definite."""
    optimize: Any = import_module("scipy.optimize")
    near = optimize.minimize(model.loss_and_gradient, start, jac=True, method="BFGS")
    at = _polished(model, np.asarray(near.x, dtype=np.float64), near.hess_inv)
    if at is None:
        root = optimize.root(model.gradient, near.x, jac=model.information, options={"xtol": 1e-12})
        at = np.asarray(root.x, dtype=np.float64)
    if model.has_spread(at) and at[-1] >= math.log(MAX_SPREAD):
        return None
    gradient, information = model.gradient(at), model.information(at)
    try:
        np.linalg.cholesky(information)
    except np.linalg.LinAlgError:
        return None
    covariance: Floats = np.linalg.inv(information).astype(np.float64)
    # What a further Newton step could gain.
    if not gradient @ covariance @ gradient / 2 < _GAIN:
        return None
    return _Maximum(at, covariance)


def _polished(model: _Model, near: Floats, inverse: Floats) -> Floats | None:
    """Broyden's steps from near the maximum and its inverse information; None where they do not settle."""
    at, gradient = near, model.gradient(near)
    for _ in range(_STEPS):
        step = -inverse @ gradient
        at = at + step
        if not np.abs(at - near).max() < _NEAR:
            return None
        if np.abs(step).max() <= 1e-12 * (1 + np.abs(at).max()):
            return at
        before, gradient = gradient, model.gradient(at)
        expected = inverse @ (gradient - before)
        # The inverse that would have led here.
        inverse = inverse + np.outer(step - expected, step @ inverse) / (step @ expected)
    return None


def _logistic(z: Floats) -> tuple[Floats, Floats]:
    """The chance to be below and above a threshold at this distance; the smaller one is as exact as the larger."""
    small = np.exp(-np.abs(z))
    large = 1 / (1 + small)
    small *= large
    return np.where(z > 0, large, small), np.where(z > 0, small, large)


def _chances(z: Floats, below: Floats, above: Floats) -> Floats:
    """The chance of each score, from the distances to the thresholds and the chances to be on either side of them."""
    chances = np.empty((*z.shape[:-1], z.shape[-1] + 1))
    chances[..., 0], chances[..., -1] = below[..., 0], above[..., -1]
    # Of two numbers near 1 the difference would cancel; their complements are near 0.
    chances[..., 1:-1] = np.where(z[..., :-1] + z[..., 1:] > 0, -np.diff(above), np.diff(below))
    return np.maximum(chances, 1e-300)


def _interval(fit: Fit, place: int, portraits: int, confidence: float) -> Interval | NotEstimable:
    freedom = max(1, portraits - len(fit.effects))
    half = t_quantile((1 + confidence) / 2, freedom) * float(fit.errors[place])
    if not half <= math.log(MAX_FACTOR):
        return NotEstimable(
            reason=f"the odds ratio is uncertain by a factor of more than {MAX_FACTOR:,.0f}: too few scores overlap"
        )
    effect = float(fit.effects[place])
    return Interval(
        value=_significant(math.exp(effect)),
        low=_significant(math.exp(effect - half)),
        high=_significant(math.exp(effect + half)),
        confidence=confidence,
        method="cumulative logit with a random intercept for each portrait; Wald, Student's t",
    )


def _significant(value: float) -> float:
    return float(f"{value:.{_DIGITS}g}")
