"""OpenAI's models in an Azure resource: other addresses, and a filter of Azure's own."""

from __future__ import annotations

from typing import Any

import pytest

from stillme.core.types import Edited, Failed, Refused
from tests.editors.hosted.conftest import KEY
from tests.editors.hosted.further_providers import AZURE
from tests.editors.hosted.loopback import Says
from tests.editors.hosted.test_every_provider import At

FILTERED = {
    "hate": {"filtered": False, "severity": "safe"},
    "violence": {"filtered": True, "severity": "medium"},
    "profanity": {"detected": False, "filtered": False},
}


def error(code: str | None, **more: Any) -> Says:
    words = "The request was rejected by the content management policy."
    return Says(status=400, body={"error": {"code": code, "message": words, "type": "invalid_request_error", **more}})


def test_a_dated_version_asks_the_deployment(at: At):
    desk = at(AZURE, quality="high")
    assert isinstance(desk.ask(portraits=2), Edited)
    (asked,) = desk.server.asked
    assert asked.path == "/openai/deployments/portraits/images/edits?api-version=2025-04-01-preview"
    assert asked.headers["api-key"] == KEY
    assert "authorization" not in asked.headers
    assert asked.form["prompt"] == [b"Do O-01."]
    assert asked.form["quality"] == [b"high"]
    assert len(asked.form["image[]"]) == 2


@pytest.mark.parametrize(("version", "query"), [("v1", ""), ("preview", "?api-version=preview")])
def test_version_1_names_the_deployment_as_model(at: At, version: str, query: str):
    desk = at(AZURE, api_version=version)
    assert isinstance(desk.ask(), Edited)
    (asked,) = desk.server.asked
    assert asked.path == f"/openai/v1/images/edits{query}"
    assert asked.form["model"] == [b"portraits"]


@pytest.mark.parametrize(
    ("says", "signal"),
    [
        (error("content_policy_violation"), "error.code = content_policy_violation"),
        (error("moderation_blocked"), "error.code = moderation_blocked"),
        (error("contentFilter"), "error.code = contentFilter"),
        (error("content_filter", innererror={"content_filter_result": {}}), "error.code = content_filter"),
        (
            error(
                "content_policy_violation",
                inner_error={"code": "ResponsibleAIPolicyViolation", "content_filter_results": FILTERED},
            ),
            "inner_error.code = ResponsibleAIPolicyViolation (violence)",
        ),
        (
            error("400", innererror={"code": "ResponsibleAIPolicyViolation", "content_filter_results": FILTERED}),
            "inner_error.code = ResponsibleAIPolicyViolation (violence)",
        ),
    ],
)
def test_the_filter_marks_a_refusal_in_several_places(at: At, says: Says, signal: str):
    desk = at(AZURE)
    desk.server.breaks(says)
    outcome = desk.ask()
    assert isinstance(outcome, Refused)
    assert outcome.message == "The request was rejected by the content management policy."
    assert outcome.effective["signal"] == signal


def test_another_bad_request_is_no_refusal(at: At):
    desk = at(AZURE)
    desk.server.breaks(error("invalid_value", inner_error={"code": "SomethingElse"}))
    outcome = desk.ask()
    assert isinstance(outcome, Failed)
    assert not outcome.retryable


def test_a_deployment_that_does_not_exist_stops_everything(at: At):
    desk = at(AZURE, model="landscapes")
    outcome = desk.ask()
    assert isinstance(outcome, Failed)
    assert outcome.fatal
    assert "Resource not found" in outcome.error


def test_the_price_is_unknown_unless_the_audit_gives_it(at: At):
    assert at(AZURE).ask().effective["cost"] == "unknown"
    assert at(AZURE).editor.expected_dollars() is None
    priced = at(AZURE, price={"input_text": 5, "input_image": 8, "output_image": 30}).ask()
    assert priced.cost == pytest.approx((100 * 5 + 200 * 8 + 1000 * 30) / 1e6)
