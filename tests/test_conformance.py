"""The conformance checks: our editors, judges and a plugin pass them, and every kind of violation is detected."""

from __future__ import annotations

import itertools
import re
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pydantic import BaseModel
from stillme_test_plugin import Negative

from stillme.core import images
from stillme.core.protocols import Capabilities, Editor, Judge, JudgeCapabilities, Parameters, spec_of
from stillme.core.types import Abstained, Assessment, Edited, EditOutcome, Failed, Pair, Rated, Refused, Request
from stillme.editors.folder import Folder
from stillme.editors.known import Noop
from stillme.editors.planted import Planted
from stillme.instruments.judge import Instruments
from stillme.judges.given import Scripted
from stillme.plugins.testing import CHECKS, PROMPTS, check_plugin
from stillme.portraits import portraits

PEOPLE = portraits()[:2]


@pytest.mark.parametrize(
    ("kind", "parameters"),
    [
        (Noop, {}),
        (Negative, {}),
        (Planted, {"everyone": {"erasure": 0.5, "skin_shift": 4, "skin_spread": 1}}),
        (Planted, {"by": "preset", "groups": {"A": {"erasure": 1.0}}}),
        (Planted, {"roles": {"adherence": 1.0}}),
    ],
    ids=["noop", "plugin", "planted", "planted by group", "planted roles"],
)
def test_an_editor_conforms(kind: type[Editor], parameters: dict[str, Any]):
    check_plugin(kind, PEOPLE, parameters)


def test_a_folder_conforms(tmp_path: Path):
    rng = np.random.default_rng(0)
    for portrait, prompt in itertools.product(PEOPLE, PROMPTS):
        picture = rng.integers(0, 255, (8, 8, 3), dtype=np.uint8)
        (tmp_path / f"{portrait.id}_{prompt.id}.png").write_bytes(images.encode_png(picture))
    check_plugin(Folder, PEOPLE, {"folder": str(tmp_path), "pattern": "{portrait}_{prompt}.png"})


# -- editors that fail one check each ------------------------------------------------------------------------------


