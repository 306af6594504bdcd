"""What must not change an estimate does not, and what must does."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from stillme.core.types import Estimate, Interval
from stillme.estimates import (
    Edits,
    Scores,
    Settings,
    adherence,
    by_intersection,
    by_prompt,
    contrasts,
    estimate,
    gap_changes,
    intraclass_correlations,
    paired_effects,
)
from stillme.estimates.agreement import agreement
from stillme.estimates.people import against_people, corrected
from tests.estimates.test_agreement import raters
from tests.estimates.test_paired import latent
from tests.estimates.test_roles import roles
from tests.estimates.worlds import ordinal, people, rows, shuffled

pytestmark = pytest.mark.numeric

quick = Settings(factors=("race",))


def world(seed: int, *, blocks: bool = False) -> tuple[Edits, Scores]:
    stream = np.random.default_rng(seed)
    values = ordinal(stream.normal(0.8, 0.7, (30, 1)) + stream.normal(0, 1, (30, 6)))
    values[stream.random(values.shape) < 0.1] = np.nan
    return rows(people("ABC", 10, blocks=blocks), values)


def limits(estimates: list[Estimate], rename: Callable[[str], str] = str) -> dict[tuple[str, ...], tuple[float, ...]]:
    return {
        (row.quantity, row.scope, rename(row.group)): (row.outcome.value, row.outcome.low, row.outcome.high)
        for row in estimates
        if isinstance(row.outcome, Interval)
    }


@pytest.mark.parametrize("seed", range(3))
def test_renaming_groups_renames_results_and_nothing_else(seed: int) -> None:
    edits, scores = world(seed)
    names = {"A": "zz", "B": "yy", "C": "xx"}
    renamed = replace(
        edits,
        portraits=tuple(
            replace(portrait, attributes={**portrait.attributes, "race": names[portrait.attributes["race"]]})
            for portrait in edits.portraits
        ),
    )
    before = limits(estimate(edits, [scores], quick), lambda group: names.get(group[:1], "") + group[1:])
    after = limits(estimate(renamed, [scores], quick))
    groups = [key for key in before if key[1] in ("group", "all", "contrast")]
    assert groups
    for key in groups:
        assert before[key][0] == pytest.approx(after[key][0])
        assert before[key][1:] == pytest.approx(after[key][1:])


@pytest.mark.parametrize("seed", range(3))
def test_a_constant_moves_means_and_leaves_contrasts(seed: int) -> None:
    edits, scores = world(seed)
    moved = replace(scores, axis="skin_delta_l", value=scores.value + 10)
    plain = replace(scores, axis="skin_delta_l")
    before, after = (limits(estimate(edits, [part], quick)) for part in (plain, moved))
    for key, values in before.items():
        if key[0] != "skin_delta_l":
            continue
        shift = 10.0 if key[1] in ("all", "group") else 0.0
        assert after[key] == pytest.approx(tuple(value + shift for value in values), abs=1e-9)


def test_one_portrait_a_group_and_nothing_rated_have_reasons_and_no_numbers() -> None:
    values = np.array([[1.0, 2.0], [3.0, 4.0]])
    edits, scores = rows(people("AB", 1), values)
    for row in estimate(edits, [scores], quick):
        assert isinstance(row.outcome, Interval) == (row.scope == "all"), row
    edits, scores = rows(people("AB", 6), np.full((12, 2), np.nan))
    assert not any(isinstance(row.outcome, Interval) for row in estimate(edits, [scores], quick) if row.judge)


sample = replace(quick, prompts="sample")
ARMS = rows(people("AB", 9), ordinal(latent(8, 18, 3, 2, 2)), arms=("baseline", "feature"))


def with_measure(edits: Edits, scores: Scores) -> tuple[Edits, list[Scores]]:
    """And what no whole number is, so that sums depend on their order."""
    return edits, [replace(scores, axis="skin_delta_l", value=scores.value * np.pi), scores]


def numbers(edits: Edits, scores: list[Scores]) -> list[object]:
    return [
        *(estimate(edits, scores, settings) for settings in (quick, sample)),
        contrasts(edits, scores, quick, against=("rest", "pairs")),
        by_prompt(edits, scores, quick),
        by_intersection(edits, scores, quick, ("race", "gender")),
        intraclass_correlations(edits, scores, quick),
    ]


def between_arms(edits: Edits, scores: list[Scores]) -> list[object]:
    return [paired_effects(edits, scores, quick), gap_changes(edits, scores, quick, arm="feature", against="baseline")]


def among_raters(edits: Edits, scores: list[Scores]) -> list[object]:
    first, *_, last = sorted(scores, key=lambda part: part.judge)
    found = agreement(edits, scores, quick)
    return [found, against_people(edits, first, last, quick), corrected(edits, first, last, quick)]


def followed(edits: Edits, scores: list[Scores]) -> list[object]:
    return [adherence(edits, scores, Settings(factors=()))]


@pytest.mark.parametrize(
    ("edits", "scores", "analysis"),
    [
        (*with_measure(*world(2, blocks=True)), numbers),
        (*with_measure(*ARMS), between_arms),
        (*raters(6, 3, seen=0.8, portraits=12), among_raters),
        (*with_measure(*roles(12, {"pro": 0.9, "anti": 0.5})), followed),
    ],
)
@hypothesis_settings(max_examples=4)
@given(order=st.integers(0, 2**31))
def test_the_order_of_rows_and_portraits_changes_no_bit(
    edits: Edits, scores: list[Scores], analysis: Callable[[Edits, list[Scores]], object], order: int
) -> None:
    assert analysis(*shuffled(edits, scores, order)) == analysis(edits, scores)
