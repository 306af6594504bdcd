"""Every kind of reply, over every provider's own wire format and official client."""

from __future__ import annotations

import base64
import io
import json
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from pydantic import BaseModel, Field

from stillme.errors import UnknownName
from stillme.types import Failed, ImageFile
from stillme.vlm import Answered, Declined, Malformed, Model, Question, model_named
from tests.editors.hosted.loopback import Says, serving
from tests.vlm.conftest import KEY, Desk
from tests.vlm.servers import ANTHROPIC, CHAT, GEMINI, RESPONSES, SPEAKERS, Speaker

At = Callable[..., Desk]


class Verdict(BaseModel):
    """A score with a reason."""

    reason: str
    score: int = Field(ge=1, le=5)


GOOD = {"reason": "as asked", "score": 4}
every = pytest.mark.parametrize("speaker", SPEAKERS, ids=lambda speaker: speaker.name)


@pytest.fixture
def question(pictures: list[ImageFile]) -> Question:
    before, after = pictures
    return Question(system="Judge.", parts=("Before:", before, "After:", after), answer=Verdict)


@every
def test_a_question_arrives_whole_and_its_answer_is_typed(at: At, speaker: Speaker, question: Question):
    desk = at(speaker, GOOD)
    reply = desk.model.ask(question)
    assert isinstance(reply, Answered), reply
    assert reply.value == Verdict(reason="as asked", score=4)
    assert json.loads(reply.text) == GOOD
    (asked,) = desk.server.calls()
    assert asked.path.partition("?")[0].endswith(speaker.path)
    seen = speaker.see(asked.json)
    assert seen.system == "Judge."
    assert seen.text == "Before:\nAfter:"
    sizes = [Image.open(io.BytesIO(base64.urlsafe_b64decode(data))).size for data in seen.images]
    assert sizes == [(24, 40), (24, 40)]


@every
def test_what_really_applied_is_recorded(at: At, speaker: Speaker, question: Question):
    reply = at(speaker, GOOD, max_tokens=1000).model.ask(question)
    assert isinstance(reply, Answered)
    assert reply.effective["sent"]["max_tokens"] == 1000
    assert "temperature" not in reply.effective["sent"]
    assert reply.effective["tokens"]["input"] == 3000
    assert reply.effective["tokens"]["output"] == 600
    assert reply.effective["images"] == [[24, 40], [24, 40]]
    assert reply.effective["model"].startswith(speaker.model.split("/")[0][:6])


@every
def test_no_file_name_reaches_the_model(at: At, speaker: Speaker, question: Question):
    desk = at(speaker, GOOD)
    desk.model.ask(question)
    assert b"Black_woman" not in desk.server.calls()[0].content


@every
def test_a_refusal_is_declined_not_malformed(at: At, speaker: Speaker, question: Question):
    desk = at(speaker, GOOD)
    desk.server.breaks(speaker.refuse("I will not rate people."))
    reply = desk.model.ask(question)
    assert isinstance(reply, Declined), reply
    if speaker is not GEMINI:
        assert (reply.kind, reply.reason) == ("refusal", "I will not rate people.")
    assert len(desk.server.calls()) == 1, "a refusal is not argued with"


@every
def test_a_safety_block_is_declined_in_every_shape(at: At, speaker: Speaker, question: Question):
    for says in speaker.block():
        desk = at(speaker, GOOD)
        desk.server.breaks(says)
        reply = desk.model.ask(question)
        assert isinstance(reply, Declined), reply
        assert reply.kind == "blocked"
        assert len(desk.server.calls()) == 1


def test_both_shapes_of_a_gemini_block_name_their_reason(at: At, question: Question):
    reasons = []
    for says in GEMINI.block():
        desk = at(GEMINI, GOOD)
        desk.server.breaks(says)
        reply = desk.model.ask(question)
        assert isinstance(reply, Declined)
        reasons.append(reply.reason)
    assert reasons == ["block_reason = PROHIBITED_CONTENT", "finish_reason = PROHIBITED_CONTENT"]


BAD = {
    "no JSON": "I would say four.",
    "half a JSON": '{"reason": "as asked", "sco',
    "a sixth point": '{"reason": "", "score": 6}',
    "a half point": '{"reason": "", "score": 3.5}',
    "a score as text": '{"reason": "", "score": "4"}',
    "a missing score": '{"reason": "none"}',
    "a null": '{"reason": "", "score": null}',
    "nothing": "",
}


