"""Rates of a dozen people or fewer: who counts as one, and how far their limits reach."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from stillme.estimates import Edits, Scores, Settings, estimate, paired_effects
from stillme.estimates.bootstrap import LEAST_SPREAD, logit_limits
from stillme.estimates.quantiles import t_quantile, wilson
from stillme.types import ImageFile, Interval, Portrait

from .worlds import people, rows

pytestmark = pytest.mark.numeric

FAULT, FINE = 5.0, 1.0
by_race = Settings(factors=("race",), replicates=400)


def pictures_of(persons: int, each: int) -> tuple[Portrait, ...]:
    """Two races, so many persons in each, several pictures of every person."""
    return tuple(
        Portrait(
            id=f"{race}{person:02d}-{picture}",
            image=ImageFile(path=Path("none"), sha256=""),
            attributes={"race": race},
            label_origin="simulated",
            licence="CC0-1.0",
            block=f"{race}{person:02d}",
        )
        for race in "AB"
        for person in range(persons)
        for picture in range(each)
    )


def crossed_people() -> tuple[Portrait, ...]:
    """Seven races × two genders × six ages, one of each."""
    return tuple(
        replace(portrait, attributes={"race": race, "gender": gender, "age": age}, block=f"{gender}{age}")
        for race in "ABCDEFG"
        for portrait, (gender, age) in zip(
            people(race, 12), [(gender, age) for gender in "fm" for age in "123456"], strict=True
        )
    )


def rate(edits: Edits, scores: Scores, group: str, settings: Settings = by_race) -> Interval:
    found, *_ = [
        part for part in estimate(edits, [scores], settings) if (part.quantity, part.group) == ("race_changed", group)
    ]
    assert isinstance(found.outcome, Interval)
    return found.outcome


def faults(hits: list[int], prompts: int = 20) -> np.ndarray:
    """So many faults of each portrait."""
    return np.where(np.arange(prompts) < np.array(hits)[:, None], FAULT, FINE)


@pytest.mark.parametrize("persons", [6, 10])
def test_a_fault_never_seen_in_many_pictures_of_few_persons_is_known_as_well_as_the_persons_are_many(
    persons: int,
) -> None:
    edits, scores = rows(pictures_of(persons, 5), np.full((10 * persons, 20), FINE))
    assert rate(edits, scores, "A").high == pytest.approx(wilson(0, persons, 0.95)[1])
    assert rate(edits, scores, "").high == pytest.approx(wilson(0, 2 * persons, 0.95)[1])


def test_a_person_of_a_small_group_counts_for_five_edits_however_many_pictures_there_are() -> None:
    hits = [4] * 60
    hits[0] = hits[30] = 5
    edits, scores = rows(pictures_of(6, 5), faults(hits))
    found = rate(edits, scores, "A")
    assert (found.low, found.high) == pytest.approx(wilson(121 / 600, 30, 0.95))


def test_people_of_a_matched_set_are_different_people() -> None:
    edits, scores = rows(crossed_people(), np.full((84, 20), FINE))
    found = rate(edits, scores, "A - rest", Settings(factors=("race", "gender", "age"), replicates=100))
    assert found.high == pytest.approx(wilson(0, 12, 0.95)[1])
    assert found.low == pytest.approx(-wilson(0, 72, 0.95)[1])


def test_people_matched_in_what_is_no_factor_are_different_people_too() -> None:
    edits, scores = rows(crossed_people(), np.full((84, 20), FINE))
    everyone = rate(edits, scores, "", Settings(factors=("race",), replicates=100))
    assert everyone.high == pytest.approx(wilson(0, 84, 0.95)[1])


def test_what_no_person_showed_is_bounded_by_persons_in_changes() -> None:
    settings = replace(by_race, replicates=100)
    edits, scores = rows(pictures_of(9, 3), np.full((54, 4, 2), FINE), arms=("baseline", "feature"))
    (change,) = [
        effect
        for effect in paired_effects(edits, [scores], settings, quantities=("race_changed",))
        if effect.group == "A"
    ]
    assert isinstance(change.outcome, Interval)
    assert change.outcome.high == pytest.approx(wilson(0, 9, 0.95)[1])


CALM = [4, 4, 4, 5, 5, 5, 5, 5, 5, 6, 6, 6]
VARIED = [0, 0, 1, 2, 3, 4, 5, 6, 7, 9, 11, 13]


def variance(hits: list[int]) -> float:
    return float(np.var(np.array(hits) / 20, ddof=1)) / len(hits)


def test_a_group_that_happens_to_look_alike_is_not_taken_to_be_alike() -> None:
    calm, varied = np.mean(CALM) / 20, np.mean(VARIED) / 20
    edits, scores = rows(people("ABC", 12), faults(CALM + VARIED + VARIED))
    binomial = [share * (1 - share) for share in (calm, varied, varied)]
    beyond = sum(12 * (variance(hits) - one / 240) for hits, one in zip((CALM, VARIED, VARIED), binomial, strict=True))
    spread = beyond / sum(one**2 for one in binomial)
    least = LEAST_SPREAD * (binomial[0] / 240 + spread * binomial[0] ** 2 / 12)
    assert least > 2 * variance(CALM)
    found = rate(edits, scores, "A")
    assert (found.low, found.high) == pytest.approx(logit_limits(float(calm), math.sqrt(least), t_quantile(0.975, 11)))


def test_a_group_that_varies_more_than_the_others_keeps_its_own_spread() -> None:
    edits, scores = rows(people("ABC", 12), faults(VARIED + CALM + CALM))
    found = rate(edits, scores, "A")
    own = logit_limits(float(np.mean(VARIED)) / 20, math.sqrt(variance(VARIED)), t_quantile(0.975, 11))
    assert (found.low, found.high) == pytest.approx(own)


def test_groups_in_which_prompts_decide_are_not_given_the_spread_of_chance() -> None:
    edits, scores = rows(people("ABC", 12), faults(3 * CALM))
    found = rate(edits, scores, "A")
    own = logit_limits(float(np.mean(CALM)) / 20, math.sqrt(variance(CALM)), t_quantile(0.975, 11))
    assert (found.low, found.high) == pytest.approx(own)


RARE = [0] * 6 + [1] * 4 + [2] * 2
MORE = [0, 0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 3]


def test_the_interval_of_a_difference_is_skewed_as_the_rare_rate_is() -> None:
    """A group with few faults may have many more, but hardly fewer; Student's interval is symmetric."""
    edits, scores = rows(people("ABCDEFG", 12), faults(RARE + 6 * MORE))
    group, difference = rate(edits, scores, "A"), rate(edits, scores, "A - rest")
    assert difference.high - difference.value > 1.3 * (difference.value - difference.low)
    assert difference.high - difference.value == pytest.approx(group.high - group.value, rel=0.1)


def test_a_difference_of_two_rates_turns_around_with_its_sides() -> None:
    settings = replace(by_race, reference={"race": "B"})
    edits, scores = rows(people("AB", 12), faults(RARE + VARIED))
    found = rate(edits, scores, "A - B", settings)
    turned = rate(edits, scores, "B - A", replace(settings, reference={"race": "A"}))
    assert (found.low, found.value, found.high) == pytest.approx((-turned.high, -turned.value, -turned.low), abs=1e-9)


def test_what_the_people_of_a_set_share_cancels_in_a_difference_of_rates() -> None:
    first, second = VARIED, [min(20, hits + extra) for hits, extra in zip(VARIED, [1, 2] * 6, strict=True)]
    together = rows(people("AB", 12, blocks=True), faults(second + first))
    apart = rows(people("AB", 12), faults(second + first))
    widths = [found.high - found.low for found in (rate(*both, "A - rest") for both in (together, apart))]
    assert widths[0] < widths[1] / 3
