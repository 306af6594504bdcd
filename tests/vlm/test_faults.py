"""What goes wrong is told apart the same way for every provider: of the request, of the moment, or for the user."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import closing
from typing import Any

import pytest
from pydantic import BaseModel

from stillme.core.types import Failed, ImageFile
from stillme.judges.vlm import Malformed, Model, ModelAnswered, Question
from tests.editors.hosted.loopback import Says
from tests.records import must_be
from tests.vlm.conftest import GOOD, Serve, Served, every_provider
from tests.vlm.servers import ANTHROPIC, CHAT, GEMINI, KEY, RESPONSES, WIRE_FORMATS, WireFormat


def refused(http: int, message: str, /, **more: Any) -> Says:
    return Says(status=http, body={"error": {"message": message, **more}})


def failed(served: Served, question: Question, says: Says) -> Failed:
    """How the model fails on that answer; it is asked only once, and answers the next question."""
    before = len(served.server.calls())
    served.server.breaks(says)
    reply = must_be(Failed, served.ask(question))
    assert len(served.server.calls()) == before + 1, "retries are for the caller"
    assert isinstance(served.ask(question), ModelAnswered), "a failure is never final"
    return reply


# -- who must act -----------------------------------------------------------------------------------------------------

INVALID_KEY = {"@type": "type.googleapis.com/google.rpc.ErrorInfo", "reason": "API_KEY_INVALID"}
NO_QUOTA = (
    "You exceeded your current quota.\n* Quota exceeded for metric: generate_content_free_tier_requests, limit: 0, "
    "model: gemini-3-pro"
)
THE_USER, THE_CLOCK = (True, False, True), (False, True, True)
THE_PROVIDER, NO_ONE = (False, False, True), (False, False, False)
"""Fatal, throttled, retryable."""
OF_EVERY_PROVIDER = [
    *((refused(status, "no"), THE_USER) for status in (401, 403)),
    (refused(404, "no such model", code="model_not_found"), THE_USER),
    (refused(429, "slow down"), THE_CLOCK),
    (refused(200, "slow down", code="rate_limit_exceeded"), THE_CLOCK),
    *((refused(status, "down"), THE_PROVIDER) for status in (408, 503, 529)),
    *((refused(status, "Invalid image."), NO_ONE) for status in (400, 422)),
]
FAULTS = [
    *((wire, says, flags) for wire in WIRE_FORMATS for says, flags in OF_EVERY_PROVIDER),
    (GEMINI, refused(400, "API key not valid.", code=400, status="INVALID_ARGUMENT", details=[INVALID_KEY]), THE_USER),
    (GEMINI, refused(400, "User location is not supported.", code=400, status="FAILED_PRECONDITION"), THE_USER),
    (GEMINI, refused(429, NO_QUOTA, code=429, status="RESOURCE_EXHAUSTED"), THE_USER),
    (GEMINI, refused(429, NO_QUOTA.replace("0", "05"), code=429, status="RESOURCE_EXHAUSTED"), THE_CLOCK),
    (RESPONSES, refused(429, "You exceeded your current quota.", code="insufficient_quota"), THE_USER),
    (CHAT, refused(429, "You exceeded your current quota.", type="insufficient_quota"), THE_USER),
    (ANTHROPIC, refused(400, "Your credit balance is too low.", type="invalid_request_error"), THE_USER),
]


@pytest.mark.parametrize(
    ("wire", "says", "flags"),
    FAULTS,
    ids=[f"{wire.provider}-{says.status}-{says.body['error']['message'][:20]}" for wire, says, _ in FAULTS],
)
def test_a_fault_says_who_must_act(
    serve: Serve, wire: WireFormat, says: Says, flags: tuple[bool, bool, bool], question: Question
):
    reply = failed(serve(wire, GOOD), question, says)
    assert (reply.fatal, reply.throttled, reply.retryable) == flags
    assert says.body["error"]["message"].split("\n")[0] in reply.error, "in the provider's own words"
    assert says.status == 200 or reply.status == str(says.status)


def test_a_missing_key_is_fatal_and_can_be_put_right(serve: Serve, question: Question, monkeypatch: pytest.MonkeyPatch):
    served = serve(RESPONSES, GOOD)
    monkeypatch.delenv("OPENAI_API_KEY")
    reply = must_be(Failed, served.ask(question))
    assert (reply.fatal, reply.retryable) == (True, True)
    assert "export OPENAI_API_KEY" in reply.error
    assert served.server.calls() == []
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    assert isinstance(served.ask(question), ModelAnswered)


IN_A_HEADER = Says(status=429, body={"error": {"message": "slow down"}}, headers={"retry-after-ms": "37500"})
RETRY = {"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "37.5s"}
IN_THE_BODY = refused(429, "Quota exceeded.", code=429, status="RESOURCE_EXHAUSTED", details=[RETRY])


@pytest.mark.parametrize(
    ("wire", "says"),
    [*((wire, IN_A_HEADER) for wire in WIRE_FORMATS), (GEMINI, IN_THE_BODY)],
    ids=[*(wire.provider for wire in WIRE_FORMATS), "google, in the body"],
)
def test_a_rate_limit_tells_how_long(serve: Serve, wire: WireFormat, says: Says, question: Question):
    assert failed(serve(wire, GOOD), question, says).retry_after == 37.5


# -- answers that are none --------------------------------------------------------------------------------------------


def empty(body: Any) -> Any:
    """An answer of the right form, in which nobody answers."""
    return {
        name: [] if name in ("candidates", "choices", "output", "content") else value for name, value in body.items()
    }


NO_ANSWERS: dict[str, Callable[[WireFormat], Says]] = {
    "an empty body": lambda _: Says(body=b""),
    "{}": lambda _: Says(body={}),
    "null": lambda _: Says(body=b"null", headers={"Content-Type": "application/json"}),
    "a list": lambda _: Says(body=[]),
    "a web page": lambda _: Says(body=b"<html>sign in</html>", headers={"Content-Type": "text/html"}),
    "an error object": lambda _: Says(body={"error": {"message": "upstream is down", "code": 502}}),
    "an error as text": lambda _: Says(body={"error": "upstream is down"}),
    "another object": lambda _: Says(body={"detail": "hello"}),
    "no candidates": lambda wire: Says(body=empty(wire.answer("-"))),
    "an empty answer": lambda wire: Says(body=wire.answer("")),
}


@every_provider
@pytest.mark.parametrize("kind", NO_ANSWERS)
def test_a_200_without_an_answer_is_a_retryable_failure(serve: Serve, wire: WireFormat, kind: str, question: Question):
    reply = failed(serve(wire, GOOD), question, NO_ANSWERS[kind](wire))
    assert (reply.retryable, reply.fatal, reply.throttled) == (True, False, False)
    assert "NoneType" not in reply.error
    if "error" in kind:
        assert "upstream is down" in reply.error


def test_what_a_response_without_an_answer_cost_is_kept(serve: Serve, question: Question):
    reply = failed(serve(GEMINI, GOOD), question, NO_ANSWERS["no candidates"](GEMINI))
    assert reply.cost == pytest.approx((3000 * 0.5 + 600 * 3) / 1e6)


AMBIGUOUS = {
    "a score twice": '{"score": 2, "score": 5}',
    "a key twice inside": '{"score": 2, "more": {"a": 1, "a": 1}}',
    "NaN": '{"score": 2, "weight": NaN}',
    "infinity": '{"score": 2, "weight": Infinity}',
    "minus infinity": '{"score": 2, "weight": -Infinity}',
}


@pytest.mark.parametrize("text", AMBIGUOUS.values(), ids=AMBIGUOUS)
def test_an_ambiguous_answer_is_malformed(serve: Serve, text: str, question: Question):
    served = serve(CHAT, text)
    reply = must_be(Malformed, served.ask(question))
    assert (reply.earlier, reply.text) == (text, text), "the raw text stays raw"
    assert len(served.server.calls()) == 2


# -- keys and limits --------------------------------------------------------------------------------------------------


@every_provider
def test_a_key_is_redacted_before_the_message_is_cut(serve: Serve, wire: WireFormat, question: Question):
    # The key lies across the place where the message is cut: half of it must not remain.
    reply = failed(serve(wire, GOOD, key_variable="OPENAI_API_KEY"), question, refused(401, "x" * 590 + KEY))
    assert KEY[:8] not in reply.error
    assert "…" in reply.error


@every_provider
def test_a_turn_that_is_far_away_is_returned_instead_of_slept(serve: Serve, wire: WireFormat, question: Question):
    served = serve(wire, GOOD, requests_per_minute=2)
    assert isinstance(served.ask(question), ModelAnswered)
    reply = must_be(Failed, served.ask(question))
    assert (reply.throttled, reply.retryable, reply.fatal) == (True, True, False)
    assert reply.retry_after == pytest.approx(30, abs=5)
    assert len(served.server.calls()) == 1


# -- money ------------------------------------------------------------------------------------------------------------


def uncounted(wire: WireFormat, *, zero: bool) -> Says:
    """An answer whose tokens are not counted, or counted as none."""
    body = dict(wire.answer(json.dumps(GOOD)))
    name = "usageMetadata" if wire is GEMINI else "usage"
    usage = body.pop(name)
    if zero:
        body[name] = {key: 0 if isinstance(value, int) else value for key, value in usage.items()}
    return Says(body=body)


@every_provider
@pytest.mark.parametrize("zero", [True, False], ids=["zero tokens", "no usage"])
@pytest.mark.parametrize("price", [None, {"input": 1.0, "output": 1.0}], ids=["price list", "own price"])
def test_an_answer_without_counted_tokens_has_an_unknown_cost(
    serve: Serve, wire: WireFormat, zero: bool, price: Any, question: Question
):
    served = serve(wire, GOOD, price=price)
    served.server.breaks(uncounted(wire, zero=zero))
    reply = served.ask(question)
    if wire is ANTHROPIC and not zero:
        # Its client cannot read a response without them.
        assert "an HTTP 200 without `usage`" in reply.error
        return
    assert (reply.cost, reply.effective["cost"]) == (0.0, "unknown")


def test_the_server_is_recorded_without_its_password(serve: Serve, question: Question):
    settings = serve(CHAT, GOOD).asker.settings
    secret = settings.model_copy(update={"base_url": settings.address.replace("//", "//user:secret@")})
    with closing(Model(secret)) as model:
        reply = must_be(ModelAnswered, model.ask(question))
    assert reply.effective["server"] == settings.address.removeprefix("http://").partition("/")[0]


# -- an answer that arrived has a cost --------------------------------------------------------------------------------

HOSTILE = {
    "a loop of digits": '{"score": 4' + "0" * 9_000,
    "a number of 5,001 digits": '{"score": ' + "4" * 5_001 + "}",
    "100,000 brackets": "[" * 100_000,
    "brackets in a field": '{"score": ' + "[" * 100_000,
}
PRICE = {"input": 1.0, "output": 2.0}


@every_provider
@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE)
def test_an_answer_that_no_client_can_read_is_malformed_with_its_cost(
    serve: Serve, wire: WireFormat, question: Question, text: str
):
    served = serve(wire, text, price=PRICE)
    served.server.breaks(wire.truncated(text))
    reply = must_be(Malformed, served.ask(question))
    assert len(served.server.calls()) == 2, "asked once more, and no more"
    assert reply.cost == pytest.approx(2 * (3000 * 1.0 + 600 * 2.0) / 1e6)
    assert reply.text[:20] == text[:20]


@every_provider
def test_a_sum_with_an_unknown_part_is_unknown(serve: Serve, wire: WireFormat, question: Question):
    served = serve(wire, GOOD, price=PRICE)
    body = {name: value for name, value in wire.answer(HOSTILE["100,000 brackets"]).items() if "usage" not in name}
    body |= {"usage": {}} if wire is ANTHROPIC else {}
    served.server.breaks(Says(body=body))
    reply = must_be(ModelAnswered, served.ask(question))
    assert (reply.effective["asked"], reply.effective["cost"]) == (2, "unknown")


@every_provider
def test_a_200_that_is_no_answer_may_have_been_charged(serve: Serve, wire: WireFormat, question: Question):
    served = serve(wire, GOOD)
    assert failed(served, question, Says(body=b"<html>hello</html>")).effective == {"cost": "unknown"}
    assert failed(served, question, Says(status=503, body=b"busy")).effective == {}


@every_provider
def test_an_answer_is_limited_in_size(
    serve: Serve, wire: WireFormat, question: Question, monkeypatch: pytest.MonkeyPatch
):
    served = serve(wire, GOOD)
    assert isinstance(served.ask(question), ModelAnswered)
    monkeypatch.setattr("stillme.core.http.client.MOST_BYTES", 2**20)
    reply = failed(served, question, Says(body=b" " * (2**20 + 1)))
    assert (reply.retryable, reply.effective) == (True, {"cost": "unknown"}), "it was answered, and perhaps charged"


@every_provider
def test_a_question_whose_answer_is_cut_off_may_have_been_charged(serve: Serve, wire: WireFormat, question: Question):
    served = serve(wire, GOOD, timeout=1.5)
    assert isinstance(served.ask(question), ModelAnswered)
    assert failed(served, question, Says(body=b"{}  ", truncated=True)).effective == {"cost": "unknown"}
    reply = failed(served, question, Says(hangs=True))
    assert (reply.retryable, reply.effective) == (True, {"cost": "unknown"})
    assert len(served.server.calls()) == 5, "each time once, and `failed` asks once more"
    served.server.breaks(Says(body={"x": 1}, trickles=True))
    assert isinstance(served.ask(question), Failed), "a body that trickles in times out, too"


@every_provider
def test_a_server_is_told_one_name(serve: Serve, wire: WireFormat, question: Question):
    served = serve(wire, GOOD)
    served.ask(question)
    (asked,) = served.server.calls()
    assert asked.headers["user-agent"].startswith("stillme/")
    assert [name for name, _ in asked.header_list].count("user-agent") == 1


class Seen(BaseModel):
    """An answer with observations."""

    observations: str
    score: int


@every_provider
def test_observations_come_before_scores(serve: Serve, wire: WireFormat, images: list[ImageFile]):
    looking = Question(system="Judge.", parts=("Look:", images[0]), answer=Seen)
    served = serve(wire, {"score": 4, "observations": "darker"}, {"observations": "darker", "score": 4})
    reply = must_be(ModelAnswered, served.ask(looking))
    assert reply.effective["asked"] == 2
    again = must_be(Malformed, serve(wire, {"score": 4, "observations": "darker"}).ask(looking))
    assert "`observations` must come before" in again.problem
