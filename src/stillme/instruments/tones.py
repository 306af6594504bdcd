"""Learn how the tones of a picture changed, and predict what that makes of other spots, and how surely.

Tones are the three channels on the scale of L*, from 0 to 1. A change of tones is a smooth curve a channel, a share of
the other two channels, and a smooth field of light over the picture. Its priors are in stops: a change of light moves
bright tones further than dark ones. The fit is Bayesian, so that spots unlike everything that was seen are predicted
with a large standard deviation.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache

import numpy as np
from numpy.typing import NDArray

from stillme.core.colour import Floats

Doubles = NDArray[np.float64]
Rows = NDArray[np.bool_]

LUMINANCE: Doubles = np.array([0.2126729, 0.7151522, 0.0721750])
_EPSILON, _KAPPA = 216 / 24389, 24389 / 27
_OFFSET, _STOP = 0.16, float(np.log(2) / 3)
"""A stop moves a tone by `_STOP` times the tone plus `_OFFSET`: L* is a cube root."""

_KNOTS, _GRID = 11, 5
_CROSS = slice(_KNOTS, _KNOTS + 2)
_FIELD = slice(_KNOTS + 2, _KNOTS + 2 + _GRID**2)
_SIZE = _KNOTS + 2 + _GRID**2
_OTHERS = ((1, 2), (0, 2), (0, 1))

_CURVE_REACH, _KINK_REACH, _KINK = 0.45, 0.12, 0.1
"""How far a curve bends together, how far its kinks reach, and their share of its variance."""
_FIELD_REACH = 0.6
"""Of the picture's side: how far light varies together."""
_CROSSTALK = 0.3
"""Prior of the other channels' share, for each stop of change."""
_CHANGES, _FIELDS = (0.1, 0.3, 1.0), (0.01, 0.05, 0.15, 0.5)
"""Stops of change, and of unevenness, among which the marginal likelihood chooses."""
_INDEPENDENT = 60
"""Neighbouring pixels err alike: as many witnesses as this are independent, at most."""
_NOISE = (0.004, 0.006, 0.03)
"""The least, the first and the largest noise of a tone."""
_ROUNDS, _CHOOSING = 5, 2
"""Rounds of reweighting, and the one that chooses the priors, when the worst outliers have lost their weight."""
_BLOCK = 128
"""Rows that are multiplied at once: below the size at which OpenBLAS starts threads, which wait for each other."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ToneChange:
    """How tones changed, as far as the witnesses show."""

    weights: Doubles
    """By channel and feature."""
    covariance: Doubles
    prior: Doubles
    noise: float
    importance: Doubles
    """Of each witness; outliers count little."""

    def change(self, features: Doubles) -> Doubles:
        """The change of tones, by channel and spot."""
        return np.stack([part @ weights for part, weights in zip(features, self.weights, strict=True)])

    def deviation(self, features: Doubles, tones: Doubles) -> float:
        """The standard deviation of the light, in stops, at the typical one of these spots."""
        variance = np.stack(
            [((part @ spread) * part).sum(axis=1) for part, spread in zip(features, self.covariance, strict=True)]
        )
        return float(np.sqrt(np.median(LUMINANCE**2 @ (variance / _moves(tones) ** 2))))

    def slopes(self, low: Doubles, high: Doubles) -> Doubles:
        """The mean slope of each channel's curve between two tones."""
        knots = np.linspace(0, 1, _KNOTS)
        rises = np.zeros(3)
        for channel, curve in enumerate(knots + self.weights[:, :_KNOTS]):
            rises[channel] = np.interp(high[channel], knots, curve) - np.interp(low[channel], knots, curve)
        return rises / (high - low)

    def without(self, features: Doubles, change: Doubles, kept: Rows) -> ToneChange:
        """What is learnt if only some of the witnesses count, as they did before."""
        importance = np.where(kept, self.importance, 0.0)
        weights, covariance = _solve(*_normal(features, change, importance), self.prior, _variance(self, importance))
        return replace(self, weights=weights, covariance=covariance, importance=importance)


