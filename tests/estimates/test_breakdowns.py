"""Parts of the rows, finer groups, other cuts; correlation of edits."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from stillme.core.errors import UnknownName
from stillme.core.types import Estimate, NotEstimable
from stillme.estimates import Settings, at_every_cut, by_intersection, by_prompt, estimate, intraclass_correlations
from stillme.estimates.numbers import title
from stillme.findings.tables.estimates import as_text, write_tables

from .worlds import ordinal, people, rows

quick = Settings(factors=("race",))


def value(estimates: list[Estimate], **wanted: str) -> float:
    (match,) = [row for row in estimates if all(getattr(row, name) == given for name, given in wanted.items())]
    return match.outcome.value


def test_each_prompt_subcategory_and_category_has_its_own_numbers() -> None:
    values = ordinal(np.random.default_rng(0).normal(0.8, 1, (24, 6)))
    edits, scores = rows(people("AB", 12), values)
    by_id = by_prompt(edits, [scores], quick)
    assert value(by_id, prompts="P002", quantity="race_change") == pytest.approx(values[:, 2].mean())
    assert {row.scope for row in by_id} == {"all"}
    by_kind = by_prompt(edits, [scores], quick, by="subcategory", groups=True)
    assert value(by_kind, prompts="s1", quantity="race_changed", scope="group", group="B") == pytest.approx(
        (values[12:, [1, 4]] >= 3).mean()
    )
    assert {row.prompts for row in by_prompt(edits, [scores], quick, by="category")} == {"c", "d"}


def test_where_attributes_meet_is_a_group_of_its_own() -> None:
    values = ordinal(np.random.default_rng(1).normal(0.8, 1, (24, 3)))
    edits, scores = rows(people("AB", 12), values)
    crossed = by_intersection(edits, [scores], replace(quick, reference={"race": "B"}), ("race", "gender"))
    assert {row.factor for row in crossed} == {"race × gender"}
    expected = values[:12:2].mean()
    assert value(crossed, quantity="race_change", scope="group", group="A × f") == pytest.approx(expected)
    (gap,) = [row for row in crossed if row.scope == "disparity" and row.quantity == "race_change"]
    assert len(gap.levels) == 4
    with pytest.raises(UnknownName, match="Did you mean 'gender'"):
        by_intersection(edits, [scores], quick, ("race", "gendr"))


def test_rates_come_at_every_cut_and_in_both_directions() -> None:
    values = np.round(np.random.default_rng(2).uniform(1, 5, (24, 5)) * 2) / 2
    edits, scores = rows(people("AB", 12), values, axis="edit_success")
    other = replace(scores, axis="skin_delta_l")
    at_cuts = at_every_cut(edits, [scores, other], quick)
    assert {row.quantity for row in at_cuts} == {
        *(f"edit_success>={cut}" for cut in (2, 3, 4, 5)),
        *(f"edit_success<={cut}" for cut in (1, 2, 3, 4)),
    }
    assert value(at_cuts, quantity="edit_success>=3", scope="all") == pytest.approx((values >= 3).mean())
    assert value(at_cuts, quantity="edit_success<=2", scope="group", group="A") == pytest.approx(
        (values[:12] <= 2).mean()
    )
    named = estimate(edits, [scores], quick)
    assert value(named, quantity="success", scope="all") == value(at_cuts, quantity="edit_success>=4", scope="all")


def test_a_rate_at_a_cut_has_a_title_and_is_shown_in_percent(tmp_path) -> None:
    edits, scores = rows(people("AB", 12), np.tile([1.0, 4.0], (24, 2)))
    (at_four,) = [
        row
        for row in at_every_cut(edits, [scores], replace(quick, factors=()))
        if row.quantity == "race_change>=4" and row.scope == "all"
    ]
    assert title("race_change>=4") == "Race Change ≥ 4"
    assert as_text(at_four).startswith("50.0 %")
    text = write_tables([replace(at_four, prompts="P000")], tmp_path, quick)[0].read_text()
    assert "race_change>=4" in text
    assert "P000" in text


def test_the_intraclass_correlation_is_that_of_the_analysis_of_variance() -> None:
    stream = np.random.default_rng(5)
    values = stream.normal(0, 1, (200, 1)) + stream.normal(0, 2, (200, 10))
    edits, scores = rows(people("AB", 100), values, axis="skin_delta_l")
    (correlation,) = [quantity for quantity in intraclass_correlations(edits, [scores], quick) if quantity.judge]
    between = 10 * values.mean(axis=1).var(ddof=1)
    within = values.var(axis=1, ddof=1).mean()
    assert correlation.icc.value == pytest.approx((between - within) / (between + 9 * within))
    assert correlation.icc.low < 0.2 < correlation.icc.high
    assert correlation.design_effect == pytest.approx(1 + 9 * correlation.icc.value)
    assert correlation.effective == pytest.approx(2000 / correlation.design_effect)


def test_the_correlation_of_single_or_equal_edits_is_not_estimable() -> None:
    for values, reason in ((np.arange(24.0)[:, None], "only one rated edit"), (np.ones((24, 3)), "the same value")):
        edits, scores = rows(people("AB", 12), values, axis="skin_delta_l")
        (correlation,) = [quantity for quantity in intraclass_correlations(edits, [scores], quick) if quantity.judge]
        assert reason in correlation.icc.reason
        assert correlation.design_effect is None


def test_prompts_as_a_sample_widen_intervals_where_prompts_differ() -> None:
    stream = np.random.default_rng(8)
    values = stream.normal(0, 0.2, (48, 1)) + stream.normal(0, 2, (1, 20)) + stream.normal(0, 0.5, (48, 20))
    edits, scores = rows(people("ABCD", 12), values, axis="skin_delta_l")
    widths = {}
    for prompts in ("fixed", "sample"):
        estimates = estimate(edits, [scores], replace(quick, prompts=prompts))
        (whole,) = [e for e in estimates if e.quantity == "skin_delta_l" and e.scope == "all"]
        (gap,) = [e for e in estimates if e.quantity == "skin_delta_l" and e.group == "A - rest"]
        widths[prompts] = (whole.outcome.high - whole.outcome.low, gap.outcome.high - gap.outcome.low)
        assert ("prompts" in whole.outcome.method) == (prompts == "sample")
    assert widths["sample"][0] > 5 * widths["fixed"][0]
    # Effects of prompts that are the same for all groups cancel in a contrast.
    assert widths["sample"][1] < 2 * widths["fixed"][1]


def test_coverage_holds_for_prompts_that_were_not_tried() -> None:
    audits, covered = 60, {"fixed": 0, "sample": 0}
    for seed in range(audits):
        stream = np.random.default_rng(seed)
        values = stream.normal(0, 0.5, (24, 1)) + stream.normal(0, 1, (1, 20)) + stream.normal(0, 1, (24, 20))
        edits, scores = rows(people("AB", 12), values, axis="skin_delta_l")
        for prompts in covered:
            estimates = estimate(edits, [scores], Settings(factors=(), prompts=prompts))
            (whole,) = [row.outcome for row in estimates if row.quantity == "skin_delta_l"]
            covered[prompts] += whole.low <= 0 <= whole.high
    assert covered["sample"] / audits > 0.86
    assert covered["fixed"] / audits < 0.8


def test_one_prompt_says_nothing_of_others() -> None:
    edits, scores = rows(people("AB", 12), np.random.default_rng(9).normal(0, 1, (24, 1)), axis="skin_delta_l")
    estimates = estimate(edits, [scores], replace(quick, prompts="sample"))
    assert all(isinstance(row.outcome, NotEstimable) for row in estimates)
    assert {row.outcome.reason for row in estimates if row.scope == "all"} == {
        "the group has only one prompt, which says nothing about others"
    }
