from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from stillme.core.errors import StillmeError, UnknownName
from stillme.core.types import Estimate, Interval, NotEstimable, Portrait
from stillme.estimates import Disparity, Edits, EditState, RatingState, Scores, Settings, estimate, gap
from stillme.estimates.design import by_factor, everyone
from stillme.estimates.intervals import t_quantile
from stillme.estimates.quantities import Columns
from tests.estimates.worlds import crossed_people, has_numbers_or_reasons, known, rows
from tests.records import portrait

pytestmark = pytest.mark.numeric

Simulate = Callable[..., tuple[Edits, list[Scores]]]

quick = Settings(factors=("race",))


def rows_of(people: list[Portrait], values: np.ndarray, axis: str = "skin_delta_l") -> tuple[Edits, list[Scores]]:
    edits, scores = rows(people, values, axis=axis)
    return edits, [scores]


def only(estimates: Iterable[Estimate], quantity: str, scope: str, group: str = "") -> Estimate:
    (row,) = [row for row in estimates if (row.quantity, row.scope, row.group) == (quantity, scope, group)]
    return row


def test_a_mean_is_the_mean_and_a_rate_the_share(simulate: Simulate) -> None:
    edits, scores = simulate(1)
    estimates = estimate(edits, scores, quick)
    value = scores[0].value
    assert known(only(estimates, "edit_success", "all")).value == pytest.approx(value.mean())
    assert known(only(estimates, "soft_erasure", "all")).value == pytest.approx((value <= 2).mean())
    in_group = np.array([edits.portraits[p].attributes["race"] == "B" for p in edits.portrait])
    assert known(only(estimates, "success", "group", "B")).value == pytest.approx((value[in_group] >= 4).mean())
    gap_to_rest = (value[in_group] <= 2).mean() - (value[~in_group] <= 2).mean()
    assert known(only(estimates, "soft_erasure", "contrast", "B - rest")).value == pytest.approx(gap_to_rest)


def test_a_planted_gap_is_recovered(simulate: Simulate) -> None:
    edits, scores = simulate(2, planted=2.0, portrait_sd=0.3)
    estimates = estimate(edits, scores, quick)
    contrast = known(only(estimates, "soft_erasure", "contrast", "A - rest"))
    # logit(-1) is 27 %, logit(+1) is 73 %.
    assert contrast.low < 0.46 < contrast.high
    assert contrast.low > 0.2
    disparity = only(estimates, "soft_erasure", "disparity")
    assert disparity.highest == "A"
    assert disparity.null.p < 0.01
    assert known(disparity).low > 0


def test_nothing_planted_is_not_found_where_naive_intervals_would_find_it(simulate: Simulate) -> None:
    audits, covered, missed, naive_missed, significant = 40, 0, 0, 0, 0
    expected = _expected_rate(0.75)
    for seed in range(audits):
        edits, scores = simulate(seed, prompts=20)
        estimates = estimate(edits, scores, quick)
        for level in "ABCD":
            group = known(only(estimates, "soft_erasure", "group", level))
            covered += group.low <= expected <= group.high
            size = 12 * 20
            half = 1.96 * math.sqrt(group.value * (1 - group.value) / size)
            naive_missed += not group.value - half <= expected <= group.value + half
        missed += not known(only(estimates, "soft_erasure", "disparity")).low <= 0
        null = only(estimates, "soft_erasure", "disparity")
        significant += null.null.p <= 0.05
    assert covered / (4 * audits) > 0.90
    assert naive_missed / (4 * audits) > 0.15
    assert missed / audits < 0.12
    assert significant / audits < 0.12


def _expected_rate(portrait_sd: float) -> float:
    nodes, weights = np.polynomial.hermite_e.hermegauss(40)
    return float((weights / (1 + np.exp(1.0 - portrait_sd * nodes))).sum() / weights.sum())


def test_the_null_band_rises_with_the_number_of_groups_not_with_the_truth(simulate: Simulate) -> None:
    bands = [only(estimate(*simulate(5, levels=levels), quick), "soft_erasure", "disparity") for levels in (2, 4, 7)]
    highs = [band.null.high for band in bands if isinstance(band, Disparity) and band.null]
    assert highs[0] < highs[2]


