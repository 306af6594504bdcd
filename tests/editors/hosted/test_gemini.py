"""Gemini through the official client: it says 200 also when it declines."""

from __future__ import annotations

import pytest

from stillme.core.types import Edited, Failed, Refused
from tests.editors.hosted.loopback import Says
from tests.editors.hosted.providers import GEMINI, gemini_image, gemini_says, negative
from tests.editors.hosted.test_every_provider import At


def test_a_blocked_prompt_is_a_refusal(at: At):
    desk = at(GEMINI)
    body = {"promptFeedback": {"blockReason": "PROHIBITED_CONTENT"}, "usageMetadata": {"promptTokenCount": 1000}}
    desk.server.breaks(Says(body=body))
    outcome = desk.ask()
    assert isinstance(outcome, Refused)
    assert outcome.effective["signal"] == "promptFeedback.blockReason = PROHIBITED_CONTENT"
    assert outcome.cost == pytest.approx(1000 * 0.5 / 1e6)


@pytest.mark.parametrize("reason", ["IMAGE_SAFETY", "IMAGE_PROHIBITED_CONTENT", "PROHIBITED_CONTENT", "SAFETY"])
def test_a_finish_reason_that_names_a_policy_is_a_refusal(at: At, reason: str):
    desk = at(GEMINI)
    desk.server.breaks(gemini_says(finishReason=reason, finishMessage="Unable to show the generated image."))
    outcome = desk.ask()
    assert isinstance(outcome, Refused)
    assert outcome.message == "Unable to show the generated image."
    assert outcome.effective["signal"] == f"finishReason = {reason}"


@pytest.mark.parametrize(
    "words",
    [
        "I can't help with editing this person's skin colour.",
        "I’m sorry, but I am unable to modify images of real people.",
        "I cannot fulfil this request.",
        "Changing someone's race goes against my safety guidelines.",
        "This request violates our content policy.",
    ],
)
def test_a_clear_no_in_words_is_a_refusal(at: At, words: str):
    desk = at(GEMINI)
    desk.server.breaks(gemini_says([{"text": "Let me think.", "thought": True}, {"text": words}]))
    outcome = desk.ask()
    assert isinstance(outcome, Refused)
    assert outcome.message == words
    assert outcome.effective["signal"] == "a no in words instead of a picture"


@pytest.mark.parametrize(
    "words",
    [
        "Which of the two people should wear the hat?",
        "Here is the edited picture:",
        "I can't see a picture; please upload one.",
        "The person wears a dark suit, and the background can't be made out.",
    ],
)
def test_other_words_are_neither_a_refusal_nor_a_picture(at: At, words: str):
    desk = at(GEMINI)
    desk.server.breaks(gemini_says([{"text": words}]))
    outcome = desk.ask()
    assert isinstance(outcome, Failed)
    assert (outcome.status, outcome.retryable) == ("words", True)
    assert outcome.error == f"gemini: answered in words: {words}"
    assert outcome.cost > 0, "tokens were used"


@pytest.mark.parametrize(
    ("status", "code", "message"),
    [
        (400, "INVALID_ARGUMENT", "API key not valid. Please pass a valid API key."),
        (400, "FAILED_PRECONDITION", "User location is not supported for the API use."),
        (429, "RESOURCE_EXHAUSTED", "Quota exceeded for metric: generate_requests, limit: 0, model: gemini"),
        (404, "NOT_FOUND", "models/gemini-9 is not found for API version v1"),
    ],
)
def test_what_every_other_call_would_meet_is_fatal(at: At, status: int, code: str, message: str):
    desk = at(GEMINI)
    reason = [{"@type": "type.googleapis.com/google.rpc.ErrorInfo", "reason": "API_KEY_INVALID"}]
    details = reason if "key" in message else []
    body = {"error": {"code": status, "message": message, "status": code, "details": details}}
    desk.server.breaks(Says(status=status, body=body))
    outcome = desk.ask()
    assert isinstance(outcome, Failed)
    assert (outcome.fatal, outcome.throttled) == (True, False)
    assert message in outcome.error


