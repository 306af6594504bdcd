from __future__ import annotations

from pathlib import Path

import pytest

from stillme.core import registry
from stillme.core.errors import UnknownName
from stillme.findings import calibration
from stillme.findings.calibration import honest
from stillme.findings.calibration.trials import Sources, calibrate
from stillme.work.options import RunOptions

ONE = Sources(changed=1, null=1)


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STILLME_HOME", str(tmp_path / "home"))


def test_the_instruments_measure_skin_truly_on_every_skin(tmp_path: Path):
    found, _ = calibrate("instruments", {}, tmp_path / "c", sources=ONE, options=RunOptions())
    for axis in ("skin_delta_l", "skin_tone", "visible_change"):
        assert found.axes[axis]["everyone"].sensitivity.value == 1, found.as_text()
    assert set(found.axes["skin_delta_l"]) == {"everyone", "darker", "medium", "lighter"}
    assert abs(found.axes["skin_delta_l"]["everyone"].bias.value) < 0.3
    nulls = found.axes["identity_distance"]["everyone"].nulls
    assert set(honest.load().kinds) <= set(nulls)
    assert nulls["mirror"].value == nulls["zoom"].value == nulls["rotation"].value == 0


def test_a_judge_that_says_nothing_changed_fails_and_a_first_look_is_not_kept(tmp_path: Path):
    found, file = calibrate("scripted", {}, tmp_path / "c", sources=ONE, options=RunOptions())
    spec, other = (registry.build("judge", "scripted", chosen).spec for chosen in ({}, {"scores": {"skin_tone": 4}}))
    assert found.verdicts["skin_tone"] == "failed"
    assert found.verdicts["edit_success"] == "failed", "it claims success where nothing was edited"
    assert (file, calibration.find(spec)) == (None, None)
    assert "A first look" in found.as_text()
    calibration.save(found)
    assert calibration.find(spec) == found
    assert calibration.find(other) is None, "another parameter is another judge"
    tallies = []
    assert calibrate("scripted", {}, tmp_path / "c", sources=ONE, options=RunOptions(watch=tallies.append))[0] == found
    assert all(tally.done == 0 for tally in tallies), "what was asked is not asked again"


def test_the_default_judge_ships_calibrated():
    judge = registry.plugin_class("judge", "instruments")
    shipped = calibration.find(judge(judge.Parameters()).spec)
    assert shipped is not None, "run `stillme calibrate instruments` and copy the result to calibration/shipped"
    assert shipped.verdicts["visible_change"] == "passed"
    assert not shipped.first_look


def test_an_unknown_judge_is_named(tmp_path: Path):
    with pytest.raises(UnknownName, match="Did you mean 'instruments'"):
        calibrate("instrument", {}, tmp_path / "c", sources=ONE, options=RunOptions())
    assert not (tmp_path / "c").exists()
