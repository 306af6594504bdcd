"""Raters among themselves, judges against people, and rates that people correct."""

from __future__ import annotations

import math
from dataclasses import replace

import krippendorff
import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from scipy import stats

from stillme.core.errors import StillmeError
from stillme.core.types import NotEstimable
from stillme.estimates import EditState, RatingState, Scores, Settings
from stillme.estimates.agreement import (
    Level,
    Weights,
    agreement,
    alpha_measure,
    cohen_measure,
    fleiss_measure,
    without_noise,
)
from stillme.estimates.people import Corrected, against_people, corrected, disagreement, draw_unequally, mean_of

from .worlds import ordinal, people, rows

quick = Settings(factors=())
LEVELS = ("nominal", "ordinal", "interval")


def fleiss(table: np.ndarray) -> float:
    return fleiss_measure(without_noise(table)).value


def alpha(table: np.ndarray, level: Level = "interval") -> float:
    return alpha_measure(without_noise(table), level).value


def cohen(one: np.ndarray, other: np.ndarray, weights: Weights = "none") -> float:
    return cohen_measure(without_noise(np.stack([one, other], axis=1).astype(float)), weights).value


def tables(missing: bool) -> st.SearchStrategy[np.ndarray]:
    answer = st.integers(1, 5).map(float)
    cell = st.one_of(st.just(float("nan")), answer) if missing else answer
    return st.integers(2, 4).flatmap(
        lambda raters: st.lists(st.lists(cell, min_size=raters, max_size=raters), min_size=2, max_size=20).map(np.array)
    )


@given(tables(missing=True))
def test_alpha_equals_krippendorff_with_ties_and_missing_ratings(table: np.ndarray) -> None:
    pairable = table[(~np.isnan(table)).sum(axis=1) > 1]
    seen = pairable[~np.isnan(pairable)]
    if not len(seen) or np.ptp(seen) == 0:
        assert all(np.isnan(alpha(table, level)) for level in LEVELS)
        return
    for level in LEVELS:
        assert alpha(table, level) == pytest.approx(krippendorff.alpha(table.T, level_of_measurement=level), abs=1e-9)


def test_alpha_equals_krippendorff_on_many_distinct_values() -> None:
    stream = np.random.default_rng(0)
    table = stream.normal(0, 1, (80, 1)) + stream.normal(0, 1, (80, 3))
    table[stream.random(table.shape) < 0.2] = np.nan
    table = np.round(table, 9)
    for level in LEVELS:
        assert alpha(table, level) == pytest.approx(krippendorff.alpha(table.T, level_of_measurement=level))


def test_alpha_of_ten_thousand_continuous_items_needs_no_table_of_values() -> None:
    stream = np.random.default_rng(1)
    table = stream.normal(0, 1, (10_000, 1)) + stream.normal(0, 1, (10_000, 3))
    assert alpha(table, "interval") == pytest.approx(0.5, abs=0.03)
    assert alpha(table, "ordinal") == pytest.approx(0.5, abs=0.05)


@given(tables(missing=False))
def test_fleiss_kappa_equals_statsmodels(table: np.ndarray) -> None:
    from statsmodels.stats.inter_rater import aggregate_raters, fleiss_kappa

    if np.ptp(table) == 0:
        assert np.isnan(fleiss(table))
        return
    counts, _ = aggregate_raters(table.astype(int))
    assert fleiss(table) == pytest.approx(fleiss_kappa(counts), abs=1e-9)


@given(st.lists(st.tuples(st.integers(1, 5), st.integers(1, 5)), min_size=2, max_size=30))
def test_weighted_cohen_kappa_equals_statsmodels(answers: list[tuple[int, int]]) -> None:
    from statsmodels.stats.inter_rater import cohens_kappa

    one, other = np.array(answers).T
    assume(np.ptp(one) > 0 or np.ptp(other) > 0)
    table = np.zeros((5, 5))
    np.add.at(table, (one - 1, other - 1), 1)
    for ours, theirs in (("none", None), ("linear", "linear"), ("quadratic", "quadratic")):
        # Its z-value may be 0 / 0; only kappa is compared.
        with np.errstate(divide="ignore", invalid="ignore"):
            expected = cohens_kappa(table, wt=theirs).kappa
        assert cohen(one, other, ours) == pytest.approx(expected, abs=1e-9)