def test_a_used_up_quota_is_only_a_reason_to_slow_down(at: At):
    desk = at(GEMINI)
    error = {"code": 429, "message": "Check your plan and billing details. limit: 10", "status": "RESOURCE_EXHAUSTED"}
    desk.server.breaks(Says(status=429, body={"error": error}))
    outcome = desk.ask()
    assert isinstance(outcome, Failed)
    assert (outcome.fatal, outcome.throttled) == (False, True)


def test_tokens_without_details_are_the_pictures(at: At):
    desk = at(GEMINI)
    says = gemini_says([gemini_image(desk.people[0].image.read())])
    says.body["usageMetadata"] = {"promptTokenCount": 300, "candidatesTokenCount": 1120}
    desk.server.breaks(says)
    assert desk.ask().cost == pytest.approx((300 * 0.5 + 1120 * 60) / 1e6)
    del says.body["usageMetadata"]
    desk.server.breaks(says)
    outcome = desk.ask()
    assert (outcome.cost, outcome.effective["cost"]) == (0.0, "unknown")


def test_the_price_of_an_edit_is_known_beforehand(at: At):
    assert at(GEMINI).editor.expected_dollars() == pytest.approx((1120 * 0.5 + 1120 * 60) / 1e6)
    assert at(GEMINI, image_size="4K").editor.expected_dollars() == pytest.approx((1120 * 0.5 + 2520 * 60) / 1e6)
    assert at(GEMINI, model="gemini-9-image").editor.expected_dollars() is None


@pytest.mark.parametrize("reason", ["NO_IMAGE", "IMAGE_OTHER", "OTHER", "MAX_TOKENS", "IMAGE_RECITATION"])
def test_a_finish_reason_that_names_no_policy_is_a_failure(at: At, reason: str):
    desk = at(GEMINI)
    desk.server.breaks(gemini_says([{"text": "Something about safety."}], finishReason=reason))
    outcome = desk.ask()
    assert isinstance(outcome, Failed)
    assert outcome.retryable
    assert reason in outcome.error
    assert outcome.cost > 0, "tokens were used"


def test_the_time_to_wait_stands_in_the_body(at: At):
    desk = at(GEMINI)
    details = [{"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "34.5s"}]
    error = {"code": 429, "message": "quota", "status": "RESOURCE_EXHAUSTED", "details": details}
    desk.server.breaks(Says(status=429, body={"error": error}))
    outcome = desk.ask()
    assert isinstance(outcome, Failed)
    assert outcome.retry_after == 34.5


def test_the_last_picture_counts_and_thoughts_do_not(at: At):
    desk = at(GEMINI)
    source = desk.people[0].image.read()
    final = negative(source)
    drafts = [gemini_image(source), gemini_image(final), gemini_image(source, thought=True)]
    desk.server.breaks(gemini_says(drafts))
    outcome = desk.ask()
    assert isinstance(outcome, Edited)
    assert outcome.image == final


def test_the_request_says_what_the_audit_says(at: At):
    desk = at(GEMINI, aspect_ratio="1:1", image_size="2K", extra={"labels": {"audit": "yes"}})
    assert isinstance(desk.ask(portraits=2, seed=7), Edited)
    (asked,) = desk.server.asked
    assert asked.path == "/v1/models/gemini-3.1-flash-image:generateContent"
    parts = asked.json["contents"][0]["parts"]
    assert [sorted(part) for part in parts] == [["inlineData"], ["inlineData"], ["text"]]
    assert parts[-1]["text"] == "Do O-01."
    config = asked.json["generationConfig"]
    assert config["seed"] == 7
    assert config["imageConfig"] == {"aspectRatio": "1:1", "imageSize": "2K"}
    assert asked.json["labels"] == {"audit": "yes"}


def test_cost_and_what_really_applied_are_recorded(at: At):
    outcome = at(GEMINI).ask()
    assert isinstance(outcome, Edited)
    assert outcome.cost == pytest.approx((300 * 0.5 + (10 + 90) * 3 + 1120 * 60) / 1e6)
    assert outcome.effective == {
        "size": [16, 16],
        "model_version": "gemini-3.1-flash-image-001",
        "finish_reason": "STOP",
        "text": "Here you are.",
    }
