"""The paper's extractor over the providers' own wire formats, on loopback."""

from __future__ import annotations

import base64
import io
from collections.abc import Iterator
from contextlib import ExitStack

import pytest
from PIL import Image

from stillme.errors import StillmeError, UnknownName
from stillme.mitigation import Declined, Described, FeaturePrompt, Unusable, extractor_named, feature_prompt
from stillme.mitigation.asked import question_text
from stillme.portraits.synthetic import portraits
from stillme.types import Failed
from tests.editors.hosted.loopback import Loopback, Says, serving
from tests.mitigation.test_asked import GOOD, LABELLED
from tests.vlm.servers import CHAT, SPEAKERS, Scripted, Speaker

IMAGE = portraits()[0].image
NAMES = {"openai": "gpt-5-mini", "openai-chat": "openai-compatible", "google": "gemini-3-flash", "anthropic": "claude"}


@pytest.fixture(autouse=True)
def _keys(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("OPENAI_API_KEY", "GEMINI_API_KEY", "ANTHROPIC_API_KEY"):
        monkeypatch.setenv(name, "sk-loopback-0123456789")
    monkeypatch.delenv("GOOGLE_API_KEY", raising=False)
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")


class Room:
    """Servers that are open for one test."""

    def __init__(self, stack: ExitStack) -> None:
        self._stack = stack

    def extractor(self, speaker: Speaker, *answers: object, **settings: object) -> tuple[Loopback, object]:
        server = self._stack.enter_context(serving(speaker.behave(Scripted(list(answers)))))
        given = {"model": speaker.model, "base_url": server.url + speaker.base, "timeout": 5, **settings}
        made = extractor_named(NAMES[speaker.name], given)
        self._stack.callback(made.close)
        return server, made


@pytest.fixture
def room() -> Iterator[Room]:
    with ExitStack() as stack:
        yield Room(stack)


@pytest.mark.parametrize("speaker", SPEAKERS, ids=lambda speaker: speaker.name)
def test_every_provider_is_asked_the_papers_question_about_the_portrait(room: Room, speaker: Speaker):
    server, extractor = room.extractor(speaker, GOOD)
    found = extractor.extract(IMAGE)
    assert isinstance(found, Described), found
    assert found.features.dimensions["skin_tone"] == GOOD["skin_tone"]
    (asked,) = server.calls()
    seen = speaker.see(asked.json)
    assert seen.system == question_text()
    assert len(seen.images) == 1
    assert Image.open(io.BytesIO(base64.urlsafe_b64decode(seen.images[0]))).format == "JPEG"
    assert IMAGE.path.stem not in seen.text + seen.system, "a file's name may name a group"


@pytest.mark.parametrize("speaker", SPEAKERS, ids=lambda speaker: speaker.name)
def test_a_refusal_on_the_wire_is_declined(room: Room, speaker: Speaker):
    server, extractor = room.extractor(speaker, GOOD)
    server.breaks(speaker.refuse("I cannot describe people."))
    assert isinstance(extractor.extract(IMAGE), Declined)


def test_a_labelled_answer_is_sent_back_with_the_reason(room: Room):
    server, extractor = room.extractor(CHAT, LABELLED, GOOD)
    assert isinstance(extractor.extract(IMAGE), Described)
    first, second = (CHAT.see(asked.json) for asked in server.calls())
    assert first.text == ""
    assert "'woman' at character" in second.text
    assert second.images == first.images


def test_labels_twice_and_malformed_twice_are_unusable(room: Room):
    server, extractor = room.extractor(CHAT, LABELLED)
    assert isinstance(extractor.extract(IMAGE), Unusable)
    assert len(server.calls()) == 2
    _, other = room.extractor(CHAT, "{")
    assert isinstance(other.extract(IMAGE), Unusable)


def test_an_outage_is_no_refusal(room: Room):
    server, extractor = room.extractor(CHAT, GOOD)
    server.breaks(Says(status=503, body={"error": {"message": "overloaded"}}))
    found = extractor.extract(IMAGE)
    assert isinstance(found, Failed)
    assert found.retryable


def test_a_model_and_the_instruments_together_make_one_prompt(room: Room):
    _, extractor = room.extractor(CHAT, {**GOOD, "face_shape": "not visible"})
    found = feature_prompt(IMAGE, [extractor, "measured"])
    assert isinstance(found, FeaturePrompt)
    assert found.sentence.endswith(" Also maintain the face shape (oval face).")
    assert set(found.by) == {"openai-compatible", "measured"}


def test_a_mistyped_extractor_is_named_with_the_nearest():
    with pytest.raises(UnknownName, match="Did you mean 'gemini-3-flash'"):
        extractor_named("gemini-3-flsh")
    with pytest.raises(StillmeError, match="base_url"):
        extractor_named("openai-compatible", {"model": "qwen"})
    with pytest.raises(StillmeError, match="no parameters"):
        extractor_named("measured", {"model": "qwen"})
