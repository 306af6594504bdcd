"""How many human ratings give ±5 points, before a study."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from scipy.special import stdtrit

from stillme.api.pipeline import run_stages
from stillme.audit.experiments import experiment
from stillme.findings.plan import plan_audit
from stillme.findings.plan.power import HALF_WIDTH, ratings_for
from tests.command_lines import invoke

Write = Callable[..., Path]
PORTRAITS, PROMPTS, RATE = 84, 20, 0.3


@pytest.mark.parametrize("wrong", [0.05, 0.2])
def test_a_study_of_that_size_has_that_interval(wrong: float):
    """Simulated: people's answers, a judge that errs, and the corrected rate of the edits that are rated."""
    stream = np.random.default_rng(1)
    chances = stream.beta(RATE * 9, (1 - RATE) * 9, size=(2000, PORTRAITS, 1))
    said = (stream.random((2000, PORTRAITS, PROMPTS)) < chances).astype(float).reshape(2000, -1)
    judged = np.where(stream.random(said.shape) < wrong, 1 - said, said)
    correlation = float(np.corrcoef(said.ravel(), judged.ravel())[0, 1])
    count = ratings_for(RATE, 0.1, [PROMPTS] * PORTRAITS, correlation, 0.95)
    slope = correlation * said.std() / judged.std()
    rated = stream.permuted(np.tile(np.arange(PORTRAITS * PROMPTS) < count, (2000, 1)), axis=1)
    rest = np.where(rated, said - slope * judged, 0.0).sum(axis=1) / count
    corrected = slope * judged.mean(axis=1) + rest
    assert stdtrit(PORTRAITS - 1, 0.975) * corrected.std() == pytest.approx(HALF_WIDTH, rel=0.06)


def test_a_better_judge_needs_fewer_ratings_and_a_useless_one_at_most_all():
    needed = [ratings_for(RATE, 0.1, [PROMPTS] * PORTRAITS, correlation, 0.95) for correlation in (0.9, 0.5, 0.0)]
    assert needed == sorted(needed, key=lambda count: count or 0)
    assert needed[-1] <= PORTRAITS * PROMPTS


def test_too_few_portraits_are_not_replaced_by_ratings():
    assert ratings_for(RATE, 0.1, [PROMPTS] * 12, 0.9, 0.95) is None


def test_the_plan_says_it_in_one_line_where_there_is_something_to_correct(
    tmp_path: Path, diagnosis: Path, write_audit: Write
):
    plan = plan_audit(diagnosis)
    needed = plan.ratings
    assert 0 < needed.low < needed.high < needed.edits == 1680
    assert f"{needed.low:,} to {needed.high:,} of 1,680 edits of each editor" in plan.as_text(power=True)
    assert plan.as_json()["ratings"]["high"] == needed.high

    (tmp_path / "roles").mkdir()
    (tmp_path / "roles" / "audit.toml").write_text(experiment("roles", "x"))
    assert plan_audit(tmp_path / "roles").ratings is None
    people = plan_audit(write_audit(judge='use = "people"'))
    assert people.ratings is None
    assert "Human ratings" not in people.as_text(power=True)


def test_the_next_command_is_what_to_do_next(diagnosis: Path, write_audit: Write):
    refused = invoke("plan", diagnosis)
    assert "Would be refused" in refused.stdout
    assert refused.stderr.strip().endswith(f"plan {diagnosis}")
    folder = write_audit()
    assert f"Next: stillme run {folder}" in invoke("plan", folder).stderr.replace(".venv/bin/", "")
    run_stages(folder, ("edit", "judge"))
    assert f"study new {folder}" in invoke("plan", folder).stderr