def to_tones(linear: Floats) -> Doubles:
    """Tones of linear light, spot by spot."""
    wide = linear.astype(np.float64)
    return np.where(wide > _EPSILON, 1.16 * np.cbrt(wide) - _OFFSET, wide * _KAPPA / 100)


def to_linear(tones: Doubles) -> Floats:
    """Linear light of tones; not clipped above."""
    wide = np.maximum(tones, 0.0)
    root = (wide + _OFFSET) / 1.16
    return np.where(wide > 0.08, root * root * root, wide * 100 / _KAPPA).astype(np.float32)


def in_stops(change: Doubles, tones: Doubles) -> Doubles:
    """A change of tones (by channel and spot) as a change of light, spot by spot."""
    return LUMINANCE @ (change / _moves(tones))


def describe(tones: Doubles, place: Doubles) -> Doubles:
    """Features of spots, by channel: tones are rows of three, places rows of x and y from 0 to 1."""
    features = np.zeros((3, len(tones), _SIZE))
    field = _bilinear(place)
    moves = _moves(tones)
    rows = np.arange(len(tones))
    for channel, others in enumerate(_OTHERS):
        lower, share = _between(tones[:, channel], _KNOTS)
        features[channel, rows, lower] = 1 - share
        features[channel, rows, lower + 1] = share
        features[channel, :, _CROSS] = tones[:, others] - tones[:, [channel]]
        features[channel, :, _FIELD] = field * moves[channel][:, None]
    return features


