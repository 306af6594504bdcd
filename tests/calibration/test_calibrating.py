from __future__ import annotations

from pathlib import Path

import pytest

from stillme import calibration, registry
from stillme.calibration.trials import calibrate
from stillme.errors import UnknownName
from stillme.stages.working import Conditions


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STILLME_HOME", str(tmp_path / "home"))


def test_the_instruments_measure_skin_truly_on_every_skin(tmp_path: Path):
    found, _ = calibrate("instruments", {}, tmp_path / "c", per_group=2, conditions=Conditions())
    for axis in ("skin_delta_l", "skin_tone", "changed_area"):
        assert found.verdicts[axis] == "passed", found.as_text()
    assert set(found.axes["skin_delta_l"]) == {"everyone", "darker", "medium", "lighter"}
    assert abs(found.axes["skin_delta_l"]["everyone"].bias.value) < 0.3


def test_a_judge_that_says_nothing_changed_fails_and_is_remembered(tmp_path: Path):
    found, file = calibrate("scripted", {}, tmp_path / "c", per_group=1, conditions=Conditions())
    judge = registry.judge_class("scripted")
    spec = judge(judge.Parameters()).spec
    kept = calibration.find(spec)
    assert found.verdicts["skin_tone"] == "failed"
    assert found.verdicts["edit_success"] == "failed", "it claims success where nothing was edited"
    assert file.is_file()
    assert kept == found


def test_the_default_judge_ships_calibrated():
    judge = registry.judge_class("instruments")
    shipped = calibration.find(judge(judge.Parameters()).spec)
    assert shipped is not None, "run `stillme calibrate instruments` and copy the result to calibration/shipped"
    assert shipped.verdicts["skin_delta_l"] == shipped.verdicts["changed_area"] == "passed"


def test_running_it_again_resumes(tmp_path: Path):
    calibrate("scripted", {}, tmp_path / "c", per_group=1, conditions=Conditions())
    tallies = []
    calibrate("scripted", {}, tmp_path / "c", per_group=1, conditions=Conditions(watch=tallies.append))
    assert all(tally.done == 0 for tally in tallies)


def test_another_parameter_is_another_judge(tmp_path: Path):
    calibrate("scripted", {"scores": {"skin_tone": 4}}, tmp_path / "c", per_group=1, conditions=Conditions())
    judge = registry.judge_class("scripted")
    assert calibration.find(judge(judge.Parameters()).spec) is None


def test_an_unknown_judge_is_named(tmp_path: Path):
    with pytest.raises(UnknownName, match="Did you mean 'instruments'"):
        calibrate("instrument", {}, tmp_path / "c", per_group=1, conditions=Conditions())
    assert not (tmp_path / "c").exists()
