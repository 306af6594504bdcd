from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from stillme.core import images
from stillme.core.errors import StillmeError
from stillme.core.protocols import Editor
from stillme.core.types import Edited, Portrait, Prompt
from stillme.editors import known, rendered
from stillme.editors.known import Known, KnownParameters
from stillme.editors.rendered import Rendered, RenderedParameters
from stillme.portraits import portraits
from tests.records import asked, portrait

PROMPTS = {prompt.id: prompt for prompt in known.prompts()}


def edit(editor: Editor, portrait: Portrait, prompt: Prompt) -> Edited:
    (outcome,) = editor.edit([asked(editor, portrait, what=prompt)])
    assert isinstance(outcome, Edited), outcome
    return outcome


def changed(name: str, portrait: Portrait) -> np.ndarray:
    strangers = {portrait.id: str(portraits()[-1].image.path)}
    return images.read_rgb(edit(Known(KnownParameters(strangers=strangers)), portrait, PROMPTS[name]).image)


def test_identical_is_so_to_the_byte_another_person_is_another_picture_and_black_is_black():
    portrait = portraits()[0]
    assert edit(Known(KnownParameters()), portrait, PROMPTS["identical"]).image == portrait.image.read()
    assert np.array_equal(changed("swapped", portrait), images.read_rgb(portraits()[-1].image.path))
    assert changed("black", portrait).max() == 0


def test_re_encoding_and_resizing_move_pixels_a_little():
    portrait = portraits()[0]
    before = images.read_rgb(portrait.image.path).astype(int)
    for name in ("jpeg", "resized"):
        off = np.abs(changed(name, portrait).astype(int) - before)
        assert 0 < off.mean() < 3, name


def test_exposure_doubles_the_light_every_stop():
    portrait = portraits()[0]
    from stillme.core.colour import to_linear

    before = to_linear(images.read_rgb(portrait.image.path))
    after = to_linear(changed("exposure+0.5", portrait))
    middle = (before > 0.05) & (before < 0.5)
    assert np.median(after[middle] / before[middle]) == pytest.approx(2**0.5, rel=0.02)


def test_prompts_that_name_no_change_and_swaps_without_strangers_are_problems():
    stray = Prompt(id="O-01", text="x", category="x", subcategory="authority")
    editor = Known(KnownParameters())
    problems = list(editor.problems(portraits()[:1], [stray, PROMPTS["swapped"]]))
    assert "'O-01' names no known change" in problems[0]
    assert f"has no picture for the portrait {portraits()[0].id!r}" in problems[1]


@pytest.fixture
def renders(tmp_path: Path) -> Path:
    for name in ("s1_age", "s2_age", "s1_swap"):
        (tmp_path / f"{name}.png").write_bytes(images.encode_png(np.full((8, 8, 3), len(name), dtype=np.uint8)))
    (tmp_path / "manifest.csv").write_text(
        "subject,axis,amount,changed_file\n"
        "s1,none,0.0,s1.png\ns1,age,-20.0,s1_age.png\ns2,age,-20.0,s2_age.png\ns1,identity,1,s1_swap.png\n"
    )
    return tmp_path


def test_rendered_changes_are_found_by_subject_and_amount(renders: Path):
    asked = rendered.prompts(renders)
    assert [(prompt.id, prompt.subcategory) for prompt in asked] == [("age-20", "age")], "only what all subjects have"
    editor = Rendered(RenderedParameters(folder=renders))
    assert edit(editor, portrait("s2"), asked[0]).image == (renders / "s2_age.png").read_bytes()
    assert list(editor.problems([portrait("s1"), portrait("s2")], asked)) == []
    (problem,) = editor.problems([portrait("s3")], asked)
    assert "no picture of age-20 for 's3'" in problem


def test_a_folder_that_is_no_calibration_set_is_named(tmp_path: Path):
    with pytest.raises(StillmeError, match="name the folder of a calibration set"):
        rendered.prompts(tmp_path)
    (tmp_path / "manifest.csv").write_text("subject,axis\ns1,age\n")
    with pytest.raises(StillmeError, match="lacks the columns amount, changed_file"):
        rendered.prompts(tmp_path)
