"""What human ratings buy: expected intervals of corrected numbers, before a study."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner

from stillme.audit.experiments import experiment
from stillme.cli import cli
from stillme.estimates.intervals import t_quantile
from stillme.exchange import ColumnMapping, import_judgements
from stillme.pipeline import Options, run_stages
from stillme.planning import PlanOptions, plan_audit
from stillme.planning.people import Answers
from stillme.planning.power import Side, effective_size
from stillme.planning.ratings import Sides, Width, expected_width

Write = Callable[..., Path]
PROMPTS = [f"O-{number:02}" for number in range(1, 11)]


def answers(unexplained: float, *, rate: float | None = None) -> Answers:
    return Answers(
        quantity="race_change",
        rate=rate,
        variance=1.0 if rate is None else rate * (1 - rate),
        icc=0.1,
        unexplained=(unexplained, unexplained),
        correlation=(0.0, 0.0),
        rated=0,
        disputed=None,
    )


SIDES = Sides(everyone=Side.of(84, 20), group=Side.of(12, 20), rest=Side.of(72, 20), groups=7)


def test_all_edits_rated_leave_only_the_portraits_as_a_sample():
    width = expected_width(answers(0.5), SIDES, 1680, "uniform", 0.95)
    error = math.sqrt(1 / effective_size([20.0] * 84, 0.1))
    assert width.everyone == pytest.approx((t_quantile(0.975, 83) * error,) * 2)
    assert width == expected_width(answers(1.0), SIDES, 1680, "uniform", 0.95), "the judge is then not needed"


def test_a_judge_that_explains_nothing_leaves_people_alone():
    """One rated edit a portrait, and nothing explained: the standard error of 84 independent answers."""
    one_each = Sides(everyone=Side.of(84, 1_000_000))
    width = expected_width(answers(0.9), one_each, 84, "uniform", 0.95)
    assert width.everyone
    assert width.everyone[0] == pytest.approx(t_quantile(0.975, 52.1) * math.sqrt(1 / 84), rel=0.01)
    assert (width.group, width.contrast) == (None, None)


def test_more_ratings_and_a_better_judge_both_narrow_the_interval():
    halves = [expected_width(answers(0.5), SIDES, rated, "uniform", 0.95).group for rated in (100, 300, 1000)]
    assert all(halves)
    assert [half[0] for half in halves if half] == sorted((half[0] for half in halves if half), reverse=True)
    better = expected_width(answers(0.1), SIDES, 100, "uniform", 0.95).group
    assert better
    assert halves[0]
    assert better[0] < halves[0][0]


def test_a_rates_limits_stay_between_0_and_1():
    width = expected_width(answers(0.02, rate=0.02), SIDES, 100, "uniform", 0.95)
    assert width.group
    assert width.group[0] < 0.5


def test_before_any_answer_a_range_of_correlations_is_assumed(tmp_path: Path):
    (tmp_path / "audit.toml").write_text(experiment("diagnosis", "x"))
    ratings = plan_audit(tmp_path).ratings
    assert (ratings.edits, ratings.factor, ratings.portraits) == (1680, "preset", 12)
    assert {width.rated for width in ratings.widths} == {100, 300, 1000, 1680}
    assert {relation.correlation for relation in ratings.assumed} == {(0.4, 0.8)}
    assert "assumed (no answers yet): correlation of judge and people 0.4 to 0.8" in ratings.origin
    assert any("Informative draws need two models' answers" in note for note in ratings.notes)
    for width in ratings.widths:
        assert width.everyone
        assert width.group
        assert width.contrast
        assert (width.everyone[0] < width.everyone[1]) == (width.rated < 1680)


def test_nothing_is_said_where_there_is_nothing_to_correct(tmp_path: Path, write_audit: Write):
    (tmp_path / "roles").mkdir()
    (tmp_path / "roles" / "audit.toml").write_text(experiment("roles", "x"))
    roles = plan_audit(tmp_path / "roles").ratings
    assert roles.widths == ()
    assert "No editor edits single people" in roles.notes[0]
    people = plan_audit(write_audit(judge='use = "people"')).ratings
    assert people.widths == ()
    assert "nothing for human ratings to correct" in people.notes[0]


def scored(folder: Path, name: str, kind: str, score: Callable[[int, int], float | None]) -> None:
    """Import one judge's scores of six portraits × ten prompts."""
    rows = [
        f"p{index},{prompt},{value:g}"
        for index in range(6)
        for place, prompt in enumerate(PROMPTS)
        if (value := score(index, place)) is not None
    ]
    (folder / f"{name}.csv").write_text("\n".join(["portrait,prompt,edit_success", *rows]))
    import_judgements(folder / f"{name}.csv", folder, name, ColumnMapping(), declare=kind)  # pyright: ignore[reportArgumentType]


