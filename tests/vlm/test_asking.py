"""Every kind of reply, over every provider's wire format and official client."""

from __future__ import annotations

import base64
import io
import json
import re
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from PIL import Image
from pydantic_ai.messages import BinaryContent

from stillme.core.types import Failed, ImageFile
from stillme.judges.vlm import Malformed, ModelAnswered, ModelDeclined, Question, connection
from stillme.judges.vlm.model import SHARED, EncodedImage, ImageEncoder
from tests.editors.hosted.loopback import Says
from tests.records import must_be
from tests.vlm.conftest import GOOD, Serve, Verdict, every_provider
from tests.vlm.servers import ANTHROPIC, CHAT, GEMINI, RESPONSES, WIRE_FORMATS, WireFormat, write_images


@every_provider
def test_a_question_arrives_complete_and_its_answer_is_typed(serve: Serve, wire: WireFormat, question: Question):
    served = serve(wire, GOOD)
    reply = must_be(ModelAnswered, served.ask(question))
    assert reply.value == Verdict(reason="as asked", score=4)
    assert json.loads(reply.text) == GOOD
    (asked,) = served.server.calls()
    assert asked.path.partition("?")[0].endswith(wire.path)
    seen = wire.parse(asked.json)
    assert seen.system == "Judge."
    assert seen.text == "Before:\nAfter:"
    sizes = [Image.open(io.BytesIO(base64.urlsafe_b64decode(data))).size for data in seen.images]
    assert sizes == [(24, 40), (24, 40)]
    assert b"Black_woman" not in asked.content, "a file's name may tell the group"


@every_provider
def test_what_really_applied_is_recorded(serve: Serve, wire: WireFormat, question: Question):
    reply = must_be(ModelAnswered, serve(wire, GOOD, max_tokens=1000).ask(question))
    assert reply.effective["sent"]["max_tokens"] == 1000
    assert "temperature" not in reply.effective["sent"]
    thoughts = {"thoughts": 200} if wire in (RESPONSES, GEMINI) else {}
    assert reply.effective["tokens"] == {"input": 3000, "output": 600} | thoughts
    assert reply.effective["images"] == [[24, 40], [24, 40]]
    assert reply.effective["model"].startswith(wire.model.split("/")[0][:6])


@every_provider
def test_a_refusal_is_declined_not_malformed(serve: Serve, wire: WireFormat, question: Question):
    served = serve(wire, GOOD)
    served.server.breaks(wire.refusal("I will not rate people."))
    reply = must_be(ModelDeclined, served.ask(question))
    if wire is not GEMINI:
        assert (reply.kind, reply.reason) == ("refusal", "I will not rate people.")
    assert len(served.server.calls()) == 1, "a refusal is not asked again"


@every_provider
def test_a_safety_block_is_declined_in_every_shape(serve: Serve, wire: WireFormat, question: Question):
    for says in wire.blocks():
        served = serve(wire, GOOD)
        served.server.breaks(says)
        reply = must_be(ModelDeclined, served.ask(question))
        assert reply.kind == "blocked"
        if wire is GEMINI:
            assert reply.reason.endswith("_reason = PROHIBITED_CONTENT")
        assert len(served.server.calls()) == 1


BAD = {
    "no JSON": "I would say four.",
    "half a JSON": '{"reason": "as asked", "sco',
    "a score of 6": '{"reason": "", "score": 6}',
    "a half point": '{"reason": "", "score": 3.5}',
    "a score as text": '{"reason": "", "score": "4"}',
    "a missing score": '{"reason": "none"}',
    "a null": '{"reason": "", "score": null}',
}


@pytest.mark.parametrize(
    ("wire", "bad"),
    [
        *((CHAT, bad) for bad in BAD.values()),
        *((wire, BAD["a score of 6"]) for wire in WIRE_FORMATS if wire is not CHAT),
    ],
    ids=[*BAD, *(f"a score of 6, {wire.provider}" for wire in WIRE_FORMATS if wire is not CHAT)],
)
def test_a_malformed_answer_is_asked_once_more(serve: Serve, wire: WireFormat, question: Question, bad: str):
    served = serve(wire, bad, GOOD)
    reply = must_be(ModelAnswered, served.ask(question))
    assert reply.earlier == bad
    assert reply.effective["asked"] == 2
    assert len(served.server.calls()) == 2


@every_provider
def test_two_malformed_answers_keep_both_texts_and_both_costs(serve: Serve, wire: WireFormat, question: Question):
    price = {"input": 1.0, "output": 10.0}
    served = serve(wire, "first", '{"reason": "", "score": 0}', GOOD, price=price)
    reply = must_be(Malformed, served.ask(question))
    assert (reply.earlier, reply.text) == ("first", '{"reason": "", "score": 0}')
    assert reply.problem.startswith("score: ")
    assert reply.cost == pytest.approx(2 * (3000 * 1.0 + 600 * 10.0) / 1e6)
    assert len(served.server.calls()) == 2


