"""The conformance checks: our editors, judges and a plugin pass them, and every kind of violation is detected."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pydantic import BaseModel
from stillme_test_plugin import Brightness, Negative

from stillme.core import images
from stillme.core.protocols import Capabilities, Editor, Judge, JudgeCapabilities, Needs, Parameters, spec_of
from stillme.core.types import Abstained, Assessment, Edited, EditOutcome, Failed, Pair, Rated, Refused, Request
from stillme.editors.folder import Folder
from stillme.editors.noop import Noop
from stillme.editors.planted import Planted
from stillme.instruments.judge import Instruments
from stillme.judges.scripted import Scripted
from stillme.plugins.testing import (
    CHECKS,
    JUDGE_CHECKS,
    PROMPTS,
    check_editor,
    check_judge,
    judge_violations,
    violations,
)
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
    check_editor(kind, PEOPLE, parameters)


def test_a_folder_conforms(tmp_path: Path):
    rng = np.random.default_rng(0)
    for portrait, prompt in itertools.product(PEOPLE, PROMPTS):
        picture = rng.integers(0, 255, (8, 8, 3), dtype=np.uint8)
        (tmp_path / f"{portrait.id}_{prompt.id}.png").write_bytes(images.encode_png(picture))
    check_editor(Folder, PEOPLE, {"folder": str(tmp_path), "pattern": "{portrait}_{prompt}.png"})


# -- faults that editors and judges may have alike ----------------------------------------------------------------


class Answering:
    """Conforms; what it answers is said below."""

    Parameters: type[BaseModel] = Parameters
    needs = Needs()
    declared: Any

    def __init__(self, parameters: BaseModel) -> None:
        self.spec = spec_of("good", "1", parameters)
        self.capabilities = self.declared

    def answers(self, asked: Sequence[Any]) -> Iterator[Any]:
        raise NotImplementedError

    def one(self, asked: Any) -> Any:
        raise NotImplementedError

    def close(self) -> None:
        pass


class Nameless(Answering):
    __doc__ = ""


class Slow(Answering):
    """Loads its weights too early."""

    def __init__(self, parameters: BaseModel) -> None:
        super().__init__(parameters)
        time.sleep(1.1)


class Unstable(Answering):
    """Has another specification each time."""

    versions = itertools.count()

    def __init__(self, parameters: BaseModel) -> None:
        super().__init__(parameters)
        self.spec = spec_of("unstable", str(next(self.versions)), parameters)


class Drifting(Answering):
    """Changes its specification when it is asked."""

    def one(self, asked: Any) -> Any:
        self.spec = spec_of("drifting", "2", Parameters())
        return super().one(asked)


class Forgetful(Answering):
    """Leaves the last one out."""

    def answers(self, asked: Sequence[Any]) -> Iterator[Any]:
        yield from list(super().answers(asked))[: max(1, len(asked) - 1)]


class Backwards(Answering):
    """Answers in another order."""

    def answers(self, asked: Sequence[Any]) -> Iterator[Any]:
        yield from reversed(list(super().answers(asked)))


class Mixing(Answering):
    """Keeps what it is asked in itself."""

    def answers(self, asked: Sequence[Any]) -> Iterator[Any]:
        for each in asked:
            self.current = each
            time.sleep(0.05)
            yield from super().answers([self.current])


class ClosesOnce(Answering):
    """Cannot be closed twice."""

    open = True

    def close(self) -> None:
        if not self.open:
            raise RuntimeError("already closed")
        self.open = False


def faulty(fault: type[Answering], good: type[Answering]) -> Any:
    """A plugin that conforms but for one fault."""
    return type(fault.__name__, (fault, good), {"__doc__": fault.__doc__})


# -- editors that fail one check each ------------------------------------------------------------------------------


class Good(Answering):
    """Inverts colours, and conforms."""

    declared = Capabilities(batching="per_item", batch=4, concurrency=2, seed="exact")

    def edit(self, requests: Sequence[Request]) -> Iterator[EditOutcome]:
        return self.answers(requests)

    def answers(self, asked: Sequence[Request]) -> Iterator[EditOutcome]:
        for request in asked:
            if len(request.portraits) > 1:
                yield Failed(error="one portrait at a time", retryable=False)
            elif not request.portraits[0].image.path.exists():
                yield Failed(error="no such portrait", retryable=False)
            else:
                yield self.one(request)

    def one(self, asked: Request) -> EditOutcome:
        shift = len(asked.instruction)
        return Edited(image=images.encode_png(255 - images.read_rgb(asked.portraits[0].image.path) // 2 - shift))


class Lax(BaseModel):
    pass


class TakesAnything(Good):
    """Its parameters take any key."""

    Parameters = Lax


class Inconsistent(Good):
    """Declares a batch and no batching."""

    declared = Capabilities(batch=4)


class Textual(Good):
    """Returns text as a picture."""

    def one(self, asked: Request) -> EditOutcome:
        return Edited(image=b"done")


class Failing(Good):
    """Never makes an edit."""

    def one(self, asked: Request) -> EditOutcome:
        return Failed(error="out of order", retryable=True)


class Refusing(Good):
    """Refuses, and does not say that it can."""

    def one(self, asked: Request) -> EditOutcome:
        return Refused(message="no") if asked.prompt.id == "park" else super().one(asked)


class NegativeCost(Good):
    """Has a negative cost, and a path among its effective parameters."""

    def one(self, asked: Request) -> EditOutcome:
        return Edited(image=super().one(asked).image, cost=-1.0, effective={"path": Path()})


class Random(Good):
    """Says that its seed is exact."""

    rng = np.random.default_rng(0)

    def one(self, asked: Request) -> EditOutcome:
        return Edited(image=images.encode_png(self.rng.integers(0, 255, (8, 8, 3), dtype=np.uint8)))


class ReadsLabels(Good):
    """Reads the labels without saying so."""

    def one(self, asked: Request) -> EditOutcome:
        labels = asked.portraits[0].attributes.values()
        darker = any(label.startswith("not ") for label in labels)
        rgb = images.read_rgb(asked.portraits[0].image.path)
        return Edited(image=images.encode_png(rgb // 2 if darker else rgb))


class TakesTheFirst(Good):
    """Takes the first of several portraits."""

    def answers(self, asked: Sequence[Request]) -> Iterator[EditOutcome]:
        for request in asked:
            yield self.one(request)


BAD = {
    TakesAnything: ("described", "accepts unknown keys"),
    faulty(Nameless, Good): ("described", "no docstring"),
    faulty(Slow, Good): ("cheap", "building it took"),
    faulty(Unstable, Good): ("stable", "different `spec`s"),
    faulty(Drifting, Good): ("stable", "changes when it edits"),
    Inconsistent: ("sensible", 'batching = "none" and batch = 4'),
    faulty(Forgetful, Good): ("answers", "gave 3 outcomes for 4 requests"),
    Textual: ("answers", "not a picture"),
    Failing: ("answers", "it made no edit"),
    Refusing: ("answers", "does not declare `can_refuse`"),
    NegativeCost: ("answers", "is not an amount of money"),
    Random: ("repeats", "differs the second time"),
    faulty(Backwards, Good): ("batched", "comes in another order"),
    faulty(Mixing, Good): ("parallel", "with 2 calls at once"),
    ReadsLabels: ("blind", "declare `attributes_matter`"),
    TakesTheFirst: ("counts", "2 portraits, where it declares 1, are edited"),
    faulty(ClosesOnce, Good): ("closes", "closing it twice raised RuntimeError"),
}


def test_a_good_editor_has_no_violations():
    assert violations(Good, PEOPLE) == []


@pytest.mark.parametrize("kind", BAD, ids=lambda kind: kind.__name__)
def test_a_violation_is_detected(kind: type[Editor]):
    check, words = BAD[kind]
    others = [name for name in CHECKS if name != check]
    assert words in " ".join(violations(kind, PEOPLE, skip=others))


def test_an_editor_that_raises_on_a_missing_portrait_is_detected():
    (sentence,) = violations(TakesTheFirst, PEOPLE, skip=[name for name in CHECKS if name != "survives"])
    assert "raised UnreadableImage on a portrait that does not exist" in sentence


def test_every_check_has_an_editor_that_fails_it():
    assert {name for name, _ in BAD.values()} | {"survives"} == set(CHECKS)


def test_the_error_names_the_editor_and_every_violation():
    with pytest.raises(AssertionError, match="NegativeCost has 8 violations") as caught:
        check_editor(NegativeCost, PEOPLE)
    assert "cost = -1.0 is not an amount of money" in str(caught.value)
    assert "`effective` is not plain data" in str(caught.value)


def test_one_portrait_is_too_few_and_an_unknown_check_is_named():
    with pytest.raises(ValueError, match="at least two portraits"):
        check_editor(Good, PEOPLE[:1])
    with pytest.raises(ValueError, match="there is no check 'fast'"):
        check_editor(Good, PEOPLE, skip=["fast"])


# -- judges -----------------------------------------------------------------------------------------------------------


def test_a_judge_conforms():
    check_judge(Instruments, PEOPLE)
    # Scripted answers are given without a look at the picture.
    check_judge(Scripted, PEOPLE, skip=["survives"])


def test_a_judge_that_raises_on_a_missing_edit_is_detected():
    (sentence,) = judge_violations(Brightness, PEOPLE)
    assert "survives: it raised UnreadableImage on an edit that does not exist" in sentence


class GoodJudge(Answering):
    """Measures brightness, and conforms."""

    declared = JudgeCapabilities(kind="instrument", axes=("brightness",), batch=2, concurrency=2)

    def judge(self, pairs: Sequence[Pair]) -> Iterator[Assessment]:
        return self.answers(pairs)

    def answers(self, asked: Sequence[Pair]) -> Iterator[Assessment]:
        for pair in asked:
            if pair.edited.path.exists():
                yield self.one(pair)
            else:
                yield Assessment(ratings={"brightness": Failed(error="no such edit", retryable=False)})

    def one(self, asked: Pair) -> Assessment:
        return rated(float(images.read_rgb(asked.edited.path).mean()))


def rated(score: float, axis: str = "brightness") -> Assessment:
    return Assessment(ratings={axis: Rated(score=score)})


def judge(says: Callable[[Pair], Assessment], *axes: str) -> Any:
    """A judge that conforms but for what it says."""
    declared = JudgeCapabilities(kind="model", axes=axes) if axes else GoodJudge.declared
    return type("Judge", (GoodJudge,), {"__doc__": "Says so.", "declared": declared, "one": lambda _, pair: says(pair)})


class DeclaresTwice(GoodJudge):
    """Declares an axis as whole and as partial."""

    declared = JudgeCapabilities(kind="model", axes=("brightness",), partial=("brightness",))


class DeclaresNothing(GoodJudge):
    """Declares no axis."""

    declared = JudgeCapabilities(kind="model", axes=())


class RatesNothing(GoodJudge):
    """Rates an edit that does not exist."""

    def answers(self, asked: Sequence[Pair]) -> Iterator[Assessment]:
        for _ in asked:
            yield rated(3.0)


Silent = judge(lambda _: rated(1.0, "darkness"))
OffTheScale = judge(lambda _: rated(6.0, "edit_success"), "edit_success")
Wordless = judge(lambda _: Assessment(ratings={"brightness": Abstained(reason="")}))

BAD_JUDGES = {
    faulty(Nameless, GoodJudge): ("described", "no docstring"),
    faulty(Slow, GoodJudge): ("cheap", "building it took"),
    faulty(Unstable, GoodJudge): ("stable", "different `spec`s"),
    faulty(Drifting, GoodJudge): ("stable", "changes when it judges"),
    DeclaresTwice: ("sensible", "declares brightness twice"),
    DeclaresNothing: ("sensible", "declares no axis"),
    faulty(Forgetful, GoodJudge): ("answers", "gave 1 assessments for 2 pairs"),
    Silent: ("answers", "said nothing on brightness"),
    OffTheScale: (
        "answers",
        "edit_success = 6.0 is outside of its scale, 1 to 5",
    ),
    judge(lambda _: rated(float("nan"))): ("answers", "brightness = nan is not a finite number"),
    Wordless: (
        "answers",
        "abstained on brightness without a reason",
    ),
    faulty(Backwards, GoodJudge): ("batched", "comes in another order"),
    faulty(Mixing, GoodJudge): ("parallel", "with 2 calls at once"),
    judge(lambda pair: rated(2.0 if pair.labels else 1.0)): ("blind", "change with the portraits' labels"),
    judge(lambda pair: rated(float(len(pair.edit)))): ("blind", "change with the key of the edit"),
    RatesNothing: ("survives", "rated an edit that does not exist"),
    faulty(ClosesOnce, GoodJudge): ("closes", "closing it twice raised RuntimeError"),
}


def test_a_good_judge_has_no_violations():
    assert judge_violations(GoodJudge, PEOPLE) == []


@pytest.mark.parametrize("kind", BAD_JUDGES, ids=lambda kind: BAD_JUDGES[kind][1])
def test_a_violation_of_a_judge_is_detected(kind: type[Judge]):
    check, words = BAD_JUDGES[kind]
    others = [name for name in JUDGE_CHECKS if name != check]
    assert words in " ".join(judge_violations(kind, PEOPLE, skip=others))


def test_every_check_has_a_judge_that_fails_it():
    assert {name for name, _ in BAD_JUDGES.values()} == set(JUDGE_CHECKS)


def test_the_error_names_the_judge():
    with pytest.raises(AssertionError, match=r"Judge has \d+ violations"):
        check_judge(Silent, PEOPLE)
    with pytest.raises(ValueError, match="at least two portraits"):
        check_judge(GoodJudge, PEOPLE[:1])