@pytest.fixture
def run(write_audit: Write) -> Path:
    """Two models that agree on most edits; the first is the primary."""
    folder = write_audit(prompts=json.dumps(PROMPTS))
    run_stages(folder, ("edit",), Options())
    scored(folder, "one", "model", lambda index, place: 1 + (index + place) % 5)
    scored(folder, "two", "model", lambda index, place: 1 + (index + place + (place == 3)) % 5)
    return folder


def row(folder: Path, rated: int, drawn: str, options: PlanOptions | None = None) -> Width:
    ratings = plan_audit(folder, options).ratings
    (width,) = [
        width
        for width in ratings.widths
        if (width.quantity, width.rated, width.drawn) == ("edit_success", rated, drawn)
    ]
    return width


def test_a_runs_own_answers_and_ratings_replace_what_is_assumed(run: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("stillme.planning.ratings.RATED", (30,))
    models = plan_audit(run).ratings
    assert "fewer than 30 human ratings" in models.origin
    uniform, informative = row(run, 30, "uniform"), row(run, 30, "informative")
    assert uniform.everyone
    assert informative.everyone
    assert uniform.everyone[0] < uniform.everyone[1]
    # At best the judge errs where models disagree, at worst it does not.
    assert informative.everyone[0] < uniform.everyone[0]
    assert informative.everyone[1] > uniform.everyone[1]
    # People say what the first model says, but for the edits that models dispute.
    scored(run, "people", "person", lambda index, place: 3 if place == 3 else 1 + (index + place) % 5)
    measured = plan_audit(run).ratings
    (relation,) = [each for each in measured.assumed if each.quantity == "edit_success"]
    assert relation.measured_on == 60
    assert 0.85 < relation.correlation[0] == relation.correlation[1] < 1
    assert "on 60 edits: correlation of judge and people 0.9" in measured.origin
    uniform, informative = row(run, 30, "uniform"), row(run, 30, "informative")
    assert uniform.everyone
    assert informative.everyone
    assert uniform.everyone[0] == uniform.everyone[1]
    assert informative.everyone[0] < uniform.everyone[0], "disputed edits are what people should rate"


def test_answers_that_are_all_the_same_say_nothing(write_audit: Write):
    folder = write_audit(prompts=json.dumps(PROMPTS))
    run_stages(folder, ("edit",), Options())
    scored(folder, "one", "model", lambda _index, _place: 4)
    ratings = plan_audit(folder).ratings
    assert "every answer so far is the same" in ratings.notes[0]
    assert "no answers yet" in ratings.origin


def test_the_next_command_is_what_to_do_next(tmp_path: Path, write_audit: Write):
    (tmp_path / "audit.toml").write_text(experiment("diagnosis", "x"))
    refused = CliRunner().invoke(cli, ["plan", str(tmp_path)])
    assert "Would be refused" in refused.stdout
    assert refused.stderr.strip().startswith("Next: correct what would be refused")
    assert refused.stderr.strip().endswith(f"plan {tmp_path}")
    folder = write_audit()
    assert f"Next: stillme run {folder}" in CliRunner().invoke(cli, ["plan", str(folder)]).stderr.replace(
        ".venv/bin/", ""
    )
    run_stages(folder, ("edit", "judge"), Options())
    assert f"study new {folder}" in CliRunner().invoke(cli, ["plan", str(folder)]).stderr
