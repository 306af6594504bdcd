from __future__ import annotations

import os
import subprocess
import sys
import tracemalloc
from dataclasses import replace
from pathlib import Path

import numpy as np
from PIL import Image

from stillme.core import colour, images
from stillme.core.types import Edited, ImageFile, Portrait, digest
from stillme.editors.planted import Effect, Planted, PlantedParameters
from stillme.editors.regions import lab_of, move
from stillme.portraits import portraits
from tests.records import asked

ALL_COLOURS = np.stack(np.meshgrid(*[np.arange(0, 256, 5, dtype=np.uint8)] * 3), axis=-1).reshape(-1, 3)


def edited(portrait: Portrait) -> Edited:
    editor = Planted(PlantedParameters(everyone=Effect(skin_shift=5), recolour="both"))
    (outcome,) = editor.edit([asked(editor, portrait, seed=1)])
    assert isinstance(outcome, Edited)
    return outcome


def hashes() -> list[str]:
    """Of the pixels of some edits."""
    return [digest(images.read_rgb(edited(portrait).image).tobytes().hex()) for portrait in portraits()[:84:21]]


def test_colours_are_those_that_instruments_measure():
    assert np.abs(lab_of(ALL_COLOURS) - colour.to_lab(ALL_COLOURS)).max() < 0.1


def test_a_colour_that_moves_nowhere_stays():
    still = ALL_COLOURS.copy()
    weights = np.ones(len(still), dtype=np.float32)
    move(still, 0 * weights, weights, (0.0, 0.0, 0.0))
    assert np.array_equal(still, ALL_COLOURS)


def test_lightness_moves_by_what_was_asked():
    grey = np.repeat(np.arange(30, 200, dtype=np.uint8)[:, None], 3, axis=1)
    lighter = grey.copy()
    move(lighter, np.full(len(grey), 6, dtype=np.float32), None, (0.0, 0.0, 0.0))
    moved = colour.to_lab(lighter)[:, 0] - colour.to_lab(grey)[:, 0]
    assert np.abs(moved - 6).max() < 0.25  # half of an 8-bit step
    assert abs(moved.mean() - 6) < 0.02


def test_edits_are_the_same_on_another_processor():
    script = "from tests.editors.test_painting import hashes; print(*hashes())"
    other = {"NPY_DISABLE_CPU_FEATURES": "X86_V4 AVX512_ICL AVX512_SPR", "OPENBLAS_CORETYPE": "Prescott"}
    environment = os.environ | other | {"PYTHONWARNINGS": "ignore"}
    done = subprocess.run(
        [sys.executable, "-c", script], check=True, capture_output=True, text=True, env=environment, timeout=300
    )
    assert done.stdout.split() == hashes()


def test_a_camera_s_portrait_takes_no_more_memory_than_a_few_copies_of_it(tmp_path: Path):
    file = tmp_path / "large.jpg"
    Image.fromarray(images.read_rgb(portraits()[0].image.path)).resize((2800, 2800)).save(file, quality=90)
    large = replace(portraits()[0], image=ImageFile.of(file))
    edited(portraits()[1])  # opens the networks
    tracemalloc.start()
    try:
        outcome = edited(large)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert outcome.effective["size"] == [2800, 2800]
    assert peak < 8 * 2800 * 2800 * 3