def learn(
    features: Doubles, change: Doubles, tones: Doubles, steady: Doubles, *, calm: bool, uneven: bool
) -> ToneChange:
    """Fit the change of tones (by channel and witness), reweighted against outliers.

    `steady` is the weight of each witness before that, up to 1. `calm`: only the smallest changes are looked for.
    `uneven`: light may vary over the picture.
    """
    among = (_CHANGES[:1] if calm else _CHANGES, _FIELDS if uneven else _FIELDS[:1])
    moved = 1.5 * float(np.median(np.abs(change) / _moves(tones)))
    prior = _prior(
        min(among[0], key=lambda stops: abs(np.log(stops / max(moved, 1e-6)))), among[1][len(among[1]) // 2]
    )[0]
    found = ToneChange(weights=np.zeros((3, _SIZE)), covariance=prior, prior=prior, noise=_NOISE[1], importance=steady)
    for turn in range(_ROUNDS):
        gram, target = _normal(features, change, found.importance)
        variance = _variance(found, found.importance)
        prior = _likeliest(gram, target, variance, among) if turn == _CHOOSING else found.prior
        weights, covariance = _solve(gram, target, prior, variance)
        found = replace(found, weights=weights, covariance=covariance, prior=prior)
        error = errors(found, features, change)
        scale = float(np.clip(1.23 * np.median(error), 0.5, 2.0))
        importance = steady * (1 + (error / (2 * scale)) ** 2) ** -1.5
        spread = float(np.sqrt((importance * error**2).sum() / importance.sum())) / 100
        found = replace(found, noise=float(np.clip(spread, _NOISE[0], _NOISE[2])), importance=importance)
    return found


def errors(found: ToneChange, features: Doubles, change: Doubles) -> Doubles:
    """By how much each witness differs from what was learnt, in L* of its channels."""
    return 100 * np.sqrt(((change - found.change(features)) ** 2).mean(axis=0))


def _variance(found: ToneChange, importance: Doubles) -> float:
    return found.noise**2 * max(1.0, float(importance.sum()) / _INDEPENDENT)


def _moves(tones: Doubles) -> Doubles:
    """By how much a stop of light moves each tone, by channel and spot."""
    return (tones.T + _OFFSET) * _STOP


def _between(values: Doubles, knots: int) -> tuple[NDArray[np.int64], Doubles]:
    """The knot below each value, and how far it is on the way to the next."""
    steps = np.clip(values * (knots - 1), 0, knots - 1 - 1e-6)
    lower = steps.astype(np.int64)
    return lower, steps - lower


def _bilinear(place: Doubles) -> Doubles:
    across, right = _between(place[:, 0], _GRID)
    down, below = _between(place[:, 1], _GRID)
    field = np.zeros((len(place), _GRID**2))
    rows = np.arange(len(place))
    for step_down, tall in ((0, 1 - below), (1, below)):
        for step_across, wide in ((0, 1 - right), (1, right)):
            field[rows, (down + step_down) * _GRID + across + step_across] = tall * wide
    return field


def _normal(features: Doubles, change: Doubles, importance: Doubles) -> tuple[Doubles, Doubles]:
    """The weighted normal equations of all channels."""
    gram, target = np.zeros((3, _SIZE, _SIZE)), np.zeros((3, _SIZE))
    for start in range(0, len(importance), _BLOCK):
        some = slice(start, start + _BLOCK)
        for channel in range(3):
            rows = features[channel, some]
            weighted = (rows * importance[some, None]).T
            gram[channel] += weighted @ rows
            target[channel] += weighted @ change[channel, some]
    return gram, target


def _solve(gram: Doubles, target: Doubles, prior: Doubles, variance: float) -> tuple[Doubles, Doubles]:
    covariance: Doubles = np.linalg.inv(gram / variance + prior).astype(np.float64)
    return (covariance @ (target / variance)[:, :, None])[:, :, 0], covariance


def _likeliest(gram: Doubles, target: Doubles, variance: float, among: tuple[tuple[float, ...], ...]) -> Doubles:
    """The prior under which the witnesses are likeliest."""
    priors, sizes = _priors(*among)
    precision = gram / variance + priors[:, None]
    scaled = target / variance
    explained = np.linalg.solve(precision, np.broadcast_to(scaled[:, :, None], (len(priors), 3, _SIZE, 1)))[..., 0]
    roots = np.linalg.cholesky(precision)
    spread = 2 * np.log(np.diagonal(roots, axis1=-2, axis2=-1)).sum(axis=(1, 2))
    evidence = 0.5 * (explained * scaled).sum(axis=(1, 2)) - 0.5 * spread - 1.5 * sizes
    return priors[int(np.argmax(evidence))]


@cache
def _priors(changes: tuple[float, ...], fields: tuple[float, ...]) -> tuple[Doubles, Doubles]:
    """All priors among which the witnesses choose, and the log determinants of their covariances."""
    found = [_prior(stops, field) for stops in changes for field in fields]
    return np.stack([prior for prior, _ in found]), np.array([size for _, size in found])


@cache
def _prior(stops: float, field: float) -> tuple[Doubles, float]:
    """The precision of the weights before anything was seen, and the log determinant of its inverse."""
    knots = np.linspace(0, 1, _KNOTS)
    apart = np.abs(knots[:, None] - knots)
    alike = _alike(apart, _CURVE_REACH) + _KINK * _alike(apart, _KINK_REACH)
    moves = (knots + _OFFSET) * _STOP
    covariance = np.zeros((_SIZE, _SIZE))
    covariance[:_KNOTS, :_KNOTS] = stops**2 * (alike * moves[:, None] * moves + 1e-8 * np.eye(_KNOTS))
    covariance[_CROSS, _CROSS] = (_CROSSTALK * stops) ** 2 * np.eye(2)
    down, across = np.divmod(np.arange(_GRID**2), _GRID)
    apart = np.hypot(down[:, None] - down, across[:, None] - across) / (_GRID - 1)
    covariance[_FIELD, _FIELD] = field**2 * (_alike(apart, _FIELD_REACH) + 1e-3 * np.eye(_GRID**2))
    precision: Doubles = np.linalg.inv(covariance).astype(np.float64)
    return precision, float(np.linalg.slogdet(covariance)[1])


def _alike(apart: Doubles, reach: float) -> Doubles:
    return np.exp(-0.5 * (apart / reach) ** 2)
