"""What judges add to a run's numbers is found in its rows: by view, epoch, disclosure and missing score."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from stillme import audit as audits
from stillme.core.errors import InvalidAudit
from stillme.core.types import Abstained, Assessment, Request
from stillme.findings.tables.analyses import analyse
from stillme.runs import RecordedRun, behaviour
from stillme.runs.status import is_snapshot, model_names, status_of
from tests import runs
from tests.estimates.test_behaviour import interval
from tests.results.judged import fill, judge, rated, write_audit


def value(behaviours: list[behaviour.Behaviour], *asked: str) -> float:
    return interval(behaviours, *asked).value


def combined_scores(run: RecordedRun) -> tuple[str, set[float]]:
    (combined,) = [score for score in run.results.scores if (score.kind, score.axis) == ("ensemble", "race_change")]
    return combined.judge, set(combined.value[~np.isnan(combined.value)].tolist())


# -- position, repeats, disclosure -----------------------------------------------------------------------------------


def test_views_and_epochs_of_a_run_are_told_apart(tmp_path: Path):
    folder = write_audit(tmp_path, judge("flash", epochs=2, order="both"))
    # Epochs 0 and 2 show the source first: 2, then 3. Epochs 1 and 3 the edit first: always 5.
    fill(folder, lambda _name, _request, epoch: rated(race_change=(2.0, 5.0, 3.0, 5.0)[epoch]))
    with RecordedRun.open(folder) as run:
        position, repeats = behaviour.position_bias(run), behaviour.repeatability(run)
    assert value(position, "edited_first") == 2.5
    assert value(position, "over_one") == 1
    assert value(repeats, "identical") == 0
    assert value(repeats, "within_one") == 1
    # Half the pairs of answers differ by a point, the others not at all.
    assert value(repeats, "sd") == pytest.approx(0.5)


def test_an_abstention_is_no_answer_to_compare(tmp_path: Path):
    folder = write_audit(tmp_path, judge("flash", order="both"))

    def say(_name: str, request: Request, epoch: int) -> Assessment:
        if epoch == 1 and runs.group(request) == "a":
            return Assessment(ratings={"race_change": Abstained(reason="no")})
        return rated(race_change=1.0 + epoch)

    fill(folder, say)
    with RecordedRun.open(folder) as run:
        position = behaviour.position_bias(run)
    assert {part.edits for part in position if part.scope == "all"} == {12 * 4}
    assert value(position, "edited_first") == 1


def test_a_judge_asked_once_has_nothing_to_compare(tmp_path: Path):
    folder = fill(write_audit(tmp_path, judge("flash")), lambda *_: rated(race_change=1.0))
    with RecordedRun.open(folder) as run:
        assert run.results.repeats == ()
        known = behaviour.behaviour_of(run)
    assert known.coverage == ()
    assert known.combination is None


def test_the_same_model_blind_and_told_is_compared_and_others_are_not(tmp_path: Path):
    told = judge("told", disclosure="paper")
    other = judge("other", model="else", disclosure="paper")
    folder = write_audit(tmp_path, judge("blind"), told, other, ensemble={"judges": []})

    def say(name: str, request: Request, _epoch: int) -> Assessment:
        return rated(race_change=1.0 + 2 * (name == "told" and runs.group(request) == "a"))

    fill(folder, say)
    with RecordedRun.open(folder) as run:
        effect = behaviour.disclosure_effect(run)
        assert not any(score.kind == "ensemble" for score in run.results.scores)
    assert {(part.judge, part.against) for part in effect} == {("told", "blind")}
    assert value(effect, "unblinded_minus_blind", "a") == 2
    assert value(effect, "unblinded_minus_blind", "a - rest") == 2


# -- the ensemble ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("order", "expected"), [(["one", "two"], 1.0), (["two", "one"], 4.0)])
def test_the_first_of_the_ensembles_judges_is_primary(tmp_path: Path, order: list[str], expected: float):
    ensemble = {"rule": "paper", "judges": order}
    folder = write_audit(tmp_path, judge("one"), judge("two", model="else"), ensemble=ensemble)
    fill(folder, lambda name, *_: rated(race_change=1.0 if name == "one" else 4.0))
    with RecordedRun.open(folder) as run:
        assert combined_scores(run) == ("ensemble (paper)", {expected})
        combination = behaviour.combination(run)
        assert combination.primary == order[0]
        assert run.design.resolved["ensemble"]["primary"] == order[0]
        path = next(iter(analyse(run, only=["coverage"]).values())).path
    assert f"\n{order[0]}," in path.read_text()


def test_a_rule_without_a_primary_judge_names_none(tmp_path: Path):
    folder = write_audit(tmp_path, judge("one"), judge("two", model="else"))
    resolved = audits.load(folder, ready=False).resolved["ensemble"]
    assert resolved["combined"] == ["one", "two"]
    assert "primary" not in resolved


def test_an_ensemble_of_blind_and_told_judges_says_so_in_its_name(tmp_path: Path):
    mixed = {"mixed_disclosure": True}
    folder = write_audit(tmp_path, judge("blind"), judge("told", disclosure="paper"), ensemble=mixed)
    fill(folder, lambda name, *_: rated(race_change=1.0 if name == "blind" else 2.0))
    with RecordedRun.open(folder) as run:
        assert combined_scores(run) == ("ensemble (mean, blind and unblinded)", {1.5})
        combination = behaviour.combination(run)
    assert combination.mixed


@pytest.mark.parametrize(
    ("second", "ensemble", "problem"),
    [
        ({"model": "else"}, {"judges": ["one"]}, "names one judge"),
        ({"model": "else"}, {"judges": ["one", "one"]}, "names 'one' twice"),
        ({"disclosure": "paper"}, {}, r"told the labels \(two\) with blind ones \(one\).*mixed_disclosure"),
    ],
)
def test_the_ensembles_judges_are_several_different_ones_that_know_as_much(tmp_path: Path, second, ensemble, problem):
    folder = write_audit(tmp_path, judge("one"), judge("two", **second), ensemble=ensemble)
    with pytest.raises(InvalidAudit, match=problem):
        audits.load(folder, ready=False)


# -- missing judges --------------------------------------------------------------------------------------------------


def one_silent_judge(folder: Path, groups: str) -> Path:
    """Judge `two` gives no score for these groups."""
    write_audit(folder, judge("one"), judge("two", model="else"))

    def say(name: str, request: Request, _epoch: int) -> Assessment:
        if name == "two" and runs.group(request) in groups:
            return Assessment(ratings={"race_change": Abstained(reason="policy: I will not rate people")})
        return rated(race_change=2.0)

    return fill(folder, say)


def test_a_judge_that_refuses_everything_is_no_second_judge(tmp_path: Path):
    with RecordedRun.open(one_silent_judge(tmp_path, "ab")) as run:
        known, status = behaviour.behaviour_of(run), status_of(run)
    assert known.incomplete == {"race_change": 1}
    (warning,) = known.warnings
    assert warning == "100.0 % of the combined scores lack a judge (“Race Change”): two gave none for 100.0 %."
    assert "warning: 100.0 % of 96 combined scores lack a judge (no score by two 96)" in status.as_text()
    assert status.as_json()["combined"] == {"edits": 96, "incomplete": 96, "by_judge": {"two": 96}}


def test_a_judge_that_refuses_one_group_is_named_as_unequal(tmp_path: Path):
    with RecordedRun.open(one_silent_judge(tmp_path, "a")) as run:
        known = behaviour.behaviour_of(run)
    assert any("in some groups of group than in others (“Race Change”; p" in text for text in known.warnings)


def test_a_whole_ensemble_has_no_warning(tmp_path: Path):
    with RecordedRun.open(one_silent_judge(tmp_path, "")) as run:
        known, status = behaviour.behaviour_of(run), status_of(run)
    assert known.warnings == []
    assert status.gaps is None
    assert "lack a judge" not in status.as_text()


def test_status_counts_no_judge_that_has_not_answered_yet(tmp_path: Path):
    folder = one_silent_judge(tmp_path, "ab")
    audit = folder / "audit.toml"
    audit.write_text(audit.read_text().replace('"else"', '"another"'))
    loaded = audits.load(folder, ready=False)
    with RecordedRun.open(folder) as run:
        run.design = loaded.design()
        assert behaviour.gaps(run) is None


# -- which model answered --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("asked", "name", "same"),
    [
        ("gpt-5.2", "gpt-5.2", True),
        ("gpt-5.2", "gpt-5.2-2026-01-10", True),
        ("claude-sonnet-5", "claude-sonnet-5-20260110", True),
        ("claude-sonnet-latest", "claude-sonnet-20260110", True),
        ("models/gemini-3-flash", "gemini-3-flash-001", True),
        ("gpt-5", "gpt-5-mini-2026-01-10", False),
        ("gpt-5", "gpt-5.2", False),
        ("gpt-5.2-2026-01-10", "gpt-5.2", False),
        ("gpt-5.2-2026-01-10", "gpt-5.2-2026-03-01", False),
    ],
)
def test_a_dated_snapshot_is_the_model_that_was_asked(asked: str, name: str, same: bool):
    assert is_snapshot(name, of=asked) is same


@pytest.mark.parametrize(
    ("early", "late", "drifted"),
    [
        ("gpt-5.2", "gpt-5.2", False),
        ("gpt-5.2-2026-01-10", "gpt-5.2-2026-01-10", False),
        ("gpt-5.2", "gpt-5.2-2026-01-10", False),
        ("gpt-5.2-2026-01-10", "gpt-5.2-2026-03-01", True),
        ("gpt-5.2", "gpt-4o", True),
        ("gpt-4o", "gpt-4o", True),
    ],
)
def test_another_model_or_two_snapshots_are_shown(tmp_path: Path, early: str, late: str, drifted: bool):
    folder = write_audit(tmp_path, judge("gpt"))
    fill(folder, lambda _name, request, _epoch: rated(early if runs.group(request) == "a" else late, race_change=1.0))
    with RecordedRun.open(folder) as run:
        (names,) = model_names(run)
        status = status_of(run)
    assert names.drifted is drifted
    assert ("warning: gpt asked for gpt-5.2" in status.as_text()) is drifted
    (entry,) = json.loads(json.dumps(status.as_json()))["models"]
    assert (entry["asked"], entry["drifted"]) == ("gpt-5.2", drifted)
    assert sum(model["answers"] for model in entry["answered"]) == names.total == 96


def test_a_judge_that_names_no_model_has_none(tmp_path: Path):
    folder = runs.write_audit(tmp_path / "run", runs.people(tmp_path / "people"))
    runs.fill(folder, lambda *_: runs.scores())
    with RecordedRun.open(folder) as run:
        assert model_names(run) == []
