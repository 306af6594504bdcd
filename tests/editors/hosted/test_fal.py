"""fal's queue."""

from __future__ import annotations

import time

import pytest

from stillme.core.types import Edited, Failed, Refused
from tests.editors.hosted.loopback import Says
from tests.editors.hosted.providers import FAL, base64_of
from tests.editors.hosted.test_every_provider import At

POLICY = {
    "detail": [
        {
            "loc": ["body", "prompt"],
            "msg": "The content could not be processed because it contained material flagged by a content checker.",
            "type": "content_policy_violation",
            "url": "https://docs.fal.ai/errors#content_policy_violation",
            "input": {},
        }
    ]
}


@pytest.mark.parametrize("stage", ["submit", "result"])
def test_a_policy_violation_is_a_refusal_wherever_it_comes(at: At, stage: str):
    desk = at(FAL)
    if stage == "result":
        desk.server.breaks(Says(body={"status": "COMPLETED", "logs": []}), at="/status")
    where = FAL.submit if stage == "submit" else "/requests/764cabcf"
    desk.server.breaks(Says(status=422, body=POLICY), at=where)
    outcome = desk.ask()
    assert isinstance(outcome, Refused)
    assert "flagged by a content checker" in outcome.message
    assert outcome.effective["signal"] == "detail.type = content_policy_violation"


def test_a_marked_picture_is_a_refusal(at: At):
    desk = at(FAL)
    desk.server.breaks(Says(body={"status": "COMPLETED"}), at="/status")
    images = [{"url": "data:image/png;base64,AAAA"}]
    desk.server.breaks(Says(body={"images": images, "has_nsfw_concepts": [True]}), at="/requests/764cabcf")
    outcome = desk.ask()
    assert isinstance(outcome, Refused)
    assert outcome.effective["signal"] == "has_nsfw_concepts = True"
    assert outcome.cost > 0, "the picture was made before it was withheld"


def test_another_validation_error_is_the_audits_mistake(at: At):
    desk = at(FAL)
    detail = [{"loc": ["body", "image_size"], "msg": "unexpected value", "type": "value_error"}]
    desk.server.breaks(Says(status=422, body={"detail": detail}))
    outcome = desk.ask()
    assert isinstance(outcome, Failed)
    assert not outcome.retryable
    assert "unexpected value" in outcome.error


def test_the_request_says_what_the_audit_says(at: At):
    desk = at(FAL, extra={"safety_tolerance": "2"})
    assert isinstance(desk.ask(portraits=2, seed=7), Edited)
    asked = desk.server.asked[0]
    assert asked.path == "/fal-ai/flux-2-pro/edit"
    assert asked.headers["authorization"].startswith("Key ")
    assert asked.json["prompt"] == "Do O-01."
    assert asked.json["seed"] == 7
    assert asked.json["safety_tolerance"] == "2"
    assert len(asked.json["image_urls"]) == 2


def test_a_model_for_one_picture_gets_one(at: At):
    desk = at(FAL, model="fal-ai/flux-pro/kontext")
    assert isinstance(desk.ask(), Edited)
    assert desk.server.asked[0].json["image_url"].startswith("data:image/png;base64,")
    assert isinstance(desk.ask(portraits=2), Failed)


def test_cost_counts_the_megapixels_in_and_out(at: At):
    outcome = at(FAL).ask(portraits=2)
    assert isinstance(outcome, Edited)
    # Three small pictures, each rounded up to a megapixel: the first at 3 cents, two more at 1.5.
    assert outcome.cost == pytest.approx(0.03 + 2 * 0.015)


def test_the_seed_that_was_used_and_a_rewritten_prompt_are_recorded(at: At):
    desk = at(FAL)
    assert desk.ask().effective == {"size": [16, 16], "seed": 4711}
    picture = f"data:image/png;base64,{base64_of(desk.people[0].image.read())}"
    rewritten = {"images": [{"url": picture}], "prompt": "Do O-01, with feeling."}
    desk.server.breaks(Says(body={"status": "COMPLETED"}), at="/status")
    desk.server.breaks(Says(body=rewritten), at="/requests/764cabcf")
    assert desk.ask().effective == {"size": [16, 16], "revised_prompt": "Do O-01, with feeling."}


def test_a_hiccup_while_waiting_does_not_lose_work_that_is_paid_for(at: At):
    desk = at(FAL)
    desk.server.breaks(Says(status=503, body=b"busy"), at="/status", times=2)
    desk.server.breaks(Says(status=429, body=b"busy", headers={"Retry-After": "0"}), at="/status")
    assert isinstance(desk.ask(), Edited)
    assert len(desk.server.calls("POST")) == 1


def test_work_that_takes_too_long_is_asked_for_again_and_not_paid_for_twice(at: At):
    desk = at(FAL, timeout=0.6)
    desk.server.breaks(Says(body={"status": "IN_QUEUE", "queue_position": 9}), at="/status", times=500)
    started = time.monotonic()
    outcome = desk.ask()
    assert isinstance(outcome, Failed)
    assert outcome.retryable
    assert "not done after 0.6 s" in outcome.error
    assert time.monotonic() - started < 30
    desk.server.faults.clear()
    assert isinstance(desk.ask(), Edited)
    assert len(desk.server.calls("POST")) == 1
    assert desk.server.calls("PUT") == [], "a job that is nearly done is not cancelled"


def test_a_queue_that_keeps_breaking_ends_the_call_and_not_the_job(at: At):
    desk = at(FAL)
    desk.server.breaks(Says(status=500, body=b"down"), at="/status", times=50)
    outcome = desk.ask()
    assert isinstance(outcome, Failed)
    assert (outcome.retryable, outcome.cost) == (True, 0.0)
    assert 1 < len([asked for asked in desk.server.asked if asked.path.endswith("/status")]) < 10
    desk.server.faults.clear()
    outcome = desk.ask()
    assert isinstance(outcome, Edited)
    assert outcome.cost > 0
    assert len(desk.server.calls("POST")) == 1


def test_a_job_that_failed_is_made_anew(at: At):
    desk = at(FAL)
    desk.server.breaks(Says(body={"status": "COMPLETED"}), at="/status")
    desk.server.breaks(Says(status=500, body={"detail": "CUDA out of memory"}), at="/requests/764cabcf")
    outcome = desk.ask()
    assert isinstance(outcome, Failed)
    assert (outcome.retryable, outcome.cost) == (True, 0.0)
    assert "CUDA out of memory" in outcome.error
    assert isinstance(desk.ask(), Edited)
    assert len(desk.server.calls("POST")) == 2


def test_a_model_that_fal_does_not_have_is_fatal(at: At):
    desk = at(FAL)
    desk.server.breaks(Says(status=404, body={"detail": "Application 'flux-9' not found"}), at=FAL.submit)
    outcome = desk.ask()
    assert isinstance(outcome, Failed)
    assert outcome.fatal
    assert "Application 'flux-9' not found" in outcome.error