@every_provider
def test_a_truncated_answer_is_malformed_even_if_it_parses(serve: Serve, wire: WireFormat, question: Question):
    served = serve(wire, GOOD)
    served.server.breaks(wire.truncated(json.dumps(GOOD)), times=2)
    reply = must_be(Malformed, served.ask(question))
    assert reply.problem == "the answer was truncated"


def test_json_in_a_fence_is_an_answer(serve: Serve, question: Question):
    served = serve(CHAT, f"```json\n{json.dumps(GOOD)}\n```")
    reply = must_be(ModelAnswered, served.ask(question))
    assert reply.text.startswith("```json"), "the raw text is kept"


@pytest.mark.parametrize(
    ("wire", "settings"),
    [
        (RESPONSES, {"temperature": 0.1}),
        (ANTHROPIC, {"temperature": 0.1}),
        (ANTHROPIC, {"service_tier": "flex"}),
        (ANTHROPIC, {"detail": "high"}),
        (GEMINI, {"verbosity": "low"}),
    ],
    ids=lambda value: value.provider if isinstance(value, WireFormat) else next(iter(value)),
)
def test_a_setting_that_would_be_ignored_is_an_error_before_the_first_call(
    serve: Serve, wire: WireFormat, settings: dict[str, object], question: Question
):
    served = serve(wire, GOOD, **settings)
    (name,) = settings
    assert any(f"ignores `{name}" in sentence for sentence in served.asker.problems())
    reply = must_be(Failed, served.ask(question))
    assert name in reply.error
    assert (reply.fatal, reply.retryable) == (True, True)
    assert served.server.calls() == []


@pytest.mark.parametrize(
    ("wire", "settings"),
    [
        (RESPONSES, {"effort": "low", "verbosity": "low", "detail": "high", "service_tier": "flex"}),
        (CHAT, {"temperature": 0.0, "effort": "low", "detail": "low"}),
        (GEMINI, {"temperature": 0.1, "effort": "low", "detail": "high", "service_tier": "flex"}),
        (ANTHROPIC, {"effort": "low"}),
    ],
    ids=lambda value: value.provider if isinstance(value, WireFormat) else "",
)
def test_every_supported_setting_reaches_the_provider(
    serve: Serve, wire: WireFormat, settings: dict[str, object], question: Question
):
    served = serve(wire, GOOD, **settings)
    reply = must_be(ModelAnswered, served.ask(question))
    sent = served.server.calls()[0].content.decode()
    for name, value in settings.items():
        assert name in reply.effective["sent"]
        assert str(value).lower() in sent.lower()


def test_openai_is_asked_not_to_store_portraits(serve: Serve, question: Question):
    served = serve(RESPONSES, GOOD)
    served.ask(question)
    assert served.server.calls()[0].json["store"] is False


@pytest.mark.parametrize(
    ("wire", "settings", "dollars"),
    [
        (GEMINI, {}, (3000 * 0.5 + 600 * 3) / 1e6),
        (CHAT, {"price": {"input": 2.0, "output": 4.0}}, (3000 * 2 + 600 * 4) / 1e6),
        (CHAT, {}, None),
    ],
    ids=["price list", "price of the audit", "unknown"],
)
def test_the_cost_is_that_of_the_list_or_the_audit_and_otherwise_unknown(
    serve: Serve, wire: WireFormat, settings: dict[str, object], dollars: float | None, question: Question
):
    reply = must_be(ModelAnswered, serve(wire, GOOD, **settings).ask(question))
    assert reply.cost == pytest.approx(dollars or 0.0)
    assert reply.effective.get("cost") == ("unknown" if dollars is None else None)


def test_the_flex_tier_is_asked_for_and_costs_half(serve: Serve, question: Question):
    served = serve(RESPONSES, GOOD, service_tier="flex")
    served.server.breaks(Says(body={**RESPONSES.answer(json.dumps(GOOD)), "service_tier": "flex"}))
    reply = served.ask(question)
    given = served.asker.settings
    (asked,) = served.server.calls()
    assert asked.json["service_tier"] == "flex"
    assert reply.effective["service_tier"] == "flex"
    full = given.model_copy(update={"service_tier": None}).expected_dollars()
    assert full is not None
    assert reply.cost == pytest.approx(full / 2)
    assert given.expected_dollars() == pytest.approx(full / 2)


