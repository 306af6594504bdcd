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
from stillme.editors.noop import Noop
from stillme.editors.planted import Planted
from stillme.instruments.judge import Instruments
from stillme.judges.scripted import Scripted
from stillme.plugins.testing import CHECKS, PROMPTS, check_plugin
from stillme.portraits.synthetic import portraits

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


class TakesAnything(Good):
    """Its parameters take any key."""

    Parameters = Lax


class Nameless(Good):
    __doc__ = ""


class Slow(Good):
    """Loads its weights too early."""

    def __init__(self, parameters: BaseModel) -> None:
        super().__init__(parameters)
        time.sleep(1.1)


class Unstable(Good):
    """Has another specification each time."""

    versions = itertools.count()

    def __init__(self, parameters: BaseModel) -> None:
        super().__init__(parameters)
        self.spec = spec_of("unstable", str(next(self.versions)), parameters)


class Drifting(Good):
    """Changes its specification when it edits."""

    def edit_one(self, request: Request) -> EditOutcome:
        self.spec = spec_of("drifting", "2", Parameters())
        return super().edit_one(request)


class Inconsistent(Good):
    """Declares a batch and no batching."""

    capabilities = Capabilities(batch=4)


class Forgetful(Good):
    """Leaves the last request out."""

    def edit(self, requests: Sequence[Request]) -> Iterator[EditOutcome]:
        yield from list(super().edit(requests))[: max(1, len(requests) - 1)]


class Textual(Good):
    """Returns text as a picture."""

    def edit_one(self, request: Request) -> EditOutcome:
        return Edited(image=b"done")


class Failing(Good):
    """Never makes an edit."""

    def edit_one(self, request: Request) -> EditOutcome:
        return Failed(error="out of order", retryable=True)


class Refusing(Good):
    """Refuses, and does not say that it can."""

    def edit_one(self, request: Request) -> EditOutcome:
        return Refused(message="no") if request.prompt.id == "park" else super().edit_one(request)


class NegativeCost(Good):
    """Has a negative cost, and a path among its effective parameters."""

    def edit_one(self, request: Request) -> EditOutcome:
        return Edited(image=super().edit_one(request).image, cost=-1.0, effective={"path": Path()})


class Random(Good):
    """Says that its seed is exact."""

    rng = np.random.default_rng(0)

    def edit_one(self, request: Request) -> EditOutcome:
        return Edited(image=images.encode_png(self.rng.integers(0, 255, (8, 8, 3), dtype=np.uint8)))


class Backwards(Good):
    """Answers in another order."""

    def edit(self, requests: Sequence[Request]) -> Iterator[EditOutcome]:
        yield from reversed(list(super().edit(requests)))


class Mixing(Good):
    """Keeps the request at hand in itself."""

    def edit(self, requests: Sequence[Request]) -> Iterator[EditOutcome]:
        for request in requests:
            self.current = request
            time.sleep(0.05)
            yield from super().edit([self.current])


