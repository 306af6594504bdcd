"""OpenRouter: chat completions that answer with pictures, errors with status 200, and a price in every answer."""

from __future__ import annotations

from typing import Any

import pytest

from stillme.types import Edited, Failed, Refused
from tests.editors.hosted.further_providers import OPENROUTER, openrouter_says
from tests.editors.hosted.loopback import Says
from tests.editors.hosted.test_every_provider import At


def error(code: int, message: str, status: int | None = None, **metadata: Any) -> Says:
    body = {"error": {"code": code, "message": message, "metadata": metadata}}
    return Says(status=code if status is None else status, body=body)


def test_the_request_says_what_the_audit_says(at: At):
    desk = at(OPENROUTER, provider="google-vertex", extra={"image_config": {"aspect_ratio": "1:1"}})
    assert isinstance(desk.ask(portraits=2, seed=7), Edited)
    (asked,) = desk.server.asked
    assert asked.path == "/api/v1/chat/completions"
    fields = asked.json
    (message,) = fields.pop("messages")
    assert [part["type"] for part in message["content"]] == ["text", "image_url", "image_url"]
    assert message["content"][0]["text"] == "Do O-01."
    assert fields == {
        "model": "google/gemini-3.1-flash-image",
        "modalities": ["image", "text"],
        "seed": 7,
        "provider": {"order": ["google-vertex"], "allow_fallbacks": False},
        "image_config": {"aspect_ratio": "1:1"},
    }


def test_the_answer_says_who_made_it_and_what_it_cost(at: At):
    desk = at(OPENROUTER)
    assert desk.editor.expected_dollars() is None, "nobody knows beforehand"
    outcome = desk.ask()
    assert isinstance(outcome, Edited)
    assert outcome.cost == 0.04
    assert outcome.effective == {
        "size": [16, 16],
        "id": "gen-1763",
        "model": "google/gemini-3.1-flash-image",
        "provider": "Google",
        "text": "Done.",
    }


def test_a_model_that_only_draws_is_asked_for_pictures_only(at: At):
    desk = at(OPENROUTER, modalities=["image"])
    desk.ask()
    assert desk.server.asked[0].json["modalities"] == ["image"]


def test_a_substitute_model_must_not_answer_for_the_audited_one():
    editor = OPENROUTER.build("http://127.0.0.1:9", extra={"models": ["another/one"]})
    (sentence,) = editor.problems([], [])
    assert "`extra.models`" in sentence


@pytest.mark.parametrize(
    ("says", "signal"),
    [
        (
            error(403, "Input was flagged", reasons=["violence", "hate"], flagged_input="Do …", provider_name="OpenAI"),
            "error.metadata.reasons = violence, hate",
        ),
        (
            error(403, "Input was flagged", error_type="content_policy_violation", provider_name="Google"),
            "error.metadata.error_type = content_policy_violation",
        ),
        (
            error(403, "Input was flagged", status=200, error_type="refusal"),
            "error.metadata.error_type = refusal",
        ),
        (openrouter_says({"content": "Input was flagged"}, "content_filter"), "finish_reason = content_filter"),
        (openrouter_says({"content": None, "refusal": "Input was flagged"}), "message.refusal"),
    ],
)
def test_a_policy_is_a_refusal_wherever_it_stands(at: At, says: Says, signal: str):
    desk = at(OPENROUTER)
    desk.server.breaks(says)
    outcome = desk.ask()
    assert isinstance(outcome, Refused)
    assert (outcome.message, outcome.effective["signal"]) == ("Input was flagged", signal)


def test_a_no_in_words_is_a_refusal_that_was_charged_and_other_words_are_not(at: At):
    desk = at(OPENROUTER)
    desk.server.breaks(openrouter_says({"content": "I can't edit pictures of this person."}))
    refusal = desk.ask()
    assert isinstance(refusal, Refused)
    assert (refusal.cost, refusal.effective["signal"]) == (0.04, "a no in words instead of a picture")
    desk.server.breaks(openrouter_says({"content": "Which colour do you mean?"}))
    question = desk.ask()
    assert isinstance(question, Failed)
    assert (question.cost, question.retryable) == (0.04, True)


@pytest.mark.parametrize(
    ("says", "fatal", "throttled", "retryable"),
    [
        (error(402, "Insufficient credits"), True, False, True),
        (error(403, "Blocked by your guardrail", error_type="permission_denied"), True, False, True),
        (error(429, "Rate limited", error_type="rate_limit_exceeded"), False, True, True),
        (error(502, "Provider returned error", status=200, provider_name="Google"), False, False, True),
        (error(400, "Invalid image", error_type="invalid_image"), False, False, False),
        (Says(body={"error": {"message": "no code"}}), False, False, True),
    ],
)
def test_an_error_is_no_refusal_also_with_status_200(at: At, says: Says, fatal: bool, throttled: bool, retryable: bool):
    desk = at(OPENROUTER)
    desk.server.breaks(says)
    outcome = desk.ask()
    assert isinstance(outcome, Failed)
    assert (outcome.fatal, outcome.throttled, outcome.retryable) == (fatal, throttled, retryable)
    assert says.body["error"]["message"] in outcome.error


def test_an_error_inside_a_choice_is_seen(at: At):
    desk = at(OPENROUTER)
    says = openrouter_says({"content": ""}, "error")
    says.body["choices"][0]["error"] = {"code": 503, "message": "Overloaded", "metadata": {}}
    desk.server.breaks(says)
    outcome = desk.ask()
    assert isinstance(outcome, Failed)
    assert "503: Overloaded" in outcome.error


def test_a_picture_that_cannot_be_read_was_charged(at: At):
    desk = at(OPENROUTER)
    broken = [{"type": "image_url", "image_url": {"url": "data:image/png;base64,AA=A"}}]
    desk.server.breaks(openrouter_says({"content": "", "images": broken}))
    outcome = desk.ask()
    assert isinstance(outcome, Failed)
    assert (outcome.cost, outcome.retryable) == (0.04, True)
