"""Black Forest Labs: queued work behind an address that the answer names."""

from __future__ import annotations

import pytest

from stillme.editors.hosted.bfl import place_of
from stillme.editors.hosted.faults import CallFailed
from stillme.types import Edited, Failed, Refused
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


def test_an_expired_link_is_a_new_job_and_the_first_one_is_charged(at: At):
    desk = at(BFL)
    desk.server.breaks(Says(status=403, body=b"expired"), at="picture.png")
    outcome = desk.ask()
    assert isinstance(outcome, Failed)
    assert (outcome.retryable, outcome.fatal) == (True, False)
    assert outcome.cost == pytest.approx(0.045)
    assert isinstance(desk.ask(), Edited)


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


@pytest.mark.parametrize("link", ["https://api.eu1.bfl.ai/v1/get_result?id=1", "https://api.bfl.ai/v1/get_result?id=1"])
def test_the_hosts_of_the_provider_may_have_the_work(link: str):
    assert "".join(place_of(link, "https://api.bfl.ai")) == link


@pytest.mark.parametrize(
    "link", ["https://bfl.ai.example.com/x", "https://notbfl.ai/x", "http://api.eu1.bfl.ai/x", "/v1/x", "", None, 3]
)
def test_the_key_goes_to_no_other_host(link: object):
    with pytest.raises(CallFailed, match="no link to the queued work"):
        place_of(link, "https://api.bfl.ai")