def test_an_image_is_encoded_once_however_often_and_to_whomever_it_is_sent(serve: Serve, tmp_path: Path):
    question = Question(system="-", parts=write_images(tmp_path, 31, 33), answer=Verdict)
    served, before = [serve(wire, GOOD, concurrency=8) for wire in (CHAT, RESPONSES)], SHARED.misses
    with ThreadPoolExecutor(8) as pool:
        replies = list(pool.map(lambda place: served[place % 2].ask(question), range(16)))
    assert all(isinstance(reply, ModelAnswered) for reply in replies)
    assert SHARED.misses == before + 2


def test_a_large_image_is_downscaled(serve: Serve, tmp_path: Path):
    reply = serve(CHAT, GOOD, image_side=300).ask(
        Question(system="-", parts=write_images(tmp_path, 400), answer=Verdict)
    )
    assert must_be(ModelAnswered, reply).effective["images"] == [[300, 30]]


def test_images_of_another_size_or_quality_are_encoded_apart(images: list[ImageFile]):
    encoder = ImageEncoder()
    settings = [(64, 90), (64, 60), (16, 90), (64, 90)]
    sent = [encoder.encode(images[0], side=side, quality=quality) for side, quality in settings]
    assert encoder.misses == 3
    assert sent[0] is sent[3]
    assert sent[0].data != sent[1].data
    assert sent[2].size == (10, 16)


@every_provider
def test_each_question_carries_its_own_images(serve: Serve, wire: WireFormat, images: list[ImageFile]):
    """Under load no question may be sent with another one's image."""
    served = serve(wire, GOOD, concurrency=8)
    questions = [Question(system="-", parts=(str(place % 2), images[place % 2]), answer=Verdict) for place in range(16)]
    with ThreadPoolExecutor(8) as pool:
        assert all(isinstance(reply, ModelAnswered) for reply in pool.map(served.ask, questions))
    expected = [served.asker.prepare(question).parts[1] for question in questions[:2]]
    for asked in served.server.calls():
        seen = wire.parse(asked.json)
        image = expected[int(seen.text)]
        assert isinstance(image, EncodedImage)
        # Gemini's client uses the alphabet for addresses.
        alphabet = b"-_" if wire is GEMINI else None
        assert [base64.b64decode(sent, altchars=alphabet) for sent in seen.images] == [image.data]
        assert int(asked.headers["content-length"]) == len(asked.content)


@every_provider
def test_a_request_is_the_one_that_its_official_client_writes(
    serve: Serve, wire: WireFormat, question: Question, monkeypatch: pytest.MonkeyPatch
):
    served = serve(wire, GOOD, max_tokens=1000)
    assert isinstance(served.ask(question), ModelAnswered)
    prepared = served.asker.prepare(question)
    message = connection._message_of(question, prepared.parts, served.asker.settings)
    (shown,) = message.parts
    images = iter(part for part in prepared.parts if isinstance(part, EncodedImage))
    for part in shown.content:
        if isinstance(part, BinaryContent):
            part.data = next(images).data
    monkeypatch.setattr(connection, "_message_of", lambda *_: message)
    monkeypatch.setattr(connection, "_with_images", lambda content: content)
    assert isinstance(served.ask(question), ModelAnswered)
    ours, written = served.server.calls()
    assert len(wire.parse(written.json).images) == 2
    assert ours.content == written.content


def test_a_request_without_all_images_is_not_sent(serve: Serve, question: Question, monkeypatch: pytest.MonkeyPatch):
    served = serve(CHAT, GOOD)
    served.asker.connection()
    monkeypatch.setattr(connection, "_STAND_INS", re.compile(rb"never(\d)"))
    reply = served.ask(question)
    assert "0 of the question's 2 images" in reply.error
    assert served.server.calls() == []


def test_many_threads_share_one_model(serve: Serve, question: Question):
    in_flight = threading.Semaphore(0)
    most = 0

    def script(_: object) -> str:
        nonlocal most
        in_flight.release()
        most = max(most, in_flight._value)
        time.sleep(0.05)
        in_flight.acquire()
        return json.dumps(GOOD)

    served = serve(CHAT, script=script, concurrency=12)
    with ThreadPoolExecutor(12) as pool:
        replies = list(pool.map(lambda _: served.ask(question), range(36)))
    assert all(isinstance(reply, ModelAnswered) for reply in replies)
    assert most > 6


def test_an_unreadable_image_fails_before_anything_is_sent(serve: Serve, tmp_path: Path):
    (tmp_path / "x.png").write_bytes(b"no image")
    served = serve(CHAT, GOOD)
    reply = served.ask(Question(system="-", parts=(ImageFile.of(tmp_path / "x.png"),), answer=Verdict))
    assert not reply.retryable
    assert served.server.calls() == []