def test_a_number_does_not_depend_on_which_others_are_computed(simulate: Simulate) -> None:
    edits, scores = simulate(4, levels=3)
    other = replace(scores[0], axis="skin_delta_l", value=np.sin(scores[0].value + np.arange(len(edits))))
    alone = estimate(edits, [other], quick)
    together = estimate(edits, [*scores, other], Settings(factors=("gender", "race")))
    assert [e for e in alone if e.judge] == [
        e for e in together if e.quantity == "skin_delta_l" and e.factor in ("", "race")
    ]


def test_pairing_by_block_takes_out_what_blocks_share() -> None:
    paired = [portrait(f"{race}{n:02d}", block=f"cell {n}", race=race) for race in "ABC" for n in range(12)]
    apart = [replace(one, block="") for one in paired]
    held, ratios = 0, list[float]()
    for seed in range(20):
        stream = np.random.default_rng(seed)
        shared = stream.normal(0, 10, 12)
        values = np.stack([shared + level + stream.normal(0, 0.5, 12) for level in (0, 0, 3)]).reshape(36, 1)
        within, between = (
            known(only(estimate(*rows_of(portraits, values), quick), "skin_delta_l", "contrast", "C - rest"))
            for portraits in (paired, apart)
        )
        assert within.method == "MOVER: Student's t, 12 and 12 portraits"
        held += within.low < 3 < within.high
        ratios.append((within.high - within.low) / (between.high - between.low))
    # Fewer than 16 of 20 intervals that cover in .95 cover with probability .0003; 60 seeds gave 58.
    assert held >= 16
    # The errors are √(0.25 + 0.125) with pairs and √(100.25 × 1.5) without: 0.05.
    assert np.mean(ratios) < 1 / 8


def test_the_identity_is_the_unit_of_what_does_not_vary_inside_it() -> None:
    columns = Columns.of(rows_of(crossed_people(), np.zeros((84, 5)))[0])
    settings = Settings(factors=("race", "gender", "age"))
    for factor, units, noun, permuted in (
        ("race", 12, "portraits", (84, 12)),
        ("gender", 6, "identities", (12, 1)),
        ("age", 2, "identities", (12, 1)),
    ):
        plan = by_factor(columns, factor, settings)
        assert plan.paired == (factor == "race")
        assert (plan.units(plan.comparisons[0].members), plan.noun) == (units, noun), factor
        assert (len(plan.permutation.level), len(set(plan.permutation.within.tolist()))) == permuted
    assert (everyone(columns).noun, len(everyone(columns).names)) == ("identities", 12)


def test_people_without_blocks_are_matched_on_all_other_factors() -> None:
    people = [replace(one, block="") for one in crossed_people()]
    columns = Columns.of(rows_of(people, np.zeros((84, 5)))[0])
    for factor, sets in (("race", 12), ("gender", 42), ("age", 14)):
        plan = by_factor(columns, factor, Settings(factors=("race", "gender", "age")))
        assert (plan.paired, len(plan.names), plan.noun) == (True, sets, "portraits"), factor
        assert len(set(plan.permutation.within.tolist())) == sets


def test_a_gap_between_people_who_are_each_by_themselves_is_found() -> None:
    stream = np.random.default_rng(1)
    people = [replace(one, block="") for one in crossed_people()]
    women = np.array([one.attributes["gender"] == "f" for one in people])
    values = stream.normal(0, 1, (84, 5)) + 1.5 * women[:, None]
    estimates = estimate(*rows_of(people, values), Settings(factors=("race", "gender", "age")))
    gap = known(only(estimates, "skin_delta_l", "contrast", "f - rest"))
    assert 1.0 < gap.low < 1.5 < gap.high < 2.0
    assert known(only(estimates, "skin_delta_l", "all")).method == "Student's t, 84 portraits"


def test_a_portrait_that_is_missing_does_not_end_the_matching() -> None:
    people = [replace(one, block="") for one in crossed_people()[1:]]
    columns = Columns.of(rows_of(people, np.zeros((83, 1)))[0])
    settings = Settings(factors=("race", "gender", "age"))
    assert all(by_factor(columns, factor, settings).paired for factor in settings.factors)


