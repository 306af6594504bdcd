"""A function is an editor: whatever it returns or raises becomes an outcome."""

from __future__ import annotations

import io
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image, ImageCms, ImageOps

from stillme import audit
from stillme.api.pipeline import RunOptions, run_stages
from stillme.core import images
from stillme.core.errors import InvalidAudit, InvalidParameters, Refusal
from stillme.core.protocols import Editor
from stillme.core.types import Edited, EditOutcome, Failed, ImageFile, Prompt, Refused, Request
from stillme.editors.own import FunctionEditor
from stillme.plugins.testing import check_plugin
from stillme.portraits import portraits
from stillme.runs.store import Store
from tests.pictures import encoded, on_its_side
from tests.records import asked, must_be

PROMPT = Prompt(id="grey", text="Make it grey.", category="own", subcategory="own")
FILE = "edit.py"
GREY = """
from PIL import ImageOps

def edit(image, instruction, seed, strength=1.0):
    return ImageOps.grayscale(image)
"""


def grey(image: Image.Image) -> Image.Image:
    return ImageOps.grayscale(image)


def request(editor: Editor, *, people: int = 1, **more: Any) -> Request:
    return asked(editor, *portraits()[:people], what=PROMPT, **more)


def outcome(function: Callable[..., Any], *, people: int = 1, **settings: Any) -> EditOutcome:
    editor = FunctionEditor.of(function, **settings)
    return next(editor.edit([request(editor, people=people, seed=7)]))


def test_a_function_conforms(tmp_path: Path):
    (tmp_path / FILE).write_text(GREY)
    check_plugin(FunctionEditor, portraits()[:2], {"function": f"{tmp_path / FILE}:edit", "seed": "exact"})
    assert isinstance(FunctionEditor.of(grey), Editor)


def test_a_function_is_called_with_what_it_asks_for():
    calls: list[dict[str, Any]] = []

    def edit(image: Image.Image, images: list[Image.Image], instruction: str, prompt: str, seed: int, portrait: str):
        calls.append({"seed": seed, "portrait": portrait, "words": (instruction, prompt), "pictures": [image, *images]})
        return image

    assert isinstance(outcome(edit, people=2, inputs=2), Edited)
    (call,) = calls
    first, second = portraits()[:2]
    assert (call["seed"], call["portrait"]) == (7, first.id)
    assert call["words"] == (PROMPT.text, PROMPT.text)
    assert [picture.mode for picture in call["pictures"]] == ["RGB"] * 3
    assert np.array_equal(np.asarray(call["pictures"][2]), images.read_rgb(second.image.path))


def test_the_prompt_is_what_the_arm_makes_of_it_and_a_picture_that_exif_turns_is_upright(tmp_path: Path):
    """A function that asked for the bare prompt would edit without the feature sentence, and nobody would notice."""
    calls: list[tuple[object, str]] = []
    editor = FunctionEditor.of(lambda image, prompt: calls.append((image.size, prompt)) or image)
    who = replace(portraits()[0], image=on_its_side(tmp_path))
    list(editor.edit([replace(request(editor, instruction="Keep the freckles. Make it grey."), portraits=(who,))]))
    assert calls == [((4, 8), "Keep the freckles. Make it grey.")]


def test_every_way_to_return_a_picture_is_accepted(tmp_path: Path):
    picture = Image.fromarray(np.arange(48, dtype=np.uint8).reshape(4, 4, 3))
    file, webp = tmp_path / "made.webp", encoded(picture, "WEBP", lossless=True)
    file.write_bytes(webp)
    for way in (picture, webp, bytearray(webp), file, str(file), np.asarray(picture)):
        edited = outcome(lambda way=way: way)
        assert isinstance(edited, Edited), (way, edited)
        assert np.array_equal(images.read_rgb(edited.image), np.asarray(picture))
        assert edited.effective == {"size": [4, 4]}
        if isinstance(way, bytes | Path | str):
            assert edited.image == webp, "bytes and files are kept as they came"


@pytest.mark.parametrize("mode", ["RGBA", "L", "P", "CMYK", "F", "1"])
def test_pictures_of_every_mode_are_accepted(mode: str):
    assert isinstance(outcome(lambda: Image.new(mode, (4, 4))), Edited)


@pytest.mark.parametrize(
    ("result", "words"),
    [
        (None, "the function returned None; it must return a PIL image, the bytes of an image file, its path, or"),
        (7, "returned builtins.int"),
        ([], "returned builtins.list"),
        (np.zeros((3, 4, 4), dtype=np.uint8), "an array of shape (3, 4, 4) and type uint8"),
        (np.zeros((4, 4, 3)), "an array of shape (4, 4, 3) and type float64"),
        (np.zeros((0, 0, 3), dtype=np.uint8), "an array of shape (0, 0, 3)"),
        (b"done", "is not a picture"),
        ("no such file.png", "no such file.png"),
    ],
    ids=["none", "number", "list", "channels first", "floats", "nothing", "text", "no file"],
)
def test_anything_else_is_a_failure_that_says_what_came_back(result: Any, words: str):
    failed = must_be(Failed, outcome(lambda: result))
    assert words in failed.error
    assert failed.retryable, "with a version of one's own, a corrected function has the same key"


