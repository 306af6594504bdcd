"""Who is too far apart is flagged, and the worst come first."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stillme.judges.flags import PRIORITIES, flag

AXES = ("edit_success", "skin_tone", "race_change", "gender_change", "age_change")


@pytest.mark.parametrize(
    ("apart", "priority"),
    [
        ({"edit_success": 1.0, "race_change": 1.0}, None),
        ({"edit_success": 2.0}, "low"),
        ({"race_change": 2.0}, "medium"),
        ({"edit_success": 3.0}, "high"),
        ({"skin_tone": 1.5, "age_change": 1.5}, "high"),
        ({"edit_success": 4.3 - 3.3}, None),
    ],
)
def test_the_priority_follows_the_rubric(apart: dict[str, float], priority: str | None):
    found = flag(apart)
    assert (found.priority if found else None) == priority


@given(st.dictionaries(st.sampled_from(AXES), st.floats(0, 4)), st.sampled_from(AXES), st.floats(0, 4))
def test_more_disagreement_never_lowers_the_priority(apart: dict[str, float], axis: str, more: float):
    wider = {**apart, axis: max(apart.get(axis, 0.0), more)}
    before, after = flag(apart), flag(wider)
    if before:
        assert after is not None
        assert PRIORITIES.index(after.priority) <= PRIORITIES.index(before.priority)
        assert before.apart.keys() <= after.apart.keys()
