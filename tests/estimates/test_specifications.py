"""One gap under every way to count it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from stillme.errors import UnknownName
from stillme.estimates import Curve, Edits, Scores, Settings, gap, specification_curve
from stillme.types import Interval, NotEstimable

from .worlds import ordinal, people, rows, shuffled

pytestmark = pytest.mark.numeric

quick = Settings(factors=("race",), replicates=100)


def mean(parts: Sequence[Scores]) -> Scores:
    return replace(parts[0], judge="mean", value=np.mean([scores.value for scores in parts], axis=0))


def lowest(parts: Sequence[Scores]) -> Scores:
    return replace(parts[0], judge="lowest", value=np.min([scores.value for scores in parts], axis=0))


def world(planted: float, seed: int = 0) -> tuple[Edits, list[Scores]]:
    stream = np.random.default_rng(seed)
    latent = 1.0 + stream.normal(0, 0.4, (36, 1)) + stream.normal(0, 1, (36, 10))
    latent[:12] += planted
    made = [rows(people("ABC", 12), ordinal(latent + stream.normal(0, 0.3, latent.shape))) for _ in range(3)]
    names = ("x", "y", "z")
    return made[0][0], [replace(scores, judge=name) for (_, scores), name in zip(made, names, strict=True)]


def curve(edits: Edits, judges: Sequence[Scores], **change: object) -> Curve:
    asked: dict = {"quantity": "race_changed", "factor": "race", "level": "A", "editor": "editor"} | change
    return specification_curve(edits, judges, {"mean": mean, "lowest": lowest}, quick, **asked)


def test_every_judge_rule_and_cut_that_the_rows_allow_is_a_specification() -> None:
    edits, judges = world(1.0)
    specified = curve(edits, judges)
    assert {(row.judge, row.rule) for row in specified.rows} == {
        ("x", ""),
        ("y", ""),
        ("z", ""),
        ("ensemble", "mean"),
        ("ensemble", "lowest"),
    }
    # The named rate is the one at 3, which is not counted again under that name.
    assert {row.quantity for row in specified.rows} == {
        "race_change",
        "race_changed",
        "race_change>=2",
        "race_change>=4",
        "race_change>=5",
    }
    assert len(specified.rows) == 25
    values = [row.outcome.value for row in specified.rows]
    assert values == sorted(values)


def test_a_specification_is_the_gap_that_the_estimates_give() -> None:
    edits, judges = world(1.0)
    (row,) = [row for row in curve(edits, judges).rows if (row.judge, row.quantity) == ("y", "race_changed")]
    alone = gap(edits, [judges[1]], quantity="race_changed", editor="editor", factor="race", level="A", settings=quick)
    assert row.outcome == alone


def test_a_large_gap_holds_everywhere_and_none_nearly_nowhere() -> None:
    strong, none = curve(*world(1.5)), curve(*world(0.0, seed=3))
    assert strong.headline.low > 0
    assert strong.share_holding > 0.9
    assert strong.share_agreeing == 1.0
    assert none.share_holding < 0.3


def test_judges_told_different_things_are_not_combined() -> None:
    edits, judges = world(1.0)
    specified = curve(edits, judges, disclosures={"x": "blind", "y": "blind", "z": "paper"})
    combined = {(row.disclosure, row.rule) for row in specified.rows if row.judge == "ensemble"}
    assert combined == {("blind", "mean"), ("blind", "lowest")}
    assert {row.disclosure for row in specified.rows if row.judge == "z"} == {"paper"}


def test_a_reference_and_a_group_too_small_are_respected() -> None:
    edits, judges = world(1.0)
    specified = specification_curve(
        edits,
        judges,
        {},
        replace(quick, reference={"race": "C"}),
        quantity="race_change",
        factor="race",
        level="A",
        editor="editor",
        headline="",
    )
    assert specified.group == "A - C"
    few = edits.where(edits.portrait != 0)
    only = replace(
        few, portraits=tuple(replace(portrait, attributes={"race": portrait.id}) for portrait in few.portraits)
    )
    too_small = curve(only, [scores.where(edits.portrait != 0) for scores in judges], level="A0001")
    assert all(isinstance(row.outcome, NotEstimable) for row in too_small.rows)
    assert too_small.share_holding is None


def test_a_rate_at_most_is_varied_downwards() -> None:
    stream = np.random.default_rng(0)
    edits, scores = rows(people("AB", 12), ordinal(stream.normal(1, 1, (24, 8))), axis="edit_success")
    specified = curve(edits, [scores], quantity="soft_erasure")
    assert {row.quantity for row in specified.rows} == {
        "edit_success",
        "soft_erasure",
        "edit_success<=1",
        "edit_success<=3",
        "edit_success<=4",
    }
    assert isinstance(specified.headline, Interval)


def test_an_unknown_quantity_is_named() -> None:
    edits, judges = world(1.0)
    with pytest.raises(UnknownName, match="Did you mean 'race_changed'"):
        curve(edits, judges, quantity="race_changd")


@hypothesis_settings(max_examples=3)
@given(order=st.integers(0, 2**31))
def test_the_curve_does_not_depend_on_the_order_of_rows(order: int) -> None:
    edits, judges = world(1.0)
    assert curve(*shuffled(edits, judges, order)) == curve(edits, judges)
