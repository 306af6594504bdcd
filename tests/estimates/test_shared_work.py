"""Short ways give the numbers of the long ones."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from stillme.estimates import EditState, Settings, bootstrap, permuting
from stillme.estimates.bootstrap import draws
from stillme.estimates.compared import Collapsed, Compared
from stillme.estimates.design import by_factor
from stillme.estimates.permuting import level_sums, permutations
from stillme.estimates.quantities import Columns

from .worlds import ordinal, people, rows

pytestmark = pytest.mark.numeric

SETTINGS = Settings(factors=("race",), replicates=100)


def world(*, gaps: bool = False, blocks: bool = False) -> tuple[Columns, Collapsed]:
    """Every quantity of three groups of nine."""
    stream = np.random.default_rng(1)
    values = ordinal(stream.normal(0.8, 0.7, (27, 1)) + stream.normal(0, 1, (27, 6)))
    if gaps:
        values[4, :2] = np.nan
    edits, scores = rows(people("ABC", 9, blocks=blocks), values)
    columns = Columns.of(edits)
    judged = [quantity for quantity in columns.quantities([scores]) if quantity.judge]
    return columns, Collapsed.of(judged)


@pytest.mark.parametrize("blocks", [False, True])
def test_what_has_no_gaps_is_resampled_from_fewer_sums_to_the_same_numbers(blocks: bool) -> None:
    columns, collapsed = world(blocks=blocks)
    plan = by_factor(columns, "race", SETTINGS)
    (counts,) = draws(plan, SETTINGS)
    everything = np.arange(len(collapsed.quantities))
    for comparison in plan.comparisons:
        compared = Compared.of(plan, collapsed, comparison)
        assert compared.linear.all()
        short, long = compared.as_linear(everything).under(counts), compared.under(counts)
        np.testing.assert_allclose(short, long, rtol=1e-9, atol=1e-12)


def test_what_has_gaps_or_is_a_ratio_is_not_linear() -> None:
    columns, collapsed = world(gaps=True)
    plan = by_factor(columns, "race", SETTINGS)
    incomplete = [bool(comparison.everyone[4]) for comparison in plan.comparisons]
    linear = [Compared.of(plan, collapsed, comparison).linear.all() for comparison in plan.comparisons]
    assert linear == [not gap for gap in incomplete]
    ratio = replace(plan.comparisons[-1], scale="log ratio")
    assert not Compared.of(plan, world()[1], ratio).linear.any()


def test_kept_resamples_and_permutations_are_those_that_would_be_drawn(monkeypatch: pytest.MonkeyPatch) -> None:
    plan = by_factor(world()[0], "race", SETTINGS)
    assert plan.permutation
    kept = [part for chunk in draws(plan, SETTINGS) for part in chunk], list(permutations(plan.permutation, SETTINGS))
    monkeypatch.setattr(bootstrap, "_KEPT_COUNTS", 0)
    monkeypatch.setattr(permuting, "_KEPT_LABELS", 0)
    drawn = [part for chunk in draws(plan, SETTINGS) for part in chunk], list(permutations(plan.permutation, SETTINGS))
    for one, other in zip(kept, drawn, strict=True):
        np.testing.assert_array_equal(np.concatenate(one), np.concatenate(other))
    another = replace(SETTINGS, seed=1)
    assert not np.array_equal(np.concatenate(next(draws(plan, another))), np.concatenate(next(draws(plan, SETTINGS))))


def test_the_last_level_has_what_the_others_leave() -> None:
    stream = np.random.default_rng(2)
    labels, moments = stream.integers(0, 3, (50, 12)), stream.normal(size=(12, 2, 4))
    expected = [np.einsum("pu,ukq->pkq", labels == level, moments) for level in range(3)]
    np.testing.assert_allclose(level_sums(labels, 3, moments), expected, atol=1e-12)


def test_portraits_edits_and_what_is_left_out_are_counted_for_each_set() -> None:
    edits, scores = rows(people("AB", 3), np.full((6, 4), 2.0))
    state = np.full(len(edits), EditState.EDITED, dtype=np.int32)
    state[edits.portrait == 0] = EditState.REFUSED
    state[5] = EditState.FAILED
    columns = Columns.of(replace(edits, state=state))
    quantity = next(quantity for quantity in columns.quantities([scores]) if quantity.name == "race_change")
    first, everyone = np.arange(6) < 3, np.ones(6, dtype=np.bool_)
    assert quantity.within([first, everyone]) == [
        {"portraits": 2, "edits": 7, "excluded": {"refused": 4, "edit failed": 1}},
        {"portraits": 5, "edits": 19, "excluded": {"refused": 4, "edit failed": 1}},
    ]
    assert quantity.within([]) == []