class ReadsLabels(Good):
    """Reads the labels without saying so."""

    def edit_one(self, request: Request) -> EditOutcome:
        labels = request.portraits[0].attributes.values()
        darker = any(label.startswith("not ") for label in labels)
        rgb = images.read_rgb(request.portraits[0].image.path)
        return Edited(image=images.encode_png(rgb // 2 if darker else rgb))


class TakesTheFirst(Good):
    """Takes the first of several portraits."""

    def edit(self, requests: Sequence[Request]) -> Iterator[EditOutcome]:
        for request in requests:
            yield self.edit_one(request)


class ClosesOnce(Good):
    """Cannot be closed twice."""

    open = True

    def close(self) -> None:
        if not self.open:
            raise RuntimeError("already closed")
        self.open = False


BAD = {
    TakesAnything: ("declares", "accepts unknown keys"),
    Nameless: ("declares", "no docstring"),
    Inconsistent: ("declares", 'batching = "none" and batch = 4'),
    Slow: ("builds", "building it took"),
    Unstable: ("builds", "different `spec`s"),
    Drifting: ("builds", "changes with a call"),
    Forgetful: ("answers", "gave 3 answers to 4 questions"),
    Textual: ("answers", "not a picture"),
    Failing: ("answers", "it made no edit"),
    Refusing: ("answers", "does not declare `can_refuse`"),
    NegativeCost: ("answers", "is not an amount of money"),
    Random: ("repeats", "differs the second time"),
    Backwards: ("repeats", "differs in a batch, or comes in another order"),
    Mixing: ("repeats", "differs with 2 calls at once"),
    ReadsLabels: ("blind", "declare `attributes_matter`"),
    TakesTheFirst: ("survives", "2 portraits, where it declares 1, are edited"),
    ClosesOnce: ("closes", "closing it twice raised RuntimeError"),
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


class DeclaresTwice(GoodJudge):
    """Declares an axis as whole and as partial."""

    capabilities = JudgeCapabilities(kind="model", axes=("brightness",), partial=("brightness",))


class DeclaresNothing(GoodJudge):
    """Declares no axis."""

    capabilities = JudgeCapabilities(kind="model", axes=())


class ForgetfulJudge(GoodJudge):
    """Leaves the last pair out."""

    def judge(self, pairs: Sequence[Pair]) -> Iterator[Assessment]:
        yield from list(super().judge(pairs))[: max(1, len(pairs) - 1)]


class SilentJudge(GoodJudge):
    """Says nothing on an axis that it declares, and something on another."""

    def judge_one(self, pair: Pair) -> Assessment:
        return Assessment(ratings={"darkness": Rated(score=1.0)})


class OffTheScale(GoodJudge):
    """Rates six out of five."""

    capabilities = JudgeCapabilities(kind="model", axes=("edit_success",))

    def judge_one(self, pair: Pair) -> Assessment:
        return Assessment(ratings={"edit_success": Rated(score=6.0)})


class NotANumber(GoodJudge):
    """Fills in what it does not know."""

    def judge_one(self, pair: Pair) -> Assessment:
        return self.rated(float("nan"))


class Wordless(GoodJudge):
    """Abstains from everything, and gives no reason."""

    def judge_one(self, pair: Pair) -> Assessment:
        return Assessment(ratings={"brightness": Abstained(reason="")})


class BackwardsJudge(GoodJudge):
    """Answers in another order."""

    def judge(self, pairs: Sequence[Pair]) -> Iterator[Assessment]:
        yield from reversed(list(super().judge(pairs)))


class MixingJudge(GoodJudge):
    """Keeps the pair at hand in itself."""

    def judge(self, pairs: Sequence[Pair]) -> Iterator[Assessment]:
        for pair in pairs:
            self.current = pair
            time.sleep(0.05)
            yield from super().judge([self.current])


class ReadsLabelsJudge(GoodJudge):
    """Reads the labels without saying so."""

    def judge_one(self, pair: Pair) -> Assessment:
        return self.rated(2.0 if pair.labels else 1.0)


class ReadsKeys(GoodJudge):
    """Rates by the key of the edit."""

    def judge_one(self, pair: Pair) -> Assessment:
        return self.rated(float(len(pair.edit)))


class RatesNothing(GoodJudge):
    """Rates an edit that does not exist."""

    def judge(self, pairs: Sequence[Pair]) -> Iterator[Assessment]:
        for _ in pairs:
            yield self.rated(3.0)


BAD_JUDGES = {
    DeclaresTwice: ("declares", "no axis, or one twice"),
    DeclaresNothing: ("declares", "no axis, or one twice"),
    ForgetfulJudge: ("answers", "gave 1 answers to 2 questions"),
    SilentJudge: ("answers", "said nothing on brightness"),
    OffTheScale: ("answers", "edit_success = 6.0 is outside of its scale, 1 to 5"),
    NotANumber: ("answers", "brightness = nan is not a finite number"),
    Wordless: ("answers", "no rating on brightness, and no reason"),
    BackwardsJudge: ("repeats", "comes in another order"),
    MixingJudge: ("repeats", "with 2 calls at once"),
    ReadsLabelsJudge: ("blind", "change with the portraits' labels"),
    ReadsKeys: ("blind", "change with the key of the edit"),
    RatesNothing: ("survives", "rated an edit that does not exist"),
}


@pytest.mark.parametrize("kind", BAD | BAD_JUDGES, ids=lambda kind: kind.__name__)
def test_a_violation_is_detected(kind: type[Editor] | type[Judge]):
    check, words = (BAD | BAD_JUDGES)[kind]
    assert words in violations(kind, check)


def test_every_check_has_a_plugin_that_fails_it():
    assert {name for name, _ in BAD.values()} == set(CHECKS)
