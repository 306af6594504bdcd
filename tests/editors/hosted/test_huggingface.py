"""Hugging Face's router and its providers."""

from __future__ import annotations

import pytest

from stillme.types import Edited, Failed
from tests.editors.hosted.loopback import Says
from tests.editors.hosted.providers import HF_DIRECT, HF_FAL
from tests.editors.hosted.test_every_provider import At


def test_the_hub_is_asked_once_for_the_models_name_at_the_provider(at: At):
    desk = at(HF_FAL)
    outcomes = [desk.ask(), desk.ask()]
    lookups = [asked for asked in desk.server.asked if asked.path.startswith("/api/")]
    assert [type(outcome) for outcome in outcomes] == [Edited, Edited]
    assert len(lookups) == 1
    assert lookups[0].path == "/api/models/Qwen/Qwen-Image-Edit-2511?expand[]=inferenceProviderMapping"
    assert outcomes[0].effective["provider_id"] == "fal-ai/qwen-image-edit-2511"


def test_every_call_to_the_queue_goes_through_the_router(at: At):
    desk = at(HF_FAL, provider_id="fal-ai/qwen-image-edit-2511")
    desk.ask()
    assert desk.server.asked[0].path == "/fal-ai/fal-ai/qwen-image-edit-2511?_subdomain=queue"
    assert all(asked.path.startswith("/fal-ai/fal-ai/") for asked in desk.server.asked)
    assert all(asked.path.endswith("?_subdomain=queue") for asked in desk.server.asked)


def test_a_lookup_may_be_a_list_too(at: At):
    desk = at(HF_FAL)
    entry = {"provider": "fal-ai", "providerId": "fal-ai/other", "task": "image-to-image"}
    desk.server.breaks(Says(body={"inferenceProviderMapping": [entry]}), at="/api/")
    outcome = desk.ask()
    assert isinstance(outcome, Edited)
    assert outcome.effective["provider_id"] == "fal-ai/other"


@pytest.mark.parametrize(
    ("mapping", "words"),
    [
        ({"replicate": {"providerId": "x", "task": "image-to-image"}}, "does not serve 'Qwen/Qwen-Image-Edit-2511'"),
        ({"fal-ai": {"providerId": "x", "task": "text-to-image"}}, "for text-to-image, not image-to-image"),
        (None, "these do: none"),
    ],
)
def test_a_provider_that_does_not_run_the_model_is_named(at: At, mapping: object, words: str):
    desk = at(HF_FAL)
    desk.server.breaks(Says(body={"inferenceProviderMapping": mapping}), at="/api/")
    outcome = desk.ask()
    assert isinstance(outcome, Failed)
    assert words in outcome.error
    assert outcome.fatal


def test_the_hubs_own_machines_answer_with_the_picture(at: At):
    desk = at(HF_DIRECT, extra={"guidance_scale": 4.0})
    assert isinstance(desk.ask(seed=7), Edited)
    asked = desk.server.asked[-1]
    assert asked.path == "/hf-inference/models/Qwen/Qwen-Image-Edit-2511"
    assert asked.json["parameters"] == {"prompt": "Do O-01.", "guidance_scale": 4.0, "seed": 7}


def test_an_error_in_json_is_not_taken_for_a_picture(at: At):
    desk = at(HF_DIRECT)
    desk.server.breaks(Says(body={"error": "model is loading"}), at="/hf-inference/")
    outcome = desk.ask()
    assert isinstance(outcome, Failed)
    assert "model is loading" in outcome.error
