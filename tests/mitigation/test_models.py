"""The paper's extractor over the providers' wire formats, on loopback servers."""

from __future__ import annotations

import base64
import io
from collections.abc import Iterator
from contextlib import ExitStack

import pytest
from PIL import Image

from stillme.core.errors import StillmeError, UnknownName
from stillme.mitigation.features import Declined, Described, FeaturePrompt
from stillme.mitigation.measured import extractor_named, feature_prompt
from stillme.mitigation.model_extractor import question_text
from stillme.portraits import portraits
from tests.editors.hosted.loopback import Loopback, serving
from tests.mitigation.test_model_extractor import GOOD
from tests.records import must_be
from tests.vlm.servers import CHAT, WIRE_FORMATS, Scripted, WireFormat, set_keys

IMAGE = portraits()[0].image
NAMES = {"openai": "gpt-5-mini", "openai-chat": "openai-compatible", "google": "gemini-3-flash", "anthropic": "claude"}


@pytest.fixture(autouse=True)
def _keys(monkeypatch: pytest.MonkeyPatch) -> None:
    set_keys(monkeypatch)


class Servers:
    """Loopback servers for one test."""

    def __init__(self, stack: ExitStack) -> None:
        self._stack = stack

    def extractor(self, wire: WireFormat, *answers: object, **settings: object) -> tuple[Loopback, object]:
        server = self._stack.enter_context(serving(wire.handler(Scripted(list(answers)))))
        settings = {"model": wire.model, "base_url": server.url + wire.base, "timeout": 5, **settings}
        extractor = extractor_named(NAMES[wire.name], settings)
        self._stack.callback(extractor.close)
        return server, extractor


@pytest.fixture
def servers() -> Iterator[Servers]:
    with ExitStack() as stack:
        yield Servers(stack)


@pytest.mark.parametrize("wire", WIRE_FORMATS, ids=lambda wire: wire.name)
def test_every_provider_is_asked_the_papers_question_about_the_portrait(servers: Servers, wire: WireFormat):
    server, extractor = servers.extractor(wire, GOOD)
    extraction = must_be(Described, extractor.extract(IMAGE))
    assert extraction.features.dimensions["skin_tone"] == GOOD["skin_tone"]
    (asked,) = server.calls()
    seen = wire.parse(asked.json)
    assert seen.system == question_text()
    assert len(seen.images) == 1
    assert Image.open(io.BytesIO(base64.urlsafe_b64decode(seen.images[0]))).format == "JPEG"
    assert IMAGE.path.stem not in seen.text + seen.system, "a file name may reveal a group"


@pytest.mark.parametrize("wire", WIRE_FORMATS, ids=lambda wire: wire.name)
def test_a_refusal_of_the_provider_is_declined(servers: Servers, wire: WireFormat):
    server, extractor = servers.extractor(wire, GOOD)
    server.breaks(wire.refusal("I cannot describe people."))
    assert isinstance(extractor.extract(IMAGE), Declined)


def test_a_model_and_the_instruments_together_make_one_prompt(servers: Servers):
    _, extractor = servers.extractor(CHAT, {**GOOD, "face_shape": "not visible"})
    prompt = feature_prompt(IMAGE, [extractor, "measured"])
    assert isinstance(prompt, FeaturePrompt)
    assert prompt.sentence.endswith(" Also maintain the face shape (oval face).")
    assert set(prompt.by) == {"openai-compatible", "measured"}


def test_a_mistyped_extractor_is_named_with_the_nearest():
    with pytest.raises(UnknownName, match="Did you mean 'gemini-3-flash'"):
        extractor_named("gemini-3-flsh")
    with pytest.raises(StillmeError, match="base_url"):
        extractor_named("openai-compatible", {"model": "qwen"})
    with pytest.raises(StillmeError, match="no parameters"):
        extractor_named("measured", {"model": "qwen"})
