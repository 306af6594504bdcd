"""Rows of a frame become estimates, and rows that cannot be believed become errors."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import stillme
from stillme.core.errors import StillmeError

Frame = list[dict[str, Any]]


def frame(people: int = 12, prompts: int = 2, judges: Sequence[str] = ("j",)) -> Frame:
    return [
        {
            "id": f"p{person}",
            "race": "ab"[person % 2],
            "editor": "mine",
            "prompt": f"P{prompt}",
            "judge": judge,
            "race_change": 1 + (person * 3 + prompt + len(judge)) % 5,
        }
        for judge in judges
        for person in range(people)
        for prompt in range(prompts)
    ]


def estimated(rows: Frame, **more: Any) -> list[dict[str, Any]]:
    asked: dict[str, Any] = {"portrait": "id", "groups": ["race"], "score": "race_change", **more}
    return [dict(row) for row in stillme.estimate(rows, **asked)]


@pytest.mark.parametrize(
    ("cells", "message"),
    [
        ({"race_change": 99}, "Row 4: race_change is 99, which is not on its scale, 1 to 5"),
        ({"race_change": 0}, "not on its scale"),
        ({"race_change": math.inf}, "not on its scale"),
        ({"race_change": "none"}, "not a number"),
        ({"id": math.nan}, "Row 4: id is empty"),
        ({"id": ""}, "Row 4: id is empty"),
        ({"editor": None}, "Row 4: editor is empty"),
        ({"race": "c"}, "belongs to one group"),
        ({"person": "other"}, "one block"),
    ],
)
def test_a_row_that_cannot_be_believed_is_named(cells: dict[str, object], message: str):
    rows: Frame = [row | {"person": row["id"]} for row in frame()]
    rows[3] |= cells
    with pytest.raises(StillmeError, match=message):
        estimated(rows, editor="editor", block="person")


def test_rows_without_states_say_nothing_about_refusals():
    assert {row["quantity"] for row in estimated(frame())} == {"race_change", "race_changed"}


def test_a_second_judge_rates_the_same_edits():
    one, both = estimated(frame(), judge="judge"), estimated(frame(judges=("j", "kk")), judge="judge")
    assert [row for row in both if row["judge"] == "j"] == one
    assert all(row["edits"] == 24 for row in both if row["scope"] == "all")
    assert not any(row["excluded"] for row in both)


def test_a_frame_without_any_score_has_reasons_in_the_columns_of_the_others():
    rows = estimated([row | {"race_change": math.nan} for row in frame()])
    assert rows
    for row in rows:
        assert (row["value"], row["low"], row["high"]) == (None, None, None)
        assert row["not_estimable"]


def test_one_group_may_be_named_without_a_list():
    assert estimated(frame(), groups="race") == estimated(frame())


@settings(max_examples=10, deadline=None)
@given(order=st.permutations(range(24)))
def test_the_order_of_rows_changes_nothing(order: list[int]):
    rows = frame()
    assert estimated([rows[place] for place in order], prompt="prompt") == estimated(rows, prompt="prompt")
