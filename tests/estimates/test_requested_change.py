"""What a prompt asks for is no drift: thirty more years count as accuracy, never as a change of age."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from stillme.core import prompts, rubric
from stillme.estimates import Edits, RatingState, Scores, Settings, estimate, paired_row_tests, row_tests
from stillme.estimates.agreement import agreement
from stillme.estimates.people import against_people
from tests.estimates import worlds

pytestmark = pytest.mark.numeric

SETTINGS = Settings(factors=("race",))


def only_the_aging_prompt_ages(arms: tuple[str, ...] = ("baseline",)) -> tuple[Edits, Scores]:
    """The paper's 84 portraits and 20 prompts; V-05 makes everyone much older, nothing else changes anyone."""
    asked = prompts.diagnostic()
    aged = np.array([prompt.years is not None for prompt in asked])
    values = np.broadcast_to(np.where(aged, 5.0, 3.0)[None, :, None], (84, 20, len(arms))).copy()
    edits, score = worlds.rows(worlds.people("ABCDEFG", 12), values, axis="age_change", arms=arms)
    return replace(edits, prompts=asked), score


def test_a_run_where_only_the_aging_prompt_ages_has_no_drift():
    edits, score = only_the_aging_prompt_ages()
    everyone = next(row for row in estimate(edits, [score], SETTINGS) if row.quantity == "age_change")
    assert everyone.outcome.value == 3.0
    assert everyone.edits == 84 * 19
    assert not everyone.excluded, "an edit that asks for the change is not missing from the number"
    # The other convention, the mean over all prompts: more than the paper's editors differ by (2.89 to 3.00).
    assert score.value.mean() == pytest.approx(3.10)


def test_accuracy_is_asked_and_counted_where_years_are_requested_and_nowhere_else():
    edits, score = only_the_aging_prompt_ages()
    aged = ~edits.counting("age_change")
    state = np.where(aged, RatingState.RATED, RatingState.MISSING).astype(np.int32)
    accuracy = replace(score, axis="age_accuracy", state=state)
    everyone = next(row for row in estimate(edits, [accuracy], SETTINGS) if row.quantity == "age_accuracy")
    assert (everyone.edits, dict(everyone.excluded)) == (84, {}), "V-06 is about age too, but names no target"
    axis = rubric.load().axes["age_accuracy"]
    assert [prompt.id for prompt in edits.prompts if axis.asked_of(prompt)] == ["V-05"]


def test_tests_and_agreement_leave_requested_change_out_as_well():
    edits, score = only_the_aging_prompt_ages(("baseline", "feature"))
    stream = np.random.default_rng(1)
    lower = replace(score, judge="other", value=np.clip(score.value - stream.integers(0, 2, len(edits)), 1, 5))
    assert {test.edits for test in row_tests(edits, [lower], SETTINGS) if test.test == "Kruskal–Wallis"} == {84 * 19}
    assert {test.edits for test in paired_row_tests(edits, [lower])} == {84 * 19}
    assert {row.items for row in agreement(edits, [score, lower], replace(SETTINGS, factors=()))} == {2 * 84 * 19}
    bias = next(row for row in against_people(edits, score, lower, SETTINGS) if row.measure == "bias")
    assert bias.edits == 2 * 84 * 19
