"""Replicate's predictions."""

from __future__ import annotations

import pytest

from stillme.core.types import Edited, Failed, Refused
from tests.editors.hosted.loopback import Says
from tests.editors.hosted.providers import REPLICATE, prediction
from tests.editors.hosted.test_every_provider import At

NSFW = "NSFW content detected in all outputs. Try running it again, or try a different prompt."
FLAGGED = "The input or output was flagged as sensitive. Please try again with different inputs. (E005) (abc123)"


@pytest.mark.parametrize("words", [FLAGGED, NSFW, "The generated image contained NSFW content."])
def test_a_flagged_prediction_is_a_refusal(at: At, words: str):
    desk = at(REPLICATE, price={"second": 0.001})
    body = prediction(desk.server, "failed", error=words, metrics={"predict_time": 2.0})
    desk.server.breaks(Says(body=body), at="/gm3qorzd")
    outcome = desk.ask()
    assert isinstance(outcome, Refused)
    assert outcome.message == words
    assert outcome.cost == pytest.approx(0.002), "the time was charged"


@pytest.mark.parametrize("error", ["CUDA out of memory", "Director: unexpected error (E6716)", None])
def test_another_failed_prediction_is_a_failure(at: At, error: str | None):
    desk = at(REPLICATE)
    desk.server.breaks(Says(body=prediction(desk.server, "failed", error=error)), at="/gm3qorzd")
    outcome = desk.ask()
    assert isinstance(outcome, Failed)
    assert outcome.retryable
    assert (error or "no explanation") in outcome.error


def test_the_request_says_what_the_audit_says(at: At):
    desk = at(REPLICATE, extra={"output_format": "png"})
    assert isinstance(desk.ask(portraits=2, seed=7), Edited)
    asked = desk.server.asked[0]
    assert asked.path == "/v1/models/black-forest-labs/flux-2-pro/predictions"
    fields = asked.json["input"]
    assert (fields["prompt"], fields["seed"], fields["output_format"]) == ("Do O-01.", 7, "png")
    assert len(fields["input_images"]) == 2


def test_a_pinned_version_is_sent_as_such(at: At):
    desk = at(REPLICATE, model="somebody/editor:5c7d5dc6", images="image", seed_field="")
    assert isinstance(desk.ask(), Edited)
    asked = desk.server.asked[0]
    assert asked.path == "/v1/predictions"
    assert asked.json["version"] == "5c7d5dc6"
    assert "seed" not in asked.json["input"]
    assert desk.editor.capabilities.seed == "none"


def test_cost_by_the_second_and_the_version_are_recorded(at: At):
    outcome = at(REPLICATE, price={"second": 0.001}).ask()
    assert isinstance(outcome, Edited)
    assert outcome.cost == pytest.approx(2.5 * 0.001)
    assert outcome.effective["id"] == "gm3qorzd"
    assert outcome.effective["version"] == "hidden"


def test_work_that_takes_too_long_is_asked_for_again_and_not_paid_for_twice(at: At):
    desk = at(REPLICATE, timeout=0.6)
    desk.server.breaks(Says(body=prediction(desk.server, "processing")), at="/gm3qorzd", times=500)
    outcome = desk.ask()
    assert isinstance(outcome, Failed)
    assert outcome.retryable
    desk.server.faults.clear()
    assert isinstance(desk.ask(), Edited)
    assert len(desk.server.calls("POST")) == 1


def test_a_broken_transfer_of_the_picture_is_repeated(at: At):
    desk = at(REPLICATE)
    desk.server.breaks(Says(status=503, body=b"busy"), at="picture.png", times=2)
    desk.server.breaks(Says(body=b"x" * 4096, truncated=True), at="picture.png")
    assert isinstance(desk.ask(), Edited)
    assert len(desk.server.calls("POST")) == 1


def test_a_picture_that_replicate_has_deleted_is_a_failure_that_was_charged(at: At):
    desk = at(REPLICATE, price={"image": 0.04})
    desk.server.breaks(Says(body=prediction(desk.server, "succeeded", output=None)), at="/gm3qorzd")
    outcome = desk.ask()
    assert isinstance(outcome, Failed)
    assert (outcome.retryable, outcome.cost) == (True, 0.04)
    assert isinstance(desk.ask(), Edited)
    assert len(desk.server.calls("POST")) == 2


@pytest.mark.parametrize("status", [404, 422])
def test_a_version_that_does_not_exist_is_fatal(at: At, status: int):
    desk = at(REPLICATE, model="somebody/editor:5c7d5dc6")
    words = "The specified version does not exist (or perhaps you don't have permission to use it?)"
    desk.server.breaks(Says(status=status, body={"title": "Invalid version", "detail": words}))
    outcome = desk.ask()
    assert isinstance(outcome, Failed)
    assert outcome.fatal
    assert words in outcome.error


def test_a_price_by_the_second_is_known_beforehand_if_the_usual_time_is(at: At):
    assert at(REPLICATE, price={"second": 0.001}).editor.expected_dollars() is None
    price = {"second": 0.001, "usual_seconds": 3}
    assert at(REPLICATE, price=price).editor.expected_dollars() == pytest.approx(0.003)
