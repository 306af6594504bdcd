"""A function is a judge: whatever it returns or raises becomes an assessment."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from stillme import audit
from stillme.core.errors import InvalidAudit, InvalidParameters, Refusal
from stillme.core.protocols import Judge
from stillme.core.types import Abstained, Assessment, Failed, ImageFile, Pair, Rated
from stillme.judges.own import FunctionJudge
from tests.judges.conftest import AGING, SUIT

AXES = ("edit_success", "skin_tone")


@pytest.fixture
def pair(tmp_path: Path) -> Pair:
    for name, level in (("source", 40), ("edited", 200)):
        Image.fromarray(np.full((8, 8, 3), level, dtype=np.uint8)).save(tmp_path / f"{name}.png")
    source, edited = (ImageFile.of(tmp_path / f"{name}.png") for name in ("source", "edited"))
    return Pair(edit="e", sources=(source,), edited=edited, prompt=SUIT, epoch=2)


def assessed(function: Callable[..., Any], pair: Pair, axes: tuple[str, ...] = AXES, **settings: Any) -> Assessment:
    (assessment,) = FunctionJudge.of(function, axes=axes, **settings).judge([pair])
    return assessment


def test_a_function_is_called_with_what_it_asks_for(pair: Pair):
    calls: list[tuple[Any, ...]] = []

    def rate(source: Image.Image, sources: Any, edited: Image.Image, instruction: str, prompt: str, epoch: int):
        calls.append((source.getpixel((0, 0)), len(sources), edited.getpixel((0, 0)), instruction, prompt, epoch))
        return {"edit_success": 4, "skin_tone": np.float32(3.5)}

    assessment = assessed(rate, pair)
    assert calls == [((40, 40, 40), 1, (200, 200, 200), SUIT.text, SUIT.text, 2)]
    assert assessment.ratings == {"edit_success": Rated(score=4.0), "skin_tone": Rated(score=3.5)}
    assert assessment.raw == '{"edit_success": 4, "skin_tone": "3.5"}'


def test_none_and_words_are_abstentions(pair: Pair):
    ratings = assessed(lambda: {"edit_success": None, "skin_tone": "the face is hidden"}, pair).ratings
    assert [ratings[axis].reason for axis in AXES] == ["no reason given", "the face is hidden"]


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        ({"edit_success": 5}, "returned no skin_tone"),
        ({"edit_success": 5, "skin_tone": 3, "age": 1}, "returned age, not listed under `axes`"),
        ({"edit_sucess": 5}, "returned no edit_success, skin_tone; "),
        ({"edit_success": 6, "skin_tone": 3}, "edit_success = 6 is outside of 1 to 5"),
        ({"edit_success": float("nan"), "skin_tone": 3}, "edit_success = nan is no score"),
        ({"edit_success": True, "skin_tone": 3}, "edit_success = True is no score"),
        ({"edit_success": [5], "skin_tone": 3}, "edit_success = [5] is no score; give a number, or None"),
        (None, "returned NoneType; it must return a dict of edit_success, skin_tone"),
        (5, "returned int"),
    ],
)
def test_an_answer_that_is_not_whole_is_a_failure_on_every_axis(pair: Pair, answer: Any, words: str):
    assessment = assessed(lambda: answer, pair)
    assert set(assessment.ratings) == set(AXES)
    assert words in assessment.failure.error
    assert assessment.failure.retryable


def test_an_axis_for_other_prompts_may_be_left_out(pair: Pair):
    axes = ("edit_success", "age_accuracy")
    assert assessed(lambda: {"edit_success": 5}, pair, axes).failure is None
    aging = Pair(edit="e", sources=pair.sources, edited=pair.edited, prompt=AGING)
    assert "returned no age_accuracy" in assessed(lambda: {"edit_success": 5}, aging, axes).failure.error


def test_an_axis_of_ones_own_takes_any_number(pair: Pair):
    ratings = assessed(lambda: {"brightness": -300.5}, pair, ("brightness",)).ratings
    assert ratings == {"brightness": Rated(score=-300.5)}


def test_what_a_function_raises_is_a_failure_and_a_refusal_an_abstention(pair: Pair):
    def fail() -> dict[str, float]:
        raise TimeoutError("no answer")

    def refuse() -> dict[str, float]:
        raise Refusal("I do not rate faces.")

    failed = Failed(error="TimeoutError: no answer", retryable=True)
    assert assessed(fail, pair).ratings == dict.fromkeys(AXES, failed)
    assert assessed(refuse, pair).ratings == dict.fromkeys(AXES, Abstained(reason="I do not rate faces."))


def test_a_picture_that_is_gone_fails_for_good(pair: Pair):
    gone = Pair(edit="e", sources=pair.sources, edited=ImageFile(path=Path("gone.png"), sha256="0"), prompt=SUIT)
    assert not assessed(lambda: None, gone).failure.retryable


def test_a_function_at_hand_is_a_judge_of_its_axes():
    judge = FunctionJudge.of(lambda source, edited: {}, axes=["a", "b"], kind="instrument")
    assert isinstance(judge, Judge)
    assert (judge.capabilities.kind, judge.capabilities.axes) == ("instrument", ("a", "b"))
    assert len({FunctionJudge.of(lambda: None, axes=[axis]).spec.key for axis in "ab"}) == 2
    with pytest.raises(InvalidParameters, match="axes: is empty; give at least one"):
        FunctionJudge.of(lambda: None, axes=[])


RATE = """
def rate(source, edited, instruction, unit=1):
    return {"edit_success": 5, "redness": edited.getpixel((0, 0))[0] / unit}
"""


@pytest.mark.parametrize(
    ("judge", "words"),
    [
        ('use = "python:rate:rate"', "judges[0].parameters.axes: 'axes' is missing; add it"),
        ('use = "python:rate:rate"\nparameters = { axes = ["a"], kind = "robot" }', "'robot' is not allowed; write"),
        (
            'use = "python:rate:rate"\nparameters = { axes = ["a"], arguments = { units = 5 } }',
            "judges[0].parameters: `arguments.units` is no parameter of 'rate:rate'",
        ),
    ],
)
def test_a_mistake_is_said_before_anything_runs(write_audit: Callable[..., Path], judge: str, words: str):
    folder = write_audit(judge=judge)
    (folder / "rate.py").write_text(RATE)
    with pytest.raises(InvalidAudit) as caught:
        audit.load(folder)
    assert words in str(caught.value)
