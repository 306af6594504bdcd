"""Replicate's predictions."""

from __future__ import annotations

import pytest

from stillme.types import Edited, Failed, Refused
from tests.editors.hosted.loopback import Says
from tests.editors.hosted.providers import HF_REPLICATE, REPLICATE, Provider, prediction
from tests.editors.hosted.test_every_provider import At

FLAGGED = "The input or output was flagged as sensitive. Please try again with different inputs. (E005) (abc123)"
both = pytest.mark.parametrize("provider", [REPLICATE, HF_REPLICATE], ids=["replicate", "through the router"])


@both
def test_a_flagged_prediction_is_a_refusal(at: At, provider: Provider):
    desk = at(provider)
    desk.server.breaks(Says(body=prediction(desk.server, "failed", error=FLAGGED)), at="/gm3qorzd")
    outcome = desk.ask()
    assert isinstance(outcome, Refused)
    assert outcome.message == FLAGGED


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


def test_work_that_nobody_waits_for_any_more_is_cancelled(at: At):
    desk = at(REPLICATE, timeout=0.6)
    desk.server.breaks(Says(body=prediction(desk.server, "processing")), at="/gm3qorzd", times=500)
    outcome = desk.ask()
    assert isinstance(outcome, Failed)
    assert outcome.retryable
    assert desk.server.asked[-1].path == "/v1/predictions/gm3qorzd/cancel"


def test_a_picture_that_is_gone_is_a_failure(at: At):
    desk = at(REPLICATE)
    desk.server.breaks(Says(status=404, body=b"expired"), at="picture.png")
    outcome = desk.ask()
    assert isinstance(outcome, Failed)
    assert outcome.retryable
    assert "expired" in outcome.error
