"""What each provider is sent, what an edit costs there, and which settings are named before the first edit."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from google.auth.exceptions import DefaultCredentialsError, RefreshError, TransportError
from google.oauth2.credentials import Credentials

from stillme.core.errors import StillmeError
from stillme.core.types import Edited, Failed
from tests.editors.hosted.conftest import KEY, Desk
from tests.editors.hosted.loopback import Says
from tests.editors.hosted.providers import (
    AZURE,
    BFL,
    COMFYUI,
    DASHSCOPE,
    DASHSCOPE_TASK,
    FAL,
    GEMINI,
    OPENAI,
    REPLICATE,
    SERVER,
    VERTEX,
    WORKFLOW,
    Provider,
    base64_of,
    bfl_result,
    gemini_image,
    gemini_says,
    workflow,
)
from tests.editors.hosted.test_every_provider import At
from tests.records import must_be

NOWHERE = "http://127.0.0.1:9"
QWEN = "qwen-image-edit-plus-2025-12-15"


SENT: list[tuple[Provider, dict[str, Any], str, dict[str, Any]]] = [
    # provider, its parameters, the path that is asked, and fields of the JSON or form (of {n}: pictures)
    (OPENAI, {"quality": "high", "size": "1536x1024", "extra": {"background": "opaque"}}, "/v1/images/edits",
     {"prompt": [b"Do O-01."], "model": [b"gpt-image-2.5-sunburst-2026-09-08"], "quality": [b"high"],
      "size": [b"1536x1024"], "background": [b"opaque"], "seed": None, "image[]": 2}),
    (AZURE, {"quality": "high"}, "/openai/deployments/portraits/images/edits?api-version=2025-04-01-preview",
     {"prompt": [b"Do O-01."], "quality": [b"high"], "image[]": 2}),
    (AZURE, {"api_version": "v1"}, "/openai/v1/images/edits", {"model": [b"portraits"]}),
    (AZURE, {"api_version": "preview"}, "/openai/v1/images/edits?api-version=preview", {"model": [b"portraits"]}),
    (SERVER, {"extra": {"num_inference_steps": 40, "true_cfg_scale": 4.0, "negative_prompt": " "}}, "/v1/images/edits",
     {"seed": [b"7"], "num_inference_steps": [b"40"], "true_cfg_scale": [b"4.0"], "negative_prompt": [b" "]}),
    (GEMINI, {"aspect_ratio": "1:1", "image_size": "2K", "extra": {"labels": {"audit": "yes"}}},
     "/v1/models/gemini-3.1-flash-image:generateContent",
     {"contents.0.parts": 3, "contents.0.parts.2.text": "Do O-01.", "generationConfig.seed": 7,
      "generationConfig.imageConfig": {"aspectRatio": "1:1", "imageSize": "2K"}, "labels": {"audit": "yes"}}),
    (VERTEX, {"aspect_ratio": "1:1", "extra": {"labels": {"audit": "yes"}}},
     "/v1beta1/projects/people/locations/global/publishers/google/models/gemini-3.1-flash-image:generateContent",
     {"generationConfig.seed": 7, "generationConfig.imageConfig": {"aspectRatio": "1:1"}, "labels": {"audit": "yes"}}),
    (BFL, {"extra": {"safety_tolerance": 2}}, "/v1/flux-2-pro",
     {"prompt": "Do O-01.", "seed": 7, "output_format": "png", "prompt_upsampling": False, "safety_tolerance": 2,
      "input_image": "picture 0", "input_image_2": "picture 1"}),
    *((provider, {"size": "1024*1024", "extra": {"negative_prompt": " "}}, path,
       {"model": QWEN, "input.messages.0.content": 3, "input.messages.0.content.2": {"text": "Do O-01."},
        "parameters": {"n": 1, "seed": 7, "watermark": False, "prompt_extend": False, "size": "1024*1024",
                       "negative_prompt": " "}})
      for provider, path in ((DASHSCOPE, "/api/v1/services/aigc/multimodal-generation/generation"),
                             (DASHSCOPE_TASK, "/api/v1/services/aigc/image-generation/generation"))),
    (DASHSCOPE, {"model": "qwen-image-edit"}, "/api/v1/services/aigc/multimodal-generation/generation",
     {"parameters": {"n": 1, "seed": 7, "watermark": False}}),
    (FAL, {"extra": {"safety_tolerance": "2"}}, "/fal-ai/flux-2-pro/edit",
     {"prompt": "Do O-01.", "seed": 7, "safety_tolerance": "2", "image_urls": 2}),
    (REPLICATE, {"extra": {"output_format": "png"}}, "/v1/models/black-forest-labs/flux-2-pro/predictions",
     {"input.prompt": "Do O-01.", "input.seed": 7, "input.output_format": "png", "input.input_images": 2}),
]  # fmt: skip


@pytest.mark.parametrize(("provider", "parameters", "path", "fields"), SENT)
def test_the_request_says_what_the_audit_says(
    at: At, provider: Provider, parameters: dict[str, Any], path: str, fields: dict[str, Any]
):
    desk = at(provider, **parameters)
    asked_for = 1 if provider is SERVER or "qwen-image-edit" in parameters.values() else 2
    desk.ask(portraits=asked_for, seed=7)
    asked = desk.server.calls()[0]
    assert asked.path == path
    is_form = "multipart" in asked.headers["content-type"]
    for name, wanted in fields.items():
        value = asked.form.get(name) if is_form else dig(asked.json, name)
        if isinstance(wanted, str) and wanted.startswith("picture "):
            wanted = base64_of(desk.people[int(wanted[-1])].image.read())
        assert (len(value) if isinstance(wanted, int) and not isinstance(value, int) else value) == wanted, name
    assert b"p0" not in asked.content.replace(desk.people[0].image.read(), b"") or not is_form, "names tell the group"


def dig(value: Any, path: str) -> Any:
    for name in path.split("."):
        value = value[int(name)] if isinstance(value, list) else value.get(name)
    return value


HEADERS = [(AZURE, "api-key", KEY), (BFL, "x-key", KEY), (FAL, "authorization", f"Key {KEY}")]


@pytest.mark.parametrize(("provider", "header", "value"), [*HEADERS, (VERTEX, "authorization", f"Bearer {KEY}")])
def test_the_key_is_in_the_providers_own_header(at: At, provider: Provider, header: str, value: str):
    desk = at(provider)
    desk.ask()
    headers = desk.server.asked[0].headers
    assert headers[header] == value
    assert header == "authorization" or "authorization" not in headers


COSTS: list[tuple[Provider, dict[str, Any], int, float | None]] = [
    # provider, its parameters, portraits, dollars of the edit (None: unknown)
    (OPENAI, {}, 1, (100 * 5 + 200 * 8 + 1000 * 30) / 1e6),
    (OPENAI, {"model": "gpt-image-9"}, 1, None),
    (OPENAI, {"model": "gpt-image-9", "price": {"image": 0.25}}, 1, 0.25),
    (AZURE, {}, 1, None),
    (AZURE, {"price": {"input_text": 5, "input_image": 8, "output_image": 30}}, 1, (500 + 1600 + 30000) / 1e6),
    (GEMINI, {}, 1, (300 * 0.5 + (10 + 90) * 3 + 1120 * 60) / 1e6),
    (BFL, {}, 2, 0.03 + 2 * 0.015),
    (FAL, {}, 2, 0.03 + 2 * 0.015),
    (DASHSCOPE, {}, 1, None),
    (DASHSCOPE, {"price": {"image": 0.03}}, 1, 0.03),
    (REPLICATE, {"price": {"second": 0.001}}, 1, 2.5 * 0.001),
    (COMFYUI, {"key_variable": ""}, 1, 0.0),
]  # fmt: skip


@pytest.mark.parametrize(("provider", "parameters", "portraits", "dollars"), COSTS)
def test_the_cost_is_that_of_the_list_or_the_audit_and_otherwise_unknown(
    at: At, provider: Provider, parameters: dict[str, Any], portraits: int, dollars: float | None
):
    outcome = must_be(Edited, at(provider, **parameters).ask(portraits=portraits))
    assert outcome.cost == pytest.approx(dollars or 0.0)
    assert outcome.effective.get("cost") == ("unknown" if dollars is None else None)


EXPECTED: list[tuple[Provider, dict[str, Any], float | None]] = [
    (OPENAI, {"quality": "low", "size": "1024x1024"}, (4160 * 8 + 272 * 30) / 1e6),
    (OPENAI, {"quality": "high", "size": "1024x1536"}, (4160 * 8 + 6240 * 30) / 1e6),
    (OPENAI, {"quality": "auto", "size": "auto"}, (4160 * 8 + 4160 * 30) / 1e6),
    (OPENAI, {"model": "gpt-image-9"}, None),
    (AZURE, {}, None),
    (GEMINI, {}, (1120 * 0.5 + 1120 * 60) / 1e6),
    (GEMINI, {"image_size": "4K"}, (1120 * 0.5 + 2520 * 60) / 1e6),
    (GEMINI, {"model": "gemini-9-image"}, None),
    (BFL, {}, 0.045),
    (BFL, {"model": "flux-kontext-pro"}, None),
    (REPLICATE, {"price": {"second": 0.001}}, None),
    (REPLICATE, {"price": {"second": 0.001, "usual_seconds": 3}}, 0.003),
    (COMFYUI, {}, 0.0),
]


@pytest.mark.parametrize(("provider", "parameters", "dollars"), EXPECTED)
def test_the_price_of_an_edit_is_known_beforehand_where_it_can_be(
    provider: Provider, parameters: dict[str, Any], dollars: float | None
):
    expected = provider.build(NOWHERE, **parameters).expected_dollars()
    assert expected == (None if dollars is None else pytest.approx(dollars))


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


EFFECTIVE: list[tuple[Provider, dict[str, Any]]] = [
    (OPENAI, {"request_id": "req_1", "quality": "high", "output_format": "png"}),
    (GEMINI, {"model_version": "gemini-3.1-flash-image-001", "finish_reason": "STOP", "text": "Here you are."}),
    (FAL, {"seed": 4711}),
    (DASHSCOPE, {"request_id": "571ae02f", "cost": "unknown"}),
    (REPLICATE, {"id": "gm3qorzd", "version": "hidden"}),
]


@pytest.mark.parametrize(("provider", "recorded"), EFFECTIVE)
def test_what_really_applied_is_recorded(at: At, provider: Provider, recorded: dict[str, Any]):
    effective = at(provider).ask().effective
    assert {"size": [16, 16], **recorded}.items() <= effective.items()


def test_a_rewritten_prompt_is_recorded(at: At):
    desk = at(BFL, prompt_upsampling=True)
    sample = {"sample": f"{desk.server.url}/picture.png", "prompt": "With feeling."}
    desk.server.breaks(Says(body=bfl_result("Ready", sample)), at="get_result")
    queue = at(FAL)
    picture = f"data:image/png;base64,{base64_of(desk.people[0].image.read())}"
    queue.server.breaks(Says(body={"status": "COMPLETED"}), at="/status")
    queue.server.breaks(Says(body={"images": [{"url": picture}], "prompt": "With feeling."}), at="/requests/764cabcf")
    assert desk.ask().effective == queue.ask().effective == {"size": [16, 16], "revised_prompt": "With feeling."}


def test_rewriting_is_asked_for_or_off(at: At):
    for provider, setting in ((BFL, "prompt_upsampling"), (DASHSCOPE, "prompt_extend")):
        assert not provider.build(NOWHERE).capabilities.rewrites_prompt
        assert provider.build(NOWHERE, **{setting: True}).capabilities.rewrites_prompt
    desk = at(DASHSCOPE, prompt_extend=True)
    desk.ask()
    assert desk.server.calls()[0].json["parameters"]["prompt_extend"] is True


# -- what only one provider has ---------------------------------------------------------------------------------------


def test_a_turn_that_is_far_away_is_returned_instead_of_slept(at: At):
    desk = at(OPENAI, requests_per_minute=2)
    assert isinstance(desk.ask(), Edited)
    outcome = must_be(Failed, desk.ask())
    assert (outcome.throttled, outcome.retryable) == (True, True)
    assert len(desk.server.asked) == 1


@pytest.mark.parametrize(
    ("provider", "parameters", "words"),
    [
        (OPENAI, {"input_fidelity": "high"}, ["`input_fidelity` is rejected"]),
        (OPENAI, {"model": "gpt-image-2-2026-04-21", "quality": "max"}, ["write one of auto, low, medium, high"]),
        (OPENAI, {"extra": {"input_fidelity": "high"}}, ["`input_fidelity` is rejected"]),
        (DASHSCOPE, {"model": "qwen-image-edit"}, []),
        (DASHSCOPE, {"model": "qwen-image-edit", "size": "1024*1024", "prompt_extend": True}, ["size", "prompt_ext"]),
    ],
)
def test_a_setting_that_the_model_rejects_is_named_before_the_first_edit(
    provider: Provider, parameters: dict[str, object], words: list[str]
):
    sentences = list(provider.build(NOWHERE, **parameters).problems([], []))
    assert len(sentences) == len(words)
    assert all(word in sentence for word, sentence in zip(words, sentences, strict=True)), sentences


def test_a_server_of_your_own_needs_no_key_and_does_not_get_that_of_openai(at: At):
    desk = at(SERVER, key_variable=None)
    assert isinstance(desk.ask(), Edited)
    assert KEY not in str(desk.server.asked[0].headers)
    assert desk.editor.capabilities.seed == "best_effort"


def test_an_instruction_that_would_be_cut_off_fails_instead(at: At):
    desk = at(DASHSCOPE, max_characters=5)
    outcome = must_be(Failed, desk.ask())
    assert not outcome.retryable
    assert f"has 8 characters; '{QWEN}' reads 5" in outcome.error
    assert desk.server.asked == []


def test_a_model_for_one_picture_gets_one(at: At):
    desk = at(FAL, model="fal-ai/flux-pro/kontext")
    assert isinstance(desk.ask(), Edited)
    assert desk.server.asked[0].json["image_url"].startswith("data:image/png;base64,")
    assert isinstance(desk.ask(portraits=2), Failed)


def test_a_pinned_version_is_sent_as_such(at: At):
    desk = at(REPLICATE, model="owner/editor:5c7d5dc6", images="image", seed_field="")
    assert isinstance(desk.ask(), Edited)
    asked = desk.server.asked[0]
    assert (asked.path, asked.json["version"]) == ("/v1/predictions", "5c7d5dc6")
    assert "seed" not in asked.json["input"]
    assert desk.editor.capabilities.seed == "none"


# -- Vertex AI: credentials of Google Cloud instead of a key ----------------------------------------------------------


class Stale(Credentials):
    """Credentials whose token must be fetched, which fails."""

    def __init__(self, error: Exception) -> None:
        super().__init__(token=None)
        self.error = error

    def refresh(self, request: object) -> None:
        raise self.error


@pytest.mark.parametrize(
    ("error", "fatal"), [(RefreshError("Reauthentication is needed."), True), (TransportError("no route"), False)]
)
def test_a_token_that_cannot_be_fetched_is_a_failure(
    at: At, monkeypatch: pytest.MonkeyPatch, error: Exception, fatal: bool
):
    monkeypatch.setattr("google.auth.default", lambda **_: (Stale(error), "people"))
    outcome = must_be(Failed, at(VERTEX).ask())
    assert (outcome.fatal, outcome.retryable) == (fatal, True)


def test_without_credentials_or_project_nothing_is_sent_and_the_way_out_is_named(
    at: At, monkeypatch: pytest.MonkeyPatch
):
    def missing(**_: object) -> None:
        raise DefaultCredentialsError("Your default credentials were not found.")

    desk = at(VERTEX, project="")
    assert list(desk.editor.lacking(online=False)) == []
    assert isinstance(desk.ask(), Edited), "the project of the credentials is the default"
    desk = at(VERTEX)
    monkeypatch.setattr("google.auth.default", missing)
    assert "gcloud auth application-default login" in next(iter(desk.editor.lacking(online=False)))
    outcome = must_be(Failed, desk.ask())
    assert (outcome.fatal, desk.server.asked) == (True, [])
    assert "gcloud auth application-default login" in outcome.error
    monkeypatch.setattr("google.auth.default", lambda **_: (Credentials(token=KEY), None))
    outcome = must_be(Failed, at(VERTEX, project="").ask())
    assert outcome.fatal
    assert "set `project`" in outcome.error


def test_how_dashscope_is_asked_and_who_pays_is_no_part_of_the_key_and_location_is():
    assert DASHSCOPE.build(NOWHERE).spec.key == DASHSCOPE_TASK.build(NOWHERE).spec.key
    here = VERTEX.build(NOWHERE)
    assert VERTEX.build(NOWHERE, project="other").spec.key == here.spec.key
    assert VERTEX.build(NOWHERE, location="europe-west4").spec.key != here.spec.key
    with pytest.raises(ValueError, match="base_url"):
        VERTEX.build("http://example.com")


# -- ComfyUI: a workflow from a file ----------------------------------------------------------------------------------


def nodes_of(desk: Desk) -> Any:
    return next(asked.json["prompt"] for asked in reversed(desk.server.calls()) if asked.path == "/prompt")


def test_the_placeholders_are_filled_and_the_rest_stays(at: At):
    desk = at(COMFYUI, extra={"front": True}, key_variable="")
    prefixes = set()
    for _ in range(2):
        assert isinstance(desk.ask(seed=7), Edited)
        prefixes.add(nodes_of(desk)["4"]["inputs"]["filename_prefix"])
    assert len(prefixes) == 2, "the same request twice is not taken for one"
    upload, nodes = desk.server.calls()[0], nodes_of(desk)
    assert upload.form["image"] == [desk.people[0].image.read()]
    assert desk.people[0].id.encode() not in upload.content
    assert nodes["1"]["inputs"]["image"].startswith("stillme-")
    assert nodes["2"]["inputs"]["text"] == "Do O-01."
    assert nodes["3"]["inputs"] == {"seed": 7, "steps": 20, "cfg": 2.5, "positive": ["2", 0]}
    assert desk.server.calls()[-1].json["front"] is True
    assert all("authorization" not in asked.headers for asked in desk.server.asked), "it needs no key"
    assert not desk.editor.capabilities.can_refuse


def test_the_file_counts_by_its_content_not_its_place(tmp_path: Path):
    def key(name: str, content: str) -> str:
        (tmp_path / name).write_text(content)
        return COMFYUI.build(NOWHERE, workflow=str(tmp_path / name)).spec.key

    indented = json.dumps(json.loads(WORKFLOW.read_text()), indent=8)
    assert key("a.json", WORKFLOW.read_text()) == key("b.json", indented)
    sampler = {"class_type": "KSampler", "inputs": {"seed": "{seed}", "steps": 8}}
    assert key("a.json", workflow()) != key("c.json", workflow(**{"3": sampler}))


def test_a_workflow_for_two_portraits_takes_two(at: At, tmp_path: Path):
    second = {"class_type": "LoadImage", "inputs": {"image": "{source_2}"}}
    (tmp_path / "two.json").write_text(workflow(**{"6": second}))
    desk = at(COMFYUI, workflow=str(tmp_path / "two.json"))
    assert desk.editor.capabilities.inputs == 2
    assert isinstance(desk.ask(portraits=2), Edited)
    assert len({nodes_of(desk)[node]["inputs"]["image"] for node in ("1", "6")}) == 2
    alone = must_be(Failed, desk.ask())
    assert not alone.retryable
    assert "loads 2 portraits, the request has 1" in alone.error


def test_a_workflow_without_a_seed_says_so_and_odd_placeholders_stop_the_audit(tmp_path: Path):
    (tmp_path / "fixed.json").write_text(workflow(**{"3": {"class_type": "KSampler", "inputs": {"seed": 1}}}))
    editor = COMFYUI.build(NOWHERE, workflow=str(tmp_path / "fixed.json"))
    assert editor.capabilities.seed == "none"
    assert list(editor.problems([], [])) == []
    text = {"class_type": "CLIPTextEncode", "inputs": {"text": "{instructions}"}}
    (tmp_path / "x.json").write_text(workflow(**{"2": text}))
    missing, unknown = COMFYUI.build(NOWHERE, workflow=str(tmp_path / "x.json")).problems([], [])
    assert "has no `{instruction}`" in missing
    assert "unknown placeholder {instructions}" in unknown


@pytest.mark.parametrize(
    ("content", "words"),
    [(None, "cannot be read"), ("{", "cannot be read"), ('{"nodes": [], "links": []}', r"Export \(API\)")],
)
def test_a_file_that_is_no_workflow_is_named(tmp_path: Path, content: str | None, words: str):
    file = tmp_path / "x.json"
    if content is not None:
        file.write_text(content)
    with pytest.raises(StillmeError, match=words):
        COMFYUI.build(NOWHERE, workflow=str(file))