class Good(Editor):
    """Inverts colours, and conforms."""

    capabilities = Capabilities(batching="per_item", batch=4, concurrency=2, seed="exact")

    def edit_one(self, request: Request) -> EditOutcome:
        shift = len(request.instruction)
        return Edited(image=images.encode_png(255 - images.read_rgb(request.portraits[0].image.path) // 2 - shift))


class Lax(BaseModel):
    pass


def like(base: type[Any], name: str, **members: Any) -> type[Any]:
    """A plugin that conforms but for these members."""
    return type(name, (base,), {"__doc__": "One violation.", **members})


def made(rgb: Any) -> Edited:
    return Edited(image=images.encode_png(rgb))


def slowly(self: Any, parameters: BaseModel) -> None:
    Good.__init__(self, parameters)
    time.sleep(1.1)


VERSIONS = itertools.count()


def unstable(self: Any, parameters: BaseModel) -> None:
    Good.__init__(self, parameters)
    self.spec = spec_of("unstable", str(next(VERSIONS)), parameters)


def drifting(self: Any, request: Request) -> EditOutcome:
    self.spec = spec_of("drifting", "2", Parameters())
    return Good.edit_one(self, request)


def refusing(self: Any, request: Request) -> EditOutcome:
    return Refused(message="no") if request.prompt.id == "park" else Good.edit_one(self, request)


def at_a_loss(self: Any, request: Request) -> EditOutcome:
    return Edited(image=Good.edit_one(self, request).image, cost=-1.0, effective={"path": Path()})


def reading_labels(self: Any, request: Request) -> EditOutcome:
    darker = any(label.startswith("not ") for label in request.portraits[0].attributes.values())
    rgb = images.read_rgb(request.portraits[0].image.path)
    return made(rgb // 2 if darker else rgb)


def forgetful(name: str) -> Any:
    def leaves_the_last_out(self: Any, asked: Sequence[Any]) -> Iterator[Any]:
        yield from list(getattr(super(type(self), self), name)(asked))[: max(1, len(asked) - 1)]

    return leaves_the_last_out


def backwards(name: str) -> Any:
    return lambda self, asked: reversed(list(getattr(super(type(self), self), name)(asked)))


def mixing(name: str) -> Any:
    """Keeps the question at hand in itself."""

    def mixed(self: Any, asked: Sequence[Any]) -> Iterator[Any]:
        for one in asked:
            self.current = one
            time.sleep(0.05)
            yield from getattr(super(type(self), self), name)([self.current])

    return mixed


def closing(self: Any) -> None:
    if not self.open:
        raise RuntimeError("already closed")
    self.open = False


RANDOM = np.random.default_rng(0)
NegativeCost = like(Good, "NegativeCost", edit_one=at_a_loss)
TakesTheFirst = like(Good, "TakesTheFirst", edit=lambda self, requests: map(self.edit_one, requests))
BAD = {
    like(Good, "TakesAnything", Parameters=Lax): ("declares", "accepts unknown keys"),
    like(Good, "Nameless", __doc__=""): ("declares", "no docstring"),
    like(Good, "Inconsistent", capabilities=Capabilities(batch=4)): ("declares", 'batching = "none" and batch = 4'),
    like(Good, "Slow", __init__=slowly): ("builds", "building it took"),
    like(Good, "Unstable", __init__=unstable): ("builds", "different `spec`s"),
    like(Good, "Drifting", edit_one=drifting): ("builds", "changes with a call"),
    like(Good, "Forgetful", edit=forgetful("edit")): ("answers", "gave 3 answers to 4 questions"),
    like(Good, "Textual", edit_one=lambda *_: Edited(image=b"done")): ("answers", "not a picture"),
    like(Good, "Failing", edit_one=lambda *_: Failed(error="out of order", retryable=True)): (
        "answers",
        "it made no edit",
    ),
    like(Good, "Refusing", edit_one=refusing): ("answers", "does not declare `can_refuse`"),
    NegativeCost: ("answers", "is not an amount of money"),
    like(Good, "Random", edit_one=lambda *_: made(RANDOM.integers(0, 255, (8, 8, 3), dtype=np.uint8))): (
        "repeats",
        "differs the second time",
    ),
    like(Good, "Backwards", edit=backwards("edit")): ("repeats", "differs in a batch, or comes in another order"),
    like(Good, "Mixing", edit=mixing("edit")): ("repeats", "differs with 2 calls at once"),
    like(Good, "ReadsLabels", edit_one=reading_labels): ("blind", "declare `attributes_matter`"),
    TakesTheFirst: ("survives", "2 portraits, where it declares 1, are edited"),
    like(Good, "ClosesOnce", open=True, close=closing): ("closes", "closing it twice raised RuntimeError"),
}


def violations(kind: type[Editor] | type[Judge], check: str = "") -> str:
    """What the checks say, all or one of them."""
    try:
        check_plugin(kind, PEOPLE, skip=[name for name in CHECKS if check and name != check])
    except AssertionError as error:
        return str(error)
    return ""


def test_good_plugins_have_no_violations():
    assert violations(Good) == violations(GoodJudge) == ""


def test_an_editor_that_raises_on_a_missing_portrait_is_detected():
    assert "raised UnreadableImage on a picture that does not exist" in violations(TakesTheFirst, "survives")


def test_the_error_names_the_editor_and_every_violation():
    sentences = violations(NegativeCost)
    assert re.search(r"NegativeCost has \d+ violations", sentences)
    assert "cost = -1.0 is not an amount of money" in sentences
    assert "`effective` is not plain data" in sentences


def test_one_portrait_is_too_few_and_an_unknown_check_is_named():
    with pytest.raises(ValueError, match="at least two portraits"):
        check_plugin(Good, PEOPLE[:1])
    with pytest.raises(ValueError, match="there is no check 'fast'"):
        check_plugin(Good, PEOPLE, skip=["fast"])


# -- judges -----------------------------------------------------------------------------------------------------------


def test_a_judge_conforms():
    check_plugin(Instruments, PEOPLE)
    # Scripted answers are given without a look at the picture.
    check_plugin(Scripted, PEOPLE, skip=["survives"])


class GoodJudge(Judge):
    """Measures brightness, and conforms."""

    capabilities = JudgeCapabilities(kind="instrument", axes=("brightness",), batch=2, concurrency=2)

    def judge_one(self, pair: Pair) -> Assessment:
        return self.rated(float(images.read_rgb(pair.edited.path).mean()))

    def rated(self, score: float) -> Assessment:
        return Assessment(ratings={"brightness": Rated(score=score)})


def declaring(*axes: str, **more: Any) -> JudgeCapabilities:
    return JudgeCapabilities(kind="model", axes=axes, **more)


def rating(**ratings: Any) -> Any:
    return lambda self, pair: Assessment(ratings=ratings)


BAD_JUDGES = {
    like(GoodJudge, "DeclaresTwice", capabilities=declaring("brightness", partial=("brightness",))): (
        "declares",
        "no axis, or one twice",
    ),
    like(GoodJudge, "DeclaresNothing", capabilities=declaring()): ("declares", "no axis, or one twice"),
    like(GoodJudge, "ForgetfulJudge", judge=forgetful("judge")): ("answers", "gave 1 answers to 2 questions"),
    like(GoodJudge, "SilentJudge", judge_one=rating(darkness=Rated(score=1.0))): (
        "answers",
        "said nothing on brightness",
    ),
    like(
        GoodJudge, "OffTheScale", capabilities=declaring("edit_success"), judge_one=rating(edit_success=Rated(score=6))
    ): ("answers", "edit_success = 6 is outside of its scale, 1 to 5"),
    like(GoodJudge, "NotANumber", judge_one=rating(brightness=Rated(score=float("nan")))): (
        "answers",
        "brightness = nan is not a finite number",
    ),
    like(GoodJudge, "Wordless", judge_one=rating(brightness=Abstained(reason=""))): (
        "answers",
        "no rating on brightness, and no reason",
    ),
    like(GoodJudge, "BackwardsJudge", judge=backwards("judge")): ("repeats", "comes in another order"),
    like(GoodJudge, "MixingJudge", judge=mixing("judge")): ("repeats", "with 2 calls at once"),
    like(GoodJudge, "ReadsLabelsJudge", judge_one=lambda self, pair: self.rated(2.0 if pair.labels else 1.0)): (
        "blind",
        "change with the portraits' labels",
    ),
    like(GoodJudge, "ReadsKeys", judge_one=lambda self, pair: self.rated(float(len(pair.edit)))): (
        "blind",
        "change with the key of the edit",
    ),
    like(GoodJudge, "RatesNothing", judge=lambda self, pairs: (self.rated(3.0) for _ in pairs)): (
        "survives",
        "rated an edit that does not exist",
    ),
}


@pytest.mark.parametrize("kind", BAD | BAD_JUDGES, ids=lambda kind: kind.__name__)
def test_a_violation_is_detected(kind: type[Editor] | type[Judge]):
    check, words = (BAD | BAD_JUDGES)[kind]
    assert words in violations(kind, check)


def test_every_check_has_a_plugin_that_fails_it():
    assert {name for name, _ in BAD.values()} == set(CHECKS)