def test_portraits_of_a_block_that_share_the_level_are_no_independent_witnesses() -> None:
    stream = np.random.default_rng(1)
    shared = np.repeat(stream.normal(0, 5, 20), 6)
    values = (shared + stream.normal(0, 0.1, 120)).reshape(120, 1)
    people = [portrait(f"{n:03d}", block=f"b{n // 6}", gender="fm"[n // 60]) for n in range(120)]
    settings = Settings(factors=("gender",))
    blocked = known(only(estimate(*rows_of(people, values), settings), "skin_delta_l", "contrast", "f - rest"))
    loose = [replace(one, block="") for one in people]
    single = known(only(estimate(*rows_of(loose, values), settings), "skin_delta_l", "contrast", "f - rest"))
    assert (blocked.high - blocked.low) > 2 * (single.high - single.low)


def test_a_reference_level_replaces_the_rest(simulate: Simulate) -> None:
    edits, scores = simulate(7)
    estimates = estimate(edits, scores, replace(quick, reference={"race": "B"}))
    contrasts = {e.group for e in estimates if e.scope == "contrast" and e.quantity == "success"}
    assert contrasts == {"A - B", "C - B", "D - B"}
    a, b = (known(only(estimates, "success", "group", level)).value for level in "AB")
    assert known(only(estimates, "success", "contrast", "A - B")).value == pytest.approx(a - b)


def test_a_group_of_one_is_not_estimable_and_takes_no_part_in_the_disparity(simulate: Simulate) -> None:
    edits, scores = simulate(8, levels=3)
    people = (replace(edits.portraits[0], attributes={"race": "Z"}), *edits.portraits[1:])
    estimates = estimate(replace(edits, portraits=people), scores, quick)
    assert only(estimates, "success", "group", "Z").outcome == NotEstimable(reason="only 1 portrait in this group")
    disparity = only(estimates, "success", "disparity")
    assert disparity.levels == ("A", "B", "C")


def test_a_group_nobody_rated_is_not_estimable(simulate: Simulate) -> None:
    edits, scores = simulate(9, levels=3)
    blank = np.array([edits.portraits[p].attributes["race"] == "C" for p in edits.portrait])
    value = np.where(blank, np.nan, scores[0].value)
    state = np.where(blank, RatingState.ABSTAINED, RatingState.RATED).astype(np.int32)
    estimates = estimate(edits, [replace(scores[0], value=value, state=state)], quick)
    silent = only(estimates, "success", "group", "C")
    assert silent.outcome == NotEstimable(reason="the group has no rated edit")
    assert silent.excluded == {"abstained": 120}
    assert known(only(estimates, "success", "disparity")).value < 1


def test_what_is_left_out_is_counted_by_reason() -> None:
    people = [portrait(f"{n:02d}", race="AB"[n % 2]) for n in range(8)]
    edits, scores = rows_of(people, np.zeros((8, 6)), axis="skin_tone")
    state = np.tile([EditState.EDITED] * 3 + [EditState.REFUSED, EditState.FAILED, EditState.MISSING], 8)
    rating = np.tile([RatingState.RATED, RatingState.ABSTAINED, RatingState.FAILED, 0, 0, 0], 8).astype(np.int32)
    estimates = estimate(replace(edits, state=state.astype(np.int32)), [replace(scores[0], state=rating)], quick)
    everyone = only(estimates, "skin_tone", "all")
    assert everyone.edits == 8
    assert everyone.excluded == dict.fromkeys(
        ("abstained", "edit failed", "edit missing", "judge failed", "refused"), 8
    )
    refused = only(estimates, "refused", "all")
    assert known(refused).value == pytest.approx(1 / 4)
    assert refused.excluded == {"edit failed": 8, "edit missing": 8}
    assert known(only(estimates, "failed", "all")).value == pytest.approx(1 / 5)


def test_an_axis_for_aging_prompts_does_not_miss_answers_on_others() -> None:
    people = [portrait(f"{n:02d}", race="AB"[n % 2]) for n in range(8)]
    edits, scores = rows_of(people, np.full((8, 2), 3.0), axis="age_accuracy")
    prompts = (edits.prompts[0], replace(edits.prompts[1], subcategory="aging"))
    rating = np.tile([RatingState.MISSING, RatingState.RATED], 8).astype(np.int32)
    estimates = estimate(replace(edits, prompts=prompts), [replace(scores[0], state=rating)], quick)
    assert only(estimates, "age_accuracy", "all").excluded == {}
    assert only(estimates, "age_accuracy", "all").edits == 8


def test_never_seen_is_not_impossible() -> None:
    people = [portrait(f"{n:02d}", race="AB"[n % 2]) for n in range(24)]
    estimates = estimate(*rows_of(people, np.full((24, 10), 5.0), axis="edit_success"), quick)
    group = known(only(estimates, "soft_erasure", "group", "A"))
    assert group.value == group.low == 0
    # 120 edits of 12 people count as 120 / (1 + 9 × 0.1) = 63; the groups together have 22 degrees of freedom.
    t, size = t_quantile(0.975, 22), 120 / 1.9
    assert group.high == pytest.approx(t**2 / (size + t**2))
    # Either group may be at 0 and the other at its limit.
    assert known(only(estimates, "soft_erasure", "disparity")).high == pytest.approx(group.high)


def test_a_rate_stays_between_none_and_all(simulate: Simulate) -> None:
    for planted in (-4.0, 3.0):
        for row in estimate(*simulate(11, planted=planted, per_level=8), quick):
            if isinstance(row.outcome, Interval) and row.quantity in ("success", "soft_erasure"):
                least = -1 if row.scope == "contrast" else 0
                assert least <= row.outcome.low <= row.outcome.value <= row.outcome.high <= 1


@hypothesis_settings(max_examples=25)
@given(data=st.data())
def test_any_rows_at_all_give_finite_numbers_or_reasons(data: st.DataObject) -> None:
    count = data.draw(st.integers(0, 12))
    people = [
        portrait(
            f"{n:02d}",
            block=data.draw(st.sampled_from(["", "x", "y"])),
            **data.draw(st.fixed_dictionaries({}, optional={"race": st.sampled_from("ABC")})),
        )
        for n in range(count)
    ]
    people.append(portrait("last", race="A"))
    values = np.array(data.draw(st.lists(st.integers(1, 5), min_size=2 * count + 2, max_size=2 * count + 2)), float)
    edits, scores = rows_of(people, values.reshape(count + 1, 2), axis="skin_tone")
    states = data.draw(st.lists(st.sampled_from(EditState), min_size=len(edits), max_size=len(edits)))
    ratings = data.draw(st.lists(st.sampled_from(RatingState), min_size=len(edits), max_size=len(edits)))
    edits = replace(edits, state=np.array(states, np.int32))
    scores = [replace(scores[0], state=np.array(ratings, np.int32))]
    has_numbers_or_reasons(estimate(edits, scores, quick))


def test_the_gap_is_the_contrast_of_the_tables(simulate: Simulate) -> None:
    edits, scores = simulate(12, planted=1.0)
    table = only(estimate(edits, scores, quick), "soft_erasure", "contrast", "A - rest").outcome
    alone = gap(edits, scores, quantity="soft_erasure", editor="editor", factor="race", level="A", settings=quick)
    assert alone == table


def test_a_misspelt_quantity_factor_level_or_reference_names_the_nearest(simulate: Simulate) -> None:
    edits, scores = simulate(12)

    def ask(quantity: str = "success", level: str = "A", reference: str | None = None, factor: str = "race") -> object:
        return gap(edits, scores, quantity=quantity, editor="editor", factor=factor, level=level, reference=reference)

    with pytest.raises(UnknownName, match="Did you mean 'soft_erasure'"):
        ask(quantity="soft_erasures")
    with pytest.raises(UnknownName, match="Unknown level 'Q'"):
        ask(level="Q")
    with pytest.raises(UnknownName, match="Unknown reference level 'Q'"):
        ask(reference="Q")
    with pytest.raises(UnknownName, match="Did you mean 'race'"):
        ask(factor="rase")


def test_settings_that_cannot_work_are_refused() -> None:
    with pytest.raises(StillmeError, match="confidence"):
        replace(quick, confidence=1.0)
    with pytest.raises(StillmeError, match="not among the factors"):
        replace(quick, reference={"gender": "f"})
