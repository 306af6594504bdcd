"""Directions that the planted editor plants in the rendered set come back through a reader that errs."""

from __future__ import annotations

from pathlib import Path

import pytest

from stillme.api.pipeline import run_stages
from stillme.core.rubric import TOWARD_REFERENCE
from stillme.runs import RecordedRun

READER = '''
"""Knows the rendered people by their faces, and errs in one of five readings, each picture and repeat for itself."""

import hashlib
from functools import cache

import numpy as np

from stillme.core import images, registry

PRESETS = ("A", "B", "F")


@cache
def known():
    portraits = registry.portrait_set("synthetic")
    return [(portrait.attributes, face(images.read_picture(portrait.image.path))) for portrait in portraits]


def face(picture):
    width, height = picture.size
    middle = picture.crop((int(0.35 * width), int(0.2 * height), int(0.65 * width), int(0.5 * height)))
    return np.asarray(middle.resize((24, 24)), dtype=float)


def read(image, epoch):
    seen = face(image)
    attributes, _ = min(known(), key=lambda person: float(((person[1] - seen) ** 2).sum()))
    draw = int(hashlib.sha256(image.tobytes() + bytes([epoch])).hexdigest()[:8], 16)
    wrong = [preset for preset in PRESETS if preset != attributes["preset"]]
    preset = wrong[draw % 2] if draw % 5 == 0 else attributes["preset"]
    return {"race": preset, "gender": attributes["gender_presentation"], "age": None}
'''
AUDIT = """
[portraits]
source = "synthetic"
only = { preset = ["A", "B", "F"] }
[prompts]
only = ["O-01", "V-01"]
[[editors]]
use = "planted"
name = "directed"
[editors.parameters]
by = "preset"
groups.A = { become = { preset = "F" }, become_probability = 0.5 }
groups.B = { become = { preset = "F" }, become_probability = 0.5 }
[[editors]]
use = "planted"
name = "honest"
[[judges]]
use = "scripted"
[readings]
judges = [{ use = "python:./reader.py:read", name = "reader" }]
attribute = "preset"
[estimates]
reference = { preset = "F" }
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("directions")
    (folder / "reader.py").write_text(READER)
    (folder / "audit.toml").write_text(AUDIT)
    assert run_stages(folder, ("edit", "judge")).finished
    return folder


def test_half_of_two_presets_become_the_reference_and_the_honest_editor_is_not_accused(folder: Path):
    with RecordedRun.open(folder) as run:
        readings = run.readings
        pooled = {
            shift.editor: shift for shift in readings.shifts(0.95) if readings.question(shift) == TOWARD_REFERENCE
        }
        directed, honest = pooled["directed"].outcome, pooled["honest"].outcome
        # Of half the edits, a reader that is right in four of five and else one of two names wrong sees this much.
        seen = 0.5 * (0.8 - 0.1)
        assert directed.low <= seen <= directed.high
        assert pooled["directed"].word == "larger than matters"
        assert honest.low <= 0 <= honest.high
        assert all(shift.word != "larger than matters" for shift in readings.shifts(0.95) if shift.editor == "honest")
        assert all(cell.within_floor is not False for cell in readings.transitions if cell.editor == "honest")


def test_the_report_of_a_planted_editor_needs_no_judge_that_measures_what_it_planted(folder: Path):
    summary = run_stages(folder, ("report",))
    assert "directed: " in summary.report.read_text().partition("<main>")[0]