def test_a_refusal_keeps_its_words_and_everything_else_raised_is_a_failure():
    def refuse(image: Image.Image) -> Image.Image:
        raise Refusal("I do not edit faces.")

    def fail(image: Image.Image) -> Image.Image:
        raise ConnectionError("503 from nowhere")

    def leave(image: Image.Image) -> Image.Image:
        raise SystemExit(2)

    assert outcome(refuse) == Refused(message="I do not edit faces.")
    assert outcome(fail) == Failed(error="ConnectionError: 503 from nowhere", retryable=True)
    assert outcome(leave) == Failed(error="SystemExit: 2", retryable=True)


def test_more_portraits_than_declared_and_unreadable_ones_fail_for_good():
    editor = FunctionEditor.of(grey)
    (crowd,) = editor.edit([request(editor, people=2)])
    assert crowd == Failed(error="python takes 1 portrait, not 2", retryable=False)
    gone = replace(portraits()[0], image=ImageFile(path=Path("gone.png"), sha256="0" * 64))
    (missing,) = editor.edit([replace(request(editor), portraits=(gone,))])
    assert not missing.retryable


def test_several_portraits_need_a_function_that_asks_for_them():
    (sentence,) = FunctionEditor.of(grey, inputs=2).problems([], [])
    assert "does not ask for `images`" in sentence
    assert list(FunctionEditor.of(lambda images: images[1], inputs=2).problems([], [])) == []


def test_a_seed_is_a_hint_where_the_function_asks_for_one():
    assert FunctionEditor.of(grey).capabilities.seed == "none"
    assert FunctionEditor.of(lambda image, seed: image).capabilities.seed == "best_effort"
    assert FunctionEditor.of(lambda image, seed: image, seed="exact", concurrency=3).capabilities.concurrency == 3


def test_a_function_at_hand_is_named_after_itself_or_as_told():
    assert FunctionEditor.of(grey).spec.parameters["function"] == f"{__name__}:grey"
    assert FunctionEditor.of(grey, "my-grey").spec.parameters["function"] == "my-grey"
    with pytest.raises(InvalidParameters, match="The editor 'my-grey' cannot be built: unknown key 'seeds'"):
        FunctionEditor.of(grey, "my-grey", seeds="exact")


def test_a_function_edits_a_whole_audit_and_a_changed_one_edits_again(write_audit: Callable[..., Path]):
    folder = write_audit('use = "python:edit:edit"\nname = "grey"\nparameters = { arguments = { strength = 0.5 } }')
    (folder / FILE).write_text(GREY)
    assert run_stages(folder, ("edit",)).tallies[0].counts == {"edited": 12}
    assert run_stages(folder, ("edit",)).tallies[0].already == 12
    assert not (folder / "__pycache__").exists()
    (folder / FILE).write_text(GREY.replace("grayscale", "invert"))
    loaded = audit.load(folder)
    with Store.reading(folder) as store:
        assert store.finished("edit", [wanted.key for wanted in loaded.requests(loaded.editors[0])]) == set()


@pytest.mark.parametrize(
    ("use", "words"),
    [
        ("python:edti:edit", "line 8, editors[0].use: There is no module 'edti'"),
        ("python:edit:edti", "editors[0].use: 'edit' has no function 'edti'. Did you mean 'edit'?"),
        ("python:./edit.py:WORD", "./edit.py:WORD is not a function, but str"),
        ("python:edit:needs_more", "editors[0].parameters: 'edit:needs_more' needs 'mask', which is not supplied"),
        ("python", "'function' is missing; add it"),
    ],
)
def test_a_mistake_is_said_with_its_line_before_anything_runs(write_audit: Callable[..., Path], use: str, words: str):
    folder = write_audit(f'use = "{use}"')
    (folder / FILE).write_text(GREY + "\nWORD = 'x'\ndef needs_more(image, mask): ...\n")
    with pytest.raises(InvalidAudit) as caught:
        audit.load(folder)
    assert words in str(caught.value)


def test_a_run_kept_elsewhere_still_finds_the_function(write_audit: Callable[..., Path], tmp_path: Path):
    folder = write_audit('use = "python:./edit.py:edit"')
    (folder / FILE).write_text(GREY)
    run_stages(folder, ("edit",), RunOptions(out=tmp_path / "run"))
    assert run_stages(tmp_path / "run", ("edit",)).tallies[0].already == 12


def test_a_function_may_change_its_picture_in_place():
    """A portrait is decoded once for all its requests."""
    levels: list[object] = []

    def blacken(image: Image.Image) -> Image.Image:
        levels.append(image.getpixel((0, 0)))
        image.paste((0, 0, 0), (0, 0, 2, 2))
        return image

    editor = FunctionEditor.of(blacken)
    made = list(editor.edit([request(editor, seed=seed) for seed in (0, 1)]))
    assert len(made) == 2
    assert levels[0] == levels[1] != (0, 0, 0)


def test_a_picture_with_a_colour_profile_keeps_it():
    profile = ImageCms.ImageCmsProfile(ImageCms.createProfile("sRGB")).tobytes()

    def tagged(image: Image.Image) -> Image.Image:
        image.info["icc_profile"] = profile
        return image

    made = must_be(Edited, outcome(tagged))
    assert Image.open(io.BytesIO(made.image)).info["icc_profile"] == profile