@pytest.mark.parametrize(
    ("speaker", "bad"),
    [*((CHAT, bad) for bad in BAD.values()), *((each, BAD["a sixth point"]) for each in SPEAKERS if each is not CHAT)],
    ids=[*BAD, *(f"a sixth point, {each.name}" for each in SPEAKERS if each is not CHAT)],
)
def test_a_malformed_answer_is_asked_once_more(at: At, speaker: Speaker, question: Question, bad: str):
    desk = at(speaker, bad, GOOD)
    reply = desk.model.ask(question)
    assert isinstance(reply, Answered), reply
    assert reply.earlier == bad
    assert reply.effective["asked"] == 2
    assert len(desk.server.calls()) == 2


@every
def test_twice_malformed_keeps_both_texts_and_both_costs(at: At, speaker: Speaker, question: Question):
    price = {"input": 1.0, "output": 10.0}
    desk = at(speaker, "first", '{"reason": "", "score": 0}', GOOD, price=price)
    reply = desk.model.ask(question)
    assert isinstance(reply, Malformed), reply
    assert (reply.earlier, reply.text) == ("first", '{"reason": "", "score": 0}')
    assert reply.problem.startswith("score: ")
    assert reply.cost == pytest.approx(2 * (3000 * 1.0 + 600 * 10.0) / 1e6)
    assert len(desk.server.calls()) == 2


@every
def test_a_truncated_answer_is_malformed_even_if_it_parses(at: At, speaker: Speaker, question: Question):
    desk = at(speaker, GOOD)
    desk.server.breaks(speaker.cut(json.dumps(GOOD)), times=2)
    reply = desk.model.ask(question)
    assert isinstance(reply, Malformed), reply
    assert reply.problem == "the answer was cut off"


def test_json_in_a_fence_is_read_as_it_stands(at: At, question: Question):
    desk = at(CHAT, f"```json\n{json.dumps(GOOD)}\n```")
    reply = desk.model.ask(question)
    assert isinstance(reply, Answered)
    assert reply.text.startswith("```json"), "the raw text is kept as it came"


@every
def test_too_many_requests_say_when_to_come_back(at: At, speaker: Speaker, question: Question):
    desk = at(speaker, GOOD)
    busy = Says(status=429, body={"error": {"message": "slow down"}}, headers={"retry-after-ms": "200"})
    desk.server.breaks(busy)
    reply = desk.model.ask(question)
    assert isinstance(reply, Failed)
    assert reply.retryable
    assert reply.retry_after == pytest.approx(0.2)
    assert "429" in reply.error
    assert len(desk.server.calls()) == 1, "clients must not retry on their own"
    begun = time.monotonic()
    assert isinstance(desk.model.ask(question), Answered)
    assert time.monotonic() - begun >= 0.15, "nobody asks while the provider wants a pause"


@every
def test_seconds_to_wait_are_understood(at: At, speaker: Speaker, question: Question):
    desk = at(speaker, GOOD)
    desk.server.breaks(Says(status=429, body={"error": {"message": "slow down"}}, headers={"Retry-After": "7"}))
    reply = desk.model.ask(question)
    assert isinstance(reply, Failed)
    assert reply.retry_after == 7


