"""Mitigation: the same edits under two arms."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

from stillme.core.errors import UnknownName
from stillme.core.types import NotEstimable
from stillme.estimates import Disparity, PairedEffect, Settings, above_floor, paired_effects, paired_row_tests

from .worlds import known, ordinal, people, rows

pytestmark = pytest.mark.numeric

quick = Settings(factors=("race",))
ARMS = ("baseline", "feature")


def effect(effects: list[PairedEffect | Disparity], group: str = "", quantity: str = "race_change") -> PairedEffect:
    (match,) = [e for e in effects if isinstance(e, PairedEffect) and (e.group, e.quantity) == (group, quantity)]
    return match


def latent(seed: int, *shape: int, portrait: float = 0.7) -> np.ndarray:
    stream = np.random.default_rng(seed)
    return 0.8 + stream.normal(0, portrait, (shape[0], 1, 1, 1)) + stream.normal(0, 1, shape)


def test_the_effect_is_the_mean_difference_over_pairs() -> None:
    values = ordinal(latent(0, 24, 5, 2, 1))
    values[0, 0, 1] = values[1, 2, 0] = values[2, 3] = np.nan
    edits, scores = rows(people("AB", 12), values, arms=ARMS)
    effects = paired_effects(edits, [scores], quick)
    change = values[:, :, 1, 0] - values[:, :, 0, 0]
    everyone = effect(effects)
    assert everyone.arm == "feature - baseline"
    assert known(everyone.outcome).value == pytest.approx(np.nanmean(change))
    assert everyone.edits == np.count_nonzero(~np.isnan(change)) == 117
    assert everyone.excluded == {"not paired": 2}
    paired = ~np.isnan(change)
    assert everyone.before == pytest.approx(values[:, :, 0, 0][paired].mean())
    assert everyone.after == pytest.approx(values[:, :, 1, 0][paired].mean())
    gap = effect(effects, "A - rest")
    assert known(gap.outcome).value == pytest.approx(np.nanmean(change[:12]) - np.nanmean(change[12:]))


def test_pairs_share_the_seed() -> None:
    values = np.zeros((24, 2, 2, 2))
    values[..., 0, 1] = 10.0
    values[..., 1, 1] = 12.0
    values[..., 1, 0] = 1.0
    values[..., 1, :] += np.linspace(-1, 1, 24)[:, None, None]
    edits, scores = rows(people("AB", 12), values, arms=ARMS, axis="skin_delta_l")
    change = known(effect(paired_effects(edits, [scores], quick), quantity="skin_delta_l").outcome)
    assert change.value == pytest.approx(1.5)
    kept = (edits.arm == 0) | (edits.seed == 1)
    effects = paired_effects(edits.where(kept), [scores.where(kept)], quick)
    assert known(effect(effects, quantity="skin_delta_l").outcome).value == pytest.approx(2.0)


def test_an_equal_effect_is_found_for_all_and_more_for_nobody() -> None:
    values = ordinal(latent(1, 48, 20, 2, 1) - np.array([0.0, 0.6])[None, None, :, None])
    effects = paired_effects(*_with(values, "ABCD"), quick)
    everyone = effect(effects)
    assert known(everyone.outcome).high < 0
    assert everyone.p < 0.01
    (gap,) = [row for row in effects if isinstance(row, Disparity) and row.quantity == "race_change"]
    assert gap.null.omnibus > 0.05


def test_a_planted_asymmetry_is_found_and_whom_it_helps() -> None:
    values = latent(2, 48, 20, 2, 1)
    values[:12, :, 1] -= 1.2
    effects = paired_effects(*_with(ordinal(values), "ABCD"), quick)
    contrast = effect(effects, "A - rest")
    assert known(contrast.outcome).high < -0.15
    assert contrast.p < 0.01
    assert known(contrast.at_equal_baseline).high < 0
    (gap,) = [row for row in effects if isinstance(row, Disparity) and row.quantity == "race_change"]
    assert gap.lowest == "A"
    assert gap.null.omnibus < 0.01


def test_who_starts_higher_gains_more_but_not_at_an_equal_baseline() -> None:
    # The arm takes half of whatever drift there is; group A simply drifts more.
    stream = np.random.default_rng(3)
    drift = np.abs(stream.normal(2.0, 0.8, (48, 1)))
    drift[:12] += 1.5
    values = np.stack([drift, drift / 2], axis=2)[..., None] + stream.normal(0, 0.3, (48, 20, 2, 1))
    edits, scores = rows(people("ABCD", 12), values, arms=ARMS, axis="skin_delta_l")
    contrast = effect(paired_effects(edits, [scores], quick), "A - rest", "skin_delta_l")
    assert known(contrast.outcome).high < -0.15
    levelled = known(contrast.at_equal_baseline)
    assert levelled.low < 0 < levelled.high


def test_regression_to_the_mean_is_not_sold_as_an_effect() -> None:
    sold, seen = 0, 0
    for seed in range(20):
        values = ordinal(latent(seed, 48, 20, 2, 2))
        values[:, :, 1, 1] = np.nan
        chosen = values[:, :, :1, :1] >= 3
        picked = np.where(np.broadcast_to(chosen, values.shape), values, np.nan)
        edits, scores = rows(people("ABCD", 12), picked, arms=ARMS)
        repeated = effect(paired_effects(edits, [scores], replace(quick, factors=())))
        # Nothing was done, yet the arm "improves" what was picked for being bad, and so does doing it again.
        assert known(repeated.outcome).high < -0.3
        assert known(repeated.untreated).high < -0.3
        beyond = known(repeated.beyond_untreated)
        seen += 1
        sold += not beyond.low <= 0 <= beyond.high
    assert sold <= 4 < seen


def test_without_a_spare_run_there_is_no_untreated_change() -> None:
    edits, scores = rows(people("AB", 12), ordinal(latent(4, 24, 4, 2, 2)), arms=ARMS)
    everyone = effect(paired_effects(edits, [scores], quick))
    assert isinstance(everyone.untreated, NotEstimable)
    assert "re-run" in everyone.beyond_untreated.reason


def test_the_sign_flip_test_holds_its_level_where_rows_do_not() -> None:
    audits, ours, naive = 60, 0, 0
    for seed in range(audits):
        stream = np.random.default_rng(seed)
        # The arm moves each portrait its own way, on average nowhere.
        values = stream.normal(0, 1, (24, 20, 2, 1))
        values[:, :, 1] += stream.normal(0, 0.6, (24, 1, 1))
        edits, scores = rows(people("AB", 12), values, arms=ARMS, axis="skin_delta_l")
        settings = Settings(factors=())
        change = effect(paired_effects(edits, [scores], settings), quantity="skin_delta_l")
        ours += change.p <= 0.05
        (test,) = paired_row_tests(edits, [scores])
        assert test.naive
        naive += test.p <= 0.05
    assert ours / audits < 0.14
    assert naive / audits > 0.2


def test_a_rate_that_never_changed_may_still() -> None:
    edits, scores = rows(people("AB", 12), np.ones((24, 5, 2, 1)), arms=ARMS)
    change = known(effect(paired_effects(edits, [scores], quick), "A", "race_changed").outcome)
    assert change.value == 0
    assert change.low < -0.05 < 0.05 < change.high


def test_blocks_pair_the_groups() -> None:
    stream = np.random.default_rng(5)
    shared = np.tile(stream.normal(0, 3, 12), 2)[:, None]
    values = np.zeros((24, 5, 2, 1))
    values[:, :, 1, 0] = shared + stream.normal(0, 0.3, (24, 5))
    values[:12, :, 1] += 0.5
    settings = quick
    widths = []
    for blocks in (True, False):
        edits, scores = rows(people("AB", 12, blocks=blocks), values, arms=ARMS, axis="skin_delta_l")
        limits = known(effect(paired_effects(edits, [scores], settings), "A - rest", "skin_delta_l").outcome)
        widths.append(limits.high - limits.low)
    assert widths[0] < widths[1] / 4


def test_the_floor_is_subtracted_portrait_by_portrait() -> None:
    stream = np.random.default_rng(6)
    own = stream.normal(0, 5, (24, 1, 1, 1))
    values = own + stream.normal(0, 0.1, (24, 3, 2, 1))
    values[:, :, 0] += 1.0
    values[:12, :, 0] += 2.0
    values[23, :, 1] = np.nan
    edits, scores = rows(people("AB", 12), values, arms=("baseline", "noop"), axis="skin_delta_l")
    differences = {(row.scope, row.group): row for row in above_floor(edits, [scores], quick)}
    a, b = known(differences["group", "A"].outcome), known(differences["group", "B"].outcome)
    assert a.value == pytest.approx(3.0, abs=0.1)
    assert b.value == pytest.approx(1.0, abs=0.1)
    assert a.high - a.low < 0.5
    assert differences["group", "B"].excluded == {"not paired": 3}
    assert differences["all", ""].arm == "baseline - noop"
    without = edits.arm == 0
    assert above_floor(edits.where(without), [scores.where(without)], quick) == []


def test_prompts_may_be_a_sample_here_too() -> None:
    stream = np.random.default_rng(7)
    values = stream.normal(0, 0.3, (24, 12, 2, 1))
    values[:, :, 1] += stream.normal(0, 2, (1, 12, 1))
    edits, scores = rows(people("AB", 12), values, arms=ARMS, axis="skin_delta_l")
    fixed, sample = (
        known(effect(paired_effects(edits, [scores], replace(quick, prompts=prompts)), "A", "skin_delta_l").outcome)
        for prompts in ("fixed", "sample")
    )
    assert sample.high - sample.low > 3 * (fixed.high - fixed.low)


def test_wilcoxon_is_scipys_after_rounding() -> None:
    thirds = np.random.default_rng(9).integers(3, 16, (24, 5, 2, 1)) / 3
    noisy = thirds + np.random.default_rng(10).choice([-1e-13, 0, 1e-13], thirds.shape)
    edits, scores = rows(people("AB", 12), noisy, arms=ARMS, axis="edit_success")
    (test,) = paired_row_tests(edits, [scores])
    expected = stats.wilcoxon(np.round((thirds[:, :, 1] - thirds[:, :, 0]).ravel(), 6))
    assert (test.statistic, test.p) == (expected.statistic, expected.pvalue)


def test_an_unknown_arm_is_named() -> None:
    edits, scores = rows(people("AB", 12), np.ones((24, 2, 2, 1)), arms=ARMS)
    with pytest.raises(UnknownName, match="Did you mean 'feature'"):
        paired_effects(edits, [scores], quick, arm="features")


def _with(values: np.ndarray, levels: str):
    edits, scores = rows(people(levels, 12), values, arms=ARMS)
    return edits, [scores]
