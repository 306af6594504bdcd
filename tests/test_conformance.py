"""The conformance checks: our editors and a plugin pass them, and every kind of violation is detected."""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pydantic import BaseModel
from stillme_test_plugin import Negative

from stillme import images
from stillme.editors.folder import Folder
from stillme.editors.noop import Noop
from stillme.editors.planted import Planted
from stillme.portraits.synthetic import portraits
from stillme.protocols import Capabilities, Editor, Needs, Parameters, spec_of
from stillme.testing import CHECKS, PROMPTS, check_editor, violations
from stillme.types import Edited, EditOutcome, Failed, Refused, Request

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


# -- editors that fail one check each ------------------------------------------------------------------------------


class Good:
    """Inverts colours, and conforms."""

    Parameters: type[BaseModel] = Parameters
    needs = Needs()
    declared = Capabilities(batching="per_item", batch=4, concurrency=2, seed="exact")

    def __init__(self, parameters: BaseModel) -> None:
        self.spec = spec_of("good", "1", parameters)
        self.capabilities = self.declared

    def edit(self, requests: Sequence[Request]) -> Iterator[EditOutcome]:
        for request in requests:
            if len(request.portraits) > 1:
                yield Failed(error="one portrait at a time", retryable=False)
            elif not request.portraits[0].image.path.exists():
                yield Failed(error="no such portrait", retryable=False)
            else:
                yield self.one(request)

    def one(self, request: Request) -> EditOutcome:
        shift = len(request.instruction)
        return Edited(image=images.encode_png(255 - images.read_rgb(request.portraits[0].image.path) // 2 - shift))

    def close(self) -> None:
        pass


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

    def one(self, request: Request) -> EditOutcome:
        self.spec = spec_of("drifting", "2", Parameters())
        return super().one(request)


class Inconsistent(Good):
    """Declares a batch and no batching."""

    declared = Capabilities(batch=4)


class Forgetful(Good):
    """Leaves the last request out."""

    def edit(self, requests: Sequence[Request]) -> Iterator[EditOutcome]:
        yield from list(super().edit(requests))[: max(1, len(requests) - 1)]


class Textual(Good):
    """Returns text as a picture."""

    def one(self, request: Request) -> EditOutcome:
        return Edited(image=b"done")


class Failing(Good):
    """Never makes an edit."""

    def one(self, request: Request) -> EditOutcome:
        return Failed(error="out of order", retryable=True)


class Refusing(Good):
    """Refuses, and does not say that it can."""

    def one(self, request: Request) -> EditOutcome:
        return Refused(message="no") if request.prompt.id == "park" else super().one(request)


class NegativeCost(Good):
    """Has a negative cost, and a path among its effective parameters."""

    def one(self, request: Request) -> EditOutcome:
        return Edited(image=super().one(request).image, cost=-1.0, effective={"path": Path()})


class Random(Good):
    """Says that its seed is exact."""

    rng = np.random.default_rng(0)

    def one(self, request: Request) -> EditOutcome:
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

    def one(self, request: Request) -> EditOutcome:
        labels = request.portraits[0].attributes.values()
        darker = any(label.startswith("not ") for label in labels)
        rgb = images.read_rgb(request.portraits[0].image.path)
        return Edited(image=images.encode_png(rgb // 2 if darker else rgb))


class TakesTheFirst(Good):
    """Takes the first of several portraits."""

    def edit(self, requests: Sequence[Request]) -> Iterator[EditOutcome]:
        for request in requests:
            yield self.one(request)


class ClosesOnce(Good):
    """Cannot be closed twice."""

    open = True

    def close(self) -> None:
        if not self.open:
            raise RuntimeError("already closed")
        self.open = False


BAD = {
    TakesAnything: ("described", "accepts unknown keys"),
    Nameless: ("described", "no docstring"),
    Slow: ("cheap", "building it took"),
    Unstable: ("stable", "different `spec`s"),
    Drifting: ("stable", "changes when it edits"),
    Inconsistent: ("sensible", 'batching = "none" and batch = 4'),
    Forgetful: ("answers", "gave 3 outcomes for 4 requests"),
    Textual: ("answers", "not a picture"),
    Failing: ("answers", "it made no edit"),
    Refusing: ("answers", "does not declare `can_refuse`"),
    NegativeCost: ("answers", "is not an amount of money"),
    Random: ("repeats", "differs the second time"),
    Backwards: ("batched", "comes in another order"),
    Mixing: ("parallel", "with 2 calls at once"),
    ReadsLabels: ("blind", "declare `attributes_matter`"),
    TakesTheFirst: ("counts", "2 portraits, where it declares 1, are edited"),
    ClosesOnce: ("closes", "closing it twice raised RuntimeError"),
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
