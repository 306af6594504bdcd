"""Black Forest Labs: queued work behind an address that the answer names."""

from __future__ import annotations

import pytest

from stillme.core.types import Edited, Failed, Refused
from tests.editors.hosted.further_providers import BFL, bfl_result
from tests.editors.hosted.loopback import Says
from tests.editors.hosted.providers import base64_of
from tests.editors.hosted.test_every_provider import At


def test_the_request_says_what_the_audit_says(at: At):
    desk = at(BFL, extra={"safety_tolerance": 2})
    assert isinstance(desk.ask(portraits=2, seed=7), Edited)
    asked = desk.server.asked[0]
    assert asked.path == "/v1/flux-2-pro"
    assert "x-key" in asked.headers
    first, second = (base64_of(portrait.image.read()) for portrait in desk.people[:2])
    assert asked.json == {
        "prompt": "Do O-01.",
        "input_image": first,
        "input_image_2": second,
        "seed": 7,
        "output_format": "png",
        "prompt_upsampling": False,
        "safety_tolerance": 2,
    }


@pytest.mark.parametrize(("status", "cost"), [("Request Moderated", 0.0), ("Content Moderated", 0.045)])
def test_moderation_is_a_refusal(at: At, status: str, cost: float):
    desk = at(BFL)
    reasons = {"Moderation Reasons": ["Safety Filter"]}
    desk.server.breaks(Says(body=bfl_result(status, details=reasons)), at="get_result")
    outcome = desk.ask()
    assert isinstance(outcome, Refused)
    assert (outcome.message, outcome.effective["signal"]) == ("Safety Filter", f"status = {status}")
    assert outcome.cost == pytest.approx(cost)


def test_moderation_without_reasons_is_a_refusal_too(at: At):
    desk = at(BFL)
    desk.server.breaks(Says(body=bfl_result("Request Moderated")), at="get_result")
    assert desk.ask().message == "Request Moderated"


@pytest.mark.parametrize("status", ["Error", "Task not found", "a status of tomorrow"])
def test_work_that_ended_otherwise_is_handed_in_anew(at: At, status: str):
    desk = at(BFL)
    desk.server.breaks(Says(body=bfl_result(status)), at="get_result")
    outcome = desk.ask()
    assert isinstance(outcome, Failed)
    assert outcome.retryable
    assert status in outcome.error
    assert isinstance(desk.ask(), Edited)
    assert len(desk.server.calls("POST")) == 2


def test_a_slow_queue_is_asked_again_later_and_paid_for_once(at: At):
    desk = at(BFL, timeout=0.3)
    desk.server.breaks(Says(body=bfl_result("Pending")), at="get_result", times=60)
    outcome = desk.ask()
    assert isinstance(outcome, Failed)
    assert outcome.retryable
    assert "not done after 0.3 s" in outcome.error
    desk.server.faults.clear()
    assert isinstance(desk.ask(), Edited)
    assert len(desk.server.calls("POST")) == 1


def polling(link: object, **more: object) -> Says:
    return Says(body={"id": "8c2b", "polling_url": link, **more})


@pytest.mark.parametrize(
    "link", ["https://bfl.ai.example.com/x", "https://notbfl.ai/x", "http://api.eu1.bfl.ai/x", "/v1/x", "", None, 3]
)
def test_work_at_a_host_that_must_not_see_the_key_is_followed_by_its_name(at: At, link: object):
    desk = at(BFL)
    desk.server.breaks(polling(link))
    outcome = desk.ask()
    assert isinstance(outcome, Edited), outcome
    assert outcome.cost == pytest.approx(0.045)
    assert any(asked.path == "/v1/get_result?id=8c2b" for asked in desk.server.calls("GET"))
    assert len(desk.server.calls("POST")) == 1


def test_work_that_cannot_be_followed_has_an_unknown_cost(at: At):
    desk = at(BFL)
    desk.server.breaks(Says(body={"polling_url": "https://elsewhere.example/x"}))
    outcome = desk.ask()
    assert isinstance(outcome, Failed)
    assert outcome.effective == {"cost": "unknown"}


def test_cost_counts_the_megapixels_in_and_out(at: At):
    assert at(BFL).ask(portraits=2).cost == pytest.approx(0.03 + 2 * 0.015)
    assert at(BFL).editor.expected_dollars() == pytest.approx(0.045)
    assert at(BFL, model="flux-kontext-pro").editor.expected_dollars() is None


def test_a_rewritten_prompt_is_recorded(at: At):
    desk = at(BFL, prompt_upsampling=True)
    assert desk.editor.capabilities.rewrites_prompt
    desk.server.breaks(
        Says(body=bfl_result("Ready", {"sample": f"{desk.server.url}/picture.png", "prompt": "With feeling."})),
        at="get_result",
    )
    assert desk.ask().effective == {"size": [16, 16], "revised_prompt": "With feeling."}


def test_invalid_fields_are_named(at: At):
    desk = at(BFL)
    detail = [{"loc": ["body", "safety_tolerance"], "msg": "Input should be less than or equal to 5", "type": "x"}]
    desk.server.breaks(Says(status=422, body={"detail": detail}))
    outcome = desk.ask()
    assert isinstance(outcome, Failed)
    assert not outcome.retryable
    assert "less than or equal to 5" in outcome.error