def raters(seed: int, count: int = 3, *, seen: float = 1.0, noise: float = 0.7, portraits: int = 24):
    """People who see the same edits with their own noise, each only some."""
    stream = np.random.default_rng(seed)
    latent = 1.0 + stream.normal(0, 0.6, (portraits, 1)) + stream.normal(0, 0.8, (portraits, 6))
    edits, _ = rows(people("AB", portraits // 2), ordinal(latent))
    judges = []
    for number in range(count):
        value = ordinal(latent + stream.normal(0, noise, latent.shape)).ravel()
        given = stream.random(value.size) < seen
        judges.append(
            Scores(
                judge=f"rater {number}",
                axis="race_change",
                value=np.where(given, value, np.nan),
                state=np.where(given, RatingState.RATED, RatingState.MISSING).astype(np.int32),
            )
        )
    return edits, judges


def test_agreement_gives_every_measure_with_an_interval_that_holds_it() -> None:
    edits, judges = raters(0, seen=0.8)
    agreements = {measured.measure: measured for measured in agreement(edits, judges, quick)}
    table = np.stack([scores.value for scores in judges], axis=1)
    assert agreements["alpha_ordinal"].outcome.value == pytest.approx(alpha(table, "ordinal"))
    assert agreements["fleiss_kappa"].outcome.value == pytest.approx(fleiss(table))
    usable = (~np.isnan(table)).sum(axis=1) > 1
    assert agreements["exact"].items == usable.sum()
    assert agreements["exact"].ratings == np.count_nonzero(~np.isnan(table[usable]))
    assert set(agreements) == {"fleiss_kappa", *(f"alpha_{level}" for level in LEVELS), "exact", "within_one"}
    assert {measured.raters for measured in agreements.values()} == {3}
    assert agreements["fleiss_kappa"].outcome.method == "jackknife over portraits, Student's t"
    for measured in agreements.values():
        assert measured.outcome.low < measured.outcome.value < measured.outcome.high
        assert "portraits" in measured.outcome.method
    assert agreements["exact"].outcome.value < agreements["within_one"].outcome.value


def test_two_raters_have_cohens_kappa_unless_they_are_people_and_groups_have_their_own() -> None:
    edits, judges = raters(1, 2)
    assert not any("kappa_" in found.measure[:6] for found in agreement(edits, judges, quick, among="people"))
    agreements = agreement(edits, judges, replace(quick, factors=("race",)))
    (quadratic,) = [
        measured for measured in agreements if measured.measure == "kappa_quadratic" and not measured.factor
    ]
    assert quadratic.outcome.value == pytest.approx(cohen(judges[0].value, judges[1].value, "quadratic"))
    (a,) = [measured for measured in agreements if measured.measure == "exact" and measured.group == "A"]
    assert a.outcome.value == pytest.approx((judges[0].value == judges[1].value)[:72].mean())
    assert (a.portraits, a.items) == (12, 72)


def test_raters_who_always_say_the_same_have_nothing_to_agree_on() -> None:
    edits, judges = raters(2, 2)
    same = [replace(scores, value=np.ones_like(scores.value)) for scores in judges]
    outcomes = {measured.measure: measured.outcome for measured in agreement(edits, same, quick)}
    assert isinstance(outcomes["alpha_interval"], NotEstimable)
    assert outcomes["exact"].value == 1.0


def test_one_rater_agrees_with_nobody_and_unedited_rows_do_not_count() -> None:
    edits, judges = raters(3, 2)
    assert agreement(edits, judges[:1], quick) == []
    refused = replace(edits, state=np.full(len(edits), EditState.REFUSED, dtype=np.int32))
    assert all(isinstance(measured.outcome, NotEstimable) for measured in agreement(refused, judges, quick))


def test_coverage_of_alpha_is_near_nominal_over_portraits() -> None:
    _, large = raters(99, 2, portraits=20_000)
    truth = alpha(np.stack([scores.value for scores in large], axis=1))
    covered = 0
    for seed in range(60):
        edits, judges = raters(seed, 3, portraits=60)
        (interval_alpha,) = [
            measured for measured in agreement(edits, judges, quick) if measured.measure == "alpha_interval"
        ]
        covered += interval_alpha.outcome.low <= truth <= interval_alpha.outcome.high
    assert covered / 60 > 0.84


def test_a_judges_bias_and_its_difference_between_groups_are_found() -> None:
    stream = np.random.default_rng(4)
    truth = stream.normal(3, 0.7, (40, 1)) + stream.normal(0, 0.5, (40, 8))
    edits, human = rows(people("AB", 20), truth, axis="skin_delta_l")
    bias = np.where(np.arange(40) < 20, 1.0, 0.2)[:, None]
    _, judge = rows(people("AB", 20), truth + bias + stream.normal(0, 0.3, (40, 8)), axis="skin_delta_l")
    against = {
        (measured.measure, measured.group): measured
        for measured in against_people(edits, judge, human, replace(quick, factors=("race",)))
    }
    off = judge.value - human.value
    assert against["bias", ""].outcome.value == pytest.approx(off.mean())
    assert against["mae", ""].outcome.value == pytest.approx(np.abs(off).mean())
    assert against["within_one", "B"].outcome.value == pytest.approx((np.abs(off[160:]) <= 1).mean())
    assert against["bias", "A - rest"].outcome.low > 0.6
    assert against["pearson", ""].outcome.value == pytest.approx(np.corrcoef(judge.value, human.value)[0, 1])
    assert against["spearman", "A"].outcome.value == pytest.approx(
        stats.spearmanr(judge.value[:160], human.value[:160]).statistic
    )
    with pytest.raises(StillmeError, match="of one axis"):
        against_people(edits, judge, replace(human, axis="skin_tone"), quick)


def test_the_mean_of_people_leaves_out_who_did_not_rate() -> None:
    _, judges = raters(5, 3, seen=0.5)
    table = np.stack([scores.value for scores in judges])
    mean = mean_of(judges)
    rated = ~np.isnan(table).all(axis=0)
    assert (mean.state == np.where(rated, RatingState.RATED, RatingState.MISSING)).all()
    assert mean.value[rated] == pytest.approx(np.nanmean(table[:, rated], axis=0))


def ppi_world(seed: int, *, noise: float = 0.7, shift: float = 0.8, labelled: float = 0.2):
    stream = np.random.default_rng(seed)
    latent = 1.0 + stream.normal(0, 0.6, (48, 1)) + stream.normal(0, 0.8, (48, 20))
    edits, truth = rows(people("AB", 24), ordinal(latent))
    value = ordinal(latent + shift + stream.normal(0, noise, latent.shape)).ravel()
    seen = stream.random(value.size) < labelled
    state = np.where(seen, RatingState.RATED, RatingState.MISSING).astype(np.int32)
    human = Scores(judge="people", axis="race_change", value=np.where(seen, truth.value, np.nan), state=state)
    return edits, replace(truth, judge="model", value=value), human, truth.value


def test_a_biased_judge_is_corrected_and_surer_than_people_alone() -> None:
    edits, judge, human, truth = ppi_world(0, noise=0.3)
    estimates = {
        (estimate.quantity, estimate.group): estimate
        for estimate in corrected(edits, judge, human, replace(quick, factors=("race",)))
    }
    mean = estimates["race_change", ""]
    assert mean.judged > truth.mean() + 0.5
    assert mean.outcome.low < truth.mean() < mean.outcome.high
    assert mean.outcome.high - mean.outcome.low < mean.people.high - mean.people.low
    assert mean.rated_by_people == np.count_nonzero(human.state == RatingState.RATED)
    assert 0 < mean.weight <= 1
    rate = estimates["race_changed", "A"]
    assert rate.outcome.low < (truth[:480] >= 3).mean() < rate.outcome.high
    gap = estimates["race_changed", "A - rest"]
    assert gap.outcome.value == pytest.approx(
        estimates["race_changed", "A"].outcome.value - estimates["race_changed", "B"].outcome.value
    )


def test_a_judge_who_guesses_counts_nothing() -> None:
    edits, judge, human, _ = ppi_world(1)
    noise = np.random.default_rng(0).integers(1, 6, len(judge.value)).astype(float)
    (mean,) = corrected(edits, replace(judge, value=noise), human, quick, quantities=("race_change",))
    assert mean.weight < 0.2
    assert mean.outcome.value == pytest.approx(mean.people.value, abs=0.05)


def test_coverage_of_the_corrected_mean_is_near_nominal() -> None:
    spread = np.hypot(0.6, 0.8)
    chances = np.diff([0, *stats.norm.cdf([0, 0.7, 1.4, 2.1], 1.0, spread), 1])
    truth = float(chances @ np.arange(1, 6))
    covered = 0
    for seed in range(80):
        edits, judge, human, _ = ppi_world(seed)
        (mean,) = corrected(edits, judge, human, quick, quantities=("race_change",))
        covered += mean.outcome.low <= truth <= mean.outcome.high
    assert covered / 80 > 0.87


def disputed_world(seed: int, count: int):
    """Two judges, one too high where they disagree, and people on `count` edits that were drawn with chances."""
    stream = np.random.default_rng(seed)
    edits, (truth,) = raters(seed, 1, portraits=24)
    hard = stream.random(len(edits)) < 0.25
    shift = np.where(hard, 1.5, 0.0)
    one = replace(truth, judge="one", value=truth.value + shift)
    two = replace(truth, judge="two", value=truth.value - shift)
    chosen = draw_unequally(disagreement([one.value, two.value]), np.zeros(len(edits), dtype=np.intp), count, stream)
    seen = np.zeros(len(edits), dtype=bool)
    seen[chosen.rows] = True
    state = np.where(seen, RatingState.RATED, RatingState.MISSING).astype(np.int32)
    people = replace(truth, judge="people", value=np.where(seen, truth.value, np.nan), state=state)
    return edits, one, people, chosen, float(truth.value.mean())


def everyone(found: list[Corrected]) -> float:
    (value,) = [one.outcome.value for one in found if one.scope == "all" and one.quantity == "race_change"]
    return value


def test_edits_drawn_by_disagreement_give_unbiased_means_only_with_their_chances() -> None:
    weighed, plain = [], []
    for seed in range(60):
        edits, judge, people, chosen, truth = disputed_world(seed, 80)
        settings = Settings(factors=())
        weighed.append(everyone(corrected(edits, judge, people, settings, chances=chosen.chances)) - truth)
        plain.append(everyone(corrected(edits, judge, people, settings)) - truth)
    error = np.std(weighed) / math.sqrt(len(weighed))
    assert abs(np.mean(weighed)) < 3.5 * error + 1e-6
    assert abs(np.mean(plain)) > 5 * abs(np.mean(weighed))


def test_chances_are_those_of_the_draw() -> None:
    stream = np.random.default_rng(1)
    apart = np.array([0.0, 0.0, 1.0, 2.0, np.nan, 0.5, 0.0, 2.0, 1.0, np.nan])
    strata = np.array([0, 0, 0, 0, 0, 1, 1, 1, 1, 1], dtype=np.intp)
    draws = [draw_unequally(apart, strata, 4, stream) for _ in range(4000)]
    chances = draws[0].chances
    assert all(len(draw.rows) == 4 for draw in draws)
    assert math.isclose(chances.sum(), 4)
    assert np.allclose([chances[strata == stratum].sum() for stratum in (0, 1)], 2)
    share = np.bincount(np.concatenate([draw.rows for draw in draws]), minlength=10) / len(draws)
    assert np.abs(share - chances).max() < 0.04
    assert chances.min() > 0, "an edit that cannot be drawn is one that the estimate is not about"
    everything = draw_unequally(apart, strata, 10, stream)
    assert everything.rows.tolist() == list(range(10))
    assert np.allclose(everything.chances, 1)


def test_a_rating_whose_chance_is_not_known_does_not_count() -> None:
    edits, judge, people, chosen, _ = disputed_world(3, 80)
    settings = Settings(factors=())
    unknown = chosen.chances.copy()
    unknown[chosen.rows[:20]] = 0.0
    fewer = replace(people, value=people.value.copy())
    fewer.value[chosen.rows[:20]] = np.nan
    without = corrected(edits, judge, people, settings, chances=unknown)
    assert without == corrected(edits, judge, fewer, settings, chances=chosen.chances)
    alike = corrected(edits, judge, people, settings, chances=np.full(len(edits), 0.3))
    assert math.isclose(everyone(alike), everyone(corrected(edits, judge, people, settings)), abs_tol=1e-9)
