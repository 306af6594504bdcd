"""The mixed ordinal model."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from scipy import integrate, stats

from stillme.estimates import Settings
from stillme.estimates.mixed import fit_model, log_likelihood, odds_ratios
from stillme.types import Interval, NotEstimable

from .worlds import people, rows, shuffled

race = Settings(factors=("race",))
CUTS = np.array([-0.5, 0.5, 1.5, 2.5])


def drawn(seed: int, *, portraits: int = 36, edits: int = 20, effect: float = 0.0, spread: float = 0.8) -> np.ndarray:
    """Scores of portraits in three groups; the first has its odds of higher scores raised."""
    stream = np.random.default_rng(seed)
    place = stream.normal(0, spread, (portraits, 1)) + effect * (np.arange(portraits) < portraits // 3)[:, None]
    latent = place + stream.logistic(0, 1, (portraits, edits))
    return 1.0 + np.searchsorted(CUTS, latent)


def test_the_likelihood_is_the_integral() -> None:
    counts = np.array([[3.0, 1, 0, 2, 0], [0, 0, 0, 0, 60], [40, 3, 2, 1, 0]])
    shift, spread = np.array([0.3, 0.0, -0.2]), 1.3

    def exact(place: int) -> float:
        def density(luck: float) -> float:
            below = 1 / (1 + np.exp(-(CUTS - shift[place] - spread * luck)))
            return float(np.prod(np.diff([0, *below, 1]) ** counts[place])) * stats.norm.pdf(luck)

        return math.log(integrate.quad(density, -9, 9, points=(-2, 0, 2, 4), limit=400)[0])

    assert log_likelihood(counts, CUTS, shift, spread) == pytest.approx(sum(map(exact, range(3))), abs=1e-3)


def test_where_portraits_do_not_differ_it_is_the_plain_ordinal_model() -> None:
    import pandas
    from statsmodels.miscmodels.ordinal_model import OrderedModel

    values = drawn(0, portraits=60, spread=0.0, effect=0.7)
    level = np.repeat([0, 1, 2], 20)
    counts = np.stack([(values == score).sum(axis=1) for score in range(1, 6)], axis=1).astype(float)
    fit = fit_model(counts, level, 3, 2)
    flat = pandas.DataFrame({"a": np.repeat(level == 0, 20), "b": np.repeat(level == 1, 20)}).astype(float)
    plain = OrderedModel(values.ravel(), flat, distr="logit").fit(method="bfgs", disp=False)
    assert fit.effects[:2] == pytest.approx(plain.params[:2], abs=0.06)
    assert fit.log_likelihood >= plain.llf - 0.01


def test_a_planted_odds_ratio_and_spread_are_recovered_and_covered() -> None:
    held, off, spreads, audits = 0, [], [], 16
    for seed in range(audits):
        # The portraits that were drawn already differ between the groups: that, too, is the truth of this audit.
        luck = np.random.default_rng(seed).normal(0, 0.8, (36, 1))
        realised = 0.8 + luck[:12].mean() - luck[24:].mean()
        edits, scores = rows(people("ABC", 12), drawn(seed, effect=0.8))
        found = odds_ratios(edits, [scores], replace(race, reference={"race": "C"}))
        (a,) = [each for each in found if each.level == "A"]
        assert isinstance(a.outcome, Interval)
        held += a.outcome.low <= math.exp(0.8) <= a.outcome.high
        off.append(math.log(a.outcome.value) - realised)
        spreads.append(a.spread)
    assert held >= 13
    # One audit misses by 0.18 or so, the mean of sixteen by 0.045.
    assert np.mean(off) == pytest.approx(0.0, abs=0.14)
    assert np.mean(spreads) == pytest.approx(0.8, abs=0.12)


def test_the_model_does_not_depend_on_the_order_of_rows() -> None:
    edits, scores = rows(people("ABC", 12), drawn(3))
    assert odds_ratios(*shuffled(edits, [scores], 1), race) == odds_ratios(edits, [scores], race)


def test_what_the_model_cannot_fit_has_a_reason() -> None:
    for values, reason in (
        (np.ones((24, 3)), "the same score"),
        (drawn(1, portraits=24, edits=1), "one edit a portrait"),
        (np.repeat([1.0, 5.0], 12)[:, None] * np.ones(4), "did not settle"),
        (np.random.default_rng(0).uniform(1, 5, (24, 3)), "too many"),
    ):
        edits, scores = rows(people("AB", 12), values)
        (found,) = odds_ratios(edits, [scores], race)
        assert isinstance(found.outcome, NotEstimable)
        assert reason in found.outcome.reason
