"""Disagreement is flagged, and the worst comes first."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stillme.judges.ensemble import PRIORITIES, flag

AXES = ("edit_success", "skin_tone", "race_change", "gender_change", "age_change")


@pytest.mark.parametrize(
    ("differences", "priority"),
    [
        ({"edit_success": 1.0, "race_change": 1.0}, None),
        ({"edit_success": 2.0}, "low"),
        ({"race_change": 2.0}, "medium"),
        ({"edit_success": 3.0}, "high"),
        ({"skin_tone": 1.5, "age_change": 1.5}, "high"),
        ({"edit_success": 4.3 - 3.3}, None),
        ({"role_target": 1.0}, "high"),
        ({"role_target": 0.0}, None),
    ],
)
def test_the_priority_follows_the_rubric(differences: dict[str, float], priority: str | None):
    flagged = flag(differences)
    assert (flagged.priority if flagged else None) == priority


@given(st.dictionaries(st.sampled_from(AXES), st.floats(0, 4)), st.sampled_from(AXES), st.floats(0, 4))
def test_more_disagreement_never_lowers_the_priority(differences: dict[str, float], axis: str, more: float):
    wider = {**differences, axis: max(differences.get(axis, 0.0), more)}
    before, after = flag(differences), flag(wider)
    if before:
        assert after is not None
        assert PRIORITIES.index(after.priority) <= PRIORITIES.index(before.priority)
        assert before.differences.keys() <= after.differences.keys()
