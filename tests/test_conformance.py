"""The conformance suite: our editors and a plugin keep its promises, and every broken promise is noticed."""

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
from stillme.testing import PROMISES, PROMPTS, broken_promises, check_editor
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
def test_an_editor_keeps_its_promises(kind: type[Editor], parameters: dict[str, Any]):
    check_editor(kind, PEOPLE, parameters)


def test_a_folder_keeps_every_promise(tmp_path: Path):
    dice = np.random.default_rng(0)
    for who, what in itertools.product(PEOPLE, PROMPTS):
        picture = dice.integers(0, 255, (8, 8, 3), dtype=np.uint8)
        (tmp_path / f"{who.id}_{what.id}.png").write_bytes(images.encode_png(picture))
    check_editor(Folder, PEOPLE, {"folder": str(tmp_path), "pattern": "{portrait}_{prompt}.png"})


# -- editors that break one promise each ------------------------------------------------------------------------------


class Good:
    """Inverts colours, and keeps every promise."""

    Parameters: type[BaseModel] = Parameters
    needs = Needs()
    can = Capabilities(batching="per_item", batch=4, concurrency=2, seed="exact")

    def __init__(self, parameters: BaseModel) -> None:
        self.spec = spec_of("good", "1", parameters)
        self.capabilities = self.can

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

    made = itertools.count()

    def __init__(self, parameters: BaseModel) -> None:
        super().__init__(parameters)
        self.spec = spec_of("unstable", str(next(self.made)), parameters)


class Drifting(Good):
    """Changes its specification when it edits."""

    def one(self, request: Request) -> EditOutcome:
        self.spec = spec_of("drifting", "2", Parameters())
        return super().one(request)


class Boastful(Good):
    """Declares a batch and no batching."""

    can = Capabilities(batch=4)


class Forgetful(Good):
    """Leaves the last request out."""

    def edit(self, requests: Sequence[Request]) -> Iterator[EditOutcome]:
        yield from list(super().edit(requests))[: max(1, len(requests) - 1)]


class Textual(Good):
    """Returns text as a picture."""

    def one(self, request: Request) -> EditOutcome:
        return Edited(image=b"done")


class Lost(Good):
    """Never makes an edit."""

    def one(self, request: Request) -> EditOutcome:
        return Failed(error="out of order", retryable=True)


class Shy(Good):
    """Refuses, and does not say that it can."""

    def one(self, request: Request) -> EditOutcome:
        return Refused(message="no") if request.prompt.id == "park" else super().one(request)


class Greedy(Good):
    """Earns money with every edit."""

    def one(self, request: Request) -> EditOutcome:
        return Edited(image=super().one(request).image, cost=-1.0, effective={"path": Path()})


class Random(Good):
    """Says that its seed is exact."""

    dice = np.random.default_rng(0)

    def one(self, request: Request) -> EditOutcome:
        return Edited(image=images.encode_png(self.dice.integers(0, 255, (8, 8, 3), dtype=np.uint8)))


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


class Partial(Good):
    """Reads the labels without saying so."""

    def one(self, request: Request) -> EditOutcome:
        labels = request.portraits[0].attributes.values()
        darker = any(label.startswith("not ") for label in labels)
        rgb = images.read_rgb(request.portraits[0].image.path)
        return Edited(image=images.encode_png(rgb // 2 if darker else rgb))


class Crowded(Good):
    """Takes the first of several portraits."""

    def edit(self, requests: Sequence[Request]) -> Iterator[EditOutcome]:
        for request in requests:
            yield self.one(request)


class Clinging(Good):
    """Cannot be closed twice."""

    open = True

    def close(self) -> None:
        if not self.open:
            raise RuntimeError("already closed")
        self.open = False


BAD = {
    TakesAnything: ("described", "takes unknown keys"),
    Nameless: ("described", "no docstring"),
    Slow: ("cheap", "building it took"),
    Unstable: ("stable", "different `spec`s"),
    Drifting: ("stable", "changes when it edits"),
    Boastful: ("sensible", "says batch = 4"),
    Forgetful: ("answers", "gave 3 outcomes for 4 requests"),
    Textual: ("answers", "not a picture"),
    Lost: ("answers", "not a single edit"),
    Shy: ("answers", "does not declare `can_refuse`"),
    Greedy: ("answers", "is no amount of money"),
    Random: ("repeats", "came out differently the second time"),
    Backwards: ("batched", "in another order"),
    Mixing: ("parallel", "when 2 calls are under way"),
    Partial: ("blind", "declare `attributes_matter`"),
    Crowded: ("counts", "given 2 portraits where it declares 1, it is edited"),
    Clinging: ("closes", "closing it twice raised RuntimeError"),
}


def test_a_good_editor_keeps_every_promise():
    assert broken_promises(Good, PEOPLE) == []


@pytest.mark.parametrize("kind", BAD, ids=lambda kind: kind.__name__)
def test_a_broken_promise_is_noticed(kind: type[Editor]):
    name, words = BAD[kind]
    others = [each for each in PROMISES if each != name]
    assert words in " ".join(broken_promises(kind, PEOPLE, excused=others))


def test_an_editor_that_raises_on_a_missing_portrait_is_noticed():
    (sentence,) = broken_promises(Crowded, PEOPLE, excused=[each for each in PROMISES if each != "survives"])
    assert "raised UnreadableImage on a portrait that does not exist" in sentence


def test_every_promise_has_an_editor_that_breaks_it():
    assert {name for name, _ in BAD.values()} | {"survives"} == set(PROMISES)


def test_the_error_names_the_editor_and_every_broken_promise():
    with pytest.raises(AssertionError, match="Greedy breaks 8 promises") as caught:
        check_editor(Greedy, PEOPLE)
    assert "cost = -1.0 is no amount of money" in str(caught.value)
    assert "`effective` is not plain data" in str(caught.value)


def test_one_portrait_is_too_few_and_an_unknown_promise_is_named():
    with pytest.raises(ValueError, match="at least two portraits"):
        check_editor(Good, PEOPLE[:1])
    with pytest.raises(ValueError, match="no promise is called 'fast'"):
        check_editor(Good, PEOPLE, excused=["fast"])