def test_gemini_puts_the_wait_into_the_body(at: At, question: Question):
    desk = at(GEMINI, GOOD)
    wait = {"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "37.5s"}
    error = {"code": 429, "message": "Quota exceeded.", "status": "RESOURCE_EXHAUSTED", "details": [wait]}
    desk.server.breaks(Says(status=429, body={"error": error}))
    reply = desk.model.ask(question)
    assert isinstance(reply, Failed)
    assert reply.retry_after == 37.5


@pytest.mark.parametrize(
    ("speaker", "status"),
    [(RESPONSES, 500), (CHAT, 503), (GEMINI, 503), (ANTHROPIC, 529)],
    ids=lambda value: value.name if isinstance(value, Speaker) else str(value),
)
def test_an_outage_is_not_a_refusal(at: At, speaker: Speaker, question: Question, status: int):
    desk = at(speaker, GOOD)
    desk.server.breaks(Says(status=status, body={"error": {"message": "down"}}))
    reply = desk.model.ask(question)
    assert isinstance(reply, Failed)
    assert reply.retryable
    assert len(desk.server.calls()) == 1


@every
def test_a_hanging_socket_ends_in_time(at: At, speaker: Speaker, question: Question):
    desk = at(speaker, GOOD, timeout=0.3)
    desk.server.breaks(Says(hangs=True))
    begun = time.monotonic()
    reply = desk.model.ask(question)
    assert isinstance(reply, Failed)
    assert reply.retryable
    assert time.monotonic() - begun < 3
    desk.server.breaks(Says(body={"x": 1}, trickles=True))
    assert isinstance(desk.model.ask(question), Failed), "trickling in is no answer either"


@every
def test_half_an_answer_is_a_failure(at: At, speaker: Speaker, question: Question):
    desk = at(speaker, GOOD)
    desk.server.breaks(Says(body=speaker.say(json.dumps(GOOD)), truncated=True))
    reply = desk.model.ask(question)
    assert isinstance(reply, Failed)
    assert reply.retryable


@every
def test_a_wrong_key_locks_out_and_is_not_repeated_in_words(at: At, speaker: Speaker, question: Question):
    desk = at(speaker, GOOD)
    desk.server.breaks(Says(status=401, body={"error": {"message": f"Incorrect API key provided: {KEY}"}}))
    first, second = desk.model.ask(question), desk.model.ask(question)
    assert isinstance(first, Failed)
    assert first.retryable, "a rerun with the right key must ask again"
    if speaker.key_variable:
        assert KEY not in first.error
    assert isinstance(second, Failed)
    assert len(desk.server.calls()) == 1, "thousands of further questions would only repeat it"
    desk.model.close()
    assert isinstance(desk.model.ask(question), Answered)


def test_a_gemini_key_that_is_none_is_a_lock_out_too(at: At, question: Question):
    desk = at(GEMINI, GOOD)
    info = {"@type": "type.googleapis.com/google.rpc.ErrorInfo", "reason": "API_KEY_INVALID"}
    error = {"code": 400, "message": "API key not valid.", "status": "INVALID_ARGUMENT", "details": [info]}
    desk.server.breaks(Says(status=400, body={"error": error}))
    assert isinstance(desk.model.ask(question), Failed)
    assert isinstance(desk.model.ask(question), Failed)
    assert len(desk.server.calls()) == 1


@every
def test_a_rejected_request_is_final(at: At, speaker: Speaker, question: Question):
    desk = at(speaker, GOOD)
    desk.server.breaks(Says(status=400, body={"error": {"message": "image too small", "code": "invalid_image"}}))
    reply = desk.model.ask(question)
    assert isinstance(reply, Failed)
    assert not reply.retryable
    assert "image too small" in reply.error


@pytest.mark.parametrize(
    ("speaker", "settings"),
    [
        (RESPONSES, {"temperature": 0.1}),
        (ANTHROPIC, {"temperature": 0.1}),
        (ANTHROPIC, {"service_tier": "flex"}),
        (ANTHROPIC, {"detail": "high"}),
        (GEMINI, {"verbosity": "low"}),
    ],
    ids=lambda value: value.name if isinstance(value, Speaker) else next(iter(value)),
)
def test_a_setting_that_would_be_ignored_is_an_error_before_the_first_call(
    at: At, speaker: Speaker, settings: dict[str, object], question: Question
):
    desk = at(speaker, GOOD, **settings)
    (name,) = settings
    assert any(f"ignores `{name}" in sentence for sentence in desk.model.objections())
    reply = desk.model.ask(question)
    assert isinstance(reply, Failed)
    assert name in reply.error
    assert desk.server.calls() == []


@pytest.mark.parametrize(
    ("speaker", "settings"),
    [
        (RESPONSES, {"effort": "low", "verbosity": "low", "detail": "high", "service_tier": "flex"}),
        (CHAT, {"temperature": 0.0, "effort": "low", "detail": "low"}),
        (GEMINI, {"temperature": 0.1, "effort": "low", "detail": "high", "service_tier": "flex"}),
        (ANTHROPIC, {"effort": "low"}),
    ],
    ids=lambda value: value.name if isinstance(value, Speaker) else "",
)
def test_every_setting_that_is_offered_reaches_the_provider(
    at: At, speaker: Speaker, settings: dict[str, object], question: Question
):
    desk = at(speaker, GOOD, **settings)
    reply = desk.model.ask(question)
    assert isinstance(reply, Answered), reply
    sent = desk.server.calls()[0].content.decode()
    for name, value in settings.items():
        assert name in reply.effective["sent"]
        assert str(value).lower() in sent.lower()


def test_openai_is_asked_not_to_keep_portraits(at: At, question: Question):
    desk = at(RESPONSES, GOOD)
    desk.model.ask(question)
    assert desk.server.calls()[0].json["store"] is False


def test_known_models_have_a_price_and_others_say_that_it_is_unknown(at: At, question: Question):
    known = at(GEMINI, GOOD).model.ask(question)
    assert isinstance(known, Answered)
    assert known.cost == pytest.approx((3000 * 0.5 + 600 * 3) / 1e6)
    assert "cost" not in known.effective
    unknown = at(CHAT, GOOD).model.ask(question)
    assert isinstance(unknown, Answered)
    assert (unknown.cost, unknown.effective["cost"]) == (0.0, "unknown")


def test_an_own_price_comes_first(at: At, question: Question):
    reply = at(CHAT, GOOD, price={"input": 2.0, "output": 4.0}).model.ask(question)
    assert isinstance(reply, Answered)
    assert reply.cost == pytest.approx((3000 * 2 + 600 * 4) / 1e6)
    assert "cost" not in reply.effective


def test_a_picture_is_encoded_once_however_often_it_is_shown(at: At, question: Question):
    desk = at(CHAT, GOOD, concurrency=8)
    with ThreadPoolExecutor(8) as pool:
        replies = list(pool.map(lambda _: desk.model.ask(question), range(16)))
    assert all(isinstance(reply, Answered) for reply in replies)
    assert desk.model.darkroom.encoded == 2


def test_a_large_picture_is_downscaled(at: At, tmp_path: Path):
    file = tmp_path / "large.png"
    Image.fromarray(np.zeros((600, 1200, 3), dtype=np.uint8)).save(file)
    desk = at(CHAT, GOOD, image_side=300)
    reply = desk.model.ask(Question(system="-", parts=(ImageFile.of(file),), answer=Verdict))
    assert isinstance(reply, Answered)
    assert reply.effective["images"] == [[300, 150]]


def test_many_threads_share_one_model(at: At, question: Question):
    busy = threading.Semaphore(0)
    most = 0

    def script(_: object) -> str:
        nonlocal most
        busy.release()
        most = max(most, busy._value)
        time.sleep(0.05)
        busy.acquire()
        return json.dumps(GOOD)

    desk = at(CHAT, script=script, concurrency=12)
    with ThreadPoolExecutor(12) as pool:
        replies = list(pool.map(lambda _: desk.model.ask(question), range(36)))
    assert all(isinstance(reply, Answered) for reply in replies)
    assert most > 6


def test_a_missing_key_is_one_sentence(monkeypatch: pytest.MonkeyPatch, question: Question):
    monkeypatch.delenv("OPENAI_API_KEY")
    with serving(lambda server, asked: Says()) as server:
        model = Model(RESPONSES.settings(server.url))
        reply = model.ask(question)
        assert isinstance(reply, Failed)
        assert "export OPENAI_API_KEY" in reply.error
        assert server.asked == []


def test_what_is_no_picture_fails_before_anything_is_sent(at: At, tmp_path: Path):
    (tmp_path / "x.png").write_bytes(b"no picture")
    desk = at(CHAT, GOOD)
    reply = desk.model.ask(Question(system="-", parts=(ImageFile.of(tmp_path / "x.png"),), answer=Verdict))
    assert isinstance(reply, Failed)
    assert not reply.retryable
    assert desk.server.calls() == []


def test_presets_are_data():
    paper = model_named("gpt-5-mini")
    assert (paper.provider, paper.model, paper.temperature) == ("openai", "gpt-5-mini-2025-08-07", None)
    assert model_named("gpt-5-mini", "current").model == "gpt-5.6-terra"
    assert model_named("gemini-3-flash").temperature == 0.1
    assert model_named("gemini-3-flash", "current").model == "gemini-3.6-flash"
    assert model_named("claude", "current") == model_named("claude")
    local = model_named("openai-compatible", model="llava", base_url="http://127.0.0.1:11434/v1")
    assert (local.provider, local.key_variable) == ("openai-chat", None)
    with pytest.raises(UnknownName, match="gemini-3-flash"):
        model_named("gemini-3-flahs")
