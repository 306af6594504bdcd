"""Gemini through the official client: it says 200 also when it declines."""

from __future__ import annotations

import pytest

from stillme.types import Edited, Failed, Refused
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


def test_words_instead_of_a_picture_are_a_refusal(at: At):
    desk = at(GEMINI)
    words = "I can't help with editing this person's skin colour."
    desk.server.breaks(gemini_says([{"text": "Let me think.", "thought": True}, {"text": words}]))
    outcome = desk.ask()
    assert isinstance(outcome, Refused)
    assert outcome.message == words
    assert outcome.effective["signal"] == "text instead of a picture"


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
