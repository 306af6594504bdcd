"""Dummy keys, and models with their providers' loopback servers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel, Field

from stillme.core.types import Assessment, ImageFile, Pair
from stillme.judges.vlm import Model, ModelSettings, Question, Reply
from tests.editors.hosted.loopback import Loopback, serving
from tests.vlm.servers import WIRE_FORMATS, ModelInput, Script, Scripted, WireFormat, set_keys, write_images

every_provider = pytest.mark.parametrize("wire", WIRE_FORMATS, ids=lambda wire: wire.provider)


class Verdict(BaseModel):
    """A score with a reason."""

    reason: str = ""
    score: int = Field(ge=1, le=5)
    weight: float = 1.0


GOOD = {"reason": "as asked", "score": 4}


@pytest.fixture(autouse=True)
def _keys(monkeypatch: pytest.MonkeyPatch) -> None:
    set_keys(monkeypatch)


@pytest.fixture
def images(tmp_path: Path) -> list[ImageFile]:
    """Two different images."""
    return write_images(tmp_path, 24, 24)


@pytest.fixture
def question(images: list[ImageFile]) -> Question:
    before, after = images
    return Question(system="Judge.", parts=("Before:", before, "After:", after), answer=Verdict)


@dataclass
class Served:
    """A provider's loopback server, and the model or judge that asks it."""

    server: Loopback
    wire: WireFormat
    asker: Any

    def ask(self, question: Question) -> Reply:
        return self.asker.ask(question)

    def judged(self, pair: Pair) -> Assessment:
        (assessment,) = self.asker.judge([pair])
        return assessment

    def saw(self, call: int = -1) -> ModelInput:
        return self.wire.parse(self.server.calls()[call].json)


Serve = Callable[..., Served]


def serving_to(make: Callable[[dict[str, Any]], Any]) -> Iterator[Serve]:
    """`serve(GEMINI, {"score": 4}, timeout=1)` starts a provider with scripted answers, and makes who asks it."""
    with ExitStack() as stack:

        def serve(wire: WireFormat, *answers: Any, script: Script | None = None, **settings: Any) -> Served:
            server = stack.enter_context(serving(wire.handler(script or Scripted(list(answers)))))
            asker = make(wire.settings(server.url, **settings))
            stack.callback(asker.close)
            return Served(server, wire, asker)

        yield serve


@pytest.fixture
def serve() -> Iterator[Serve]:
    yield from serving_to(lambda given: Model(ModelSettings.model_validate(given)))
