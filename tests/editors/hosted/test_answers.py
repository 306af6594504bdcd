"""What an answer becomes: a refusal only where the provider marks one; else a failure that says who must act."""

from __future__ import annotations

from typing import Any

import pytest

from stillme.core.types import Edited, Failed, Refused
from tests.editors.hosted import providers
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
    Provider,
    base64_of,
    bfl_result,
    comfy_entry,
    comfy_rejects,
    gemini_says,
    prediction,
)
from tests.editors.hosted.test_every_provider import FATAL, FOR_GOOD, RETRYABLE, SLOWER, At
from tests.records import must_be

SAFETY = "Your request was rejected by the safety system."
AZURES = "The request was rejected by the content management policy."
INSPECTED = "Output data may contain inappropriate content."
CHECKER = "The content could not be processed because it contained material flagged by a content checker."
UNABLE = "Unable to show the generated image."
NO_VERSION = "The specified version does not exist (or perhaps you don't have permission to use it?)"
FILTERED = {
    "hate": {"filtered": False, "severity": "safe"},
    "violence": {"filtered": True, "severity": "medium"},
    "profanity": {"detected": False, "filtered": False},
}
RESPONSIBLE = {"code": "ResponsibleAIPolicyViolation", "content_filter_results": FILTERED}


def openai_error(code: str | None, *, status: int = 400, message: str = SAFETY, **more: Any) -> Says:
    body = {"error": {"message": message, "type": "user_error", "param": None, "code": code, **more}}
    return Says(status=status, body=body)


def azure_error(code: str, **more: Any) -> Says:
    return openai_error(code, message=AZURES, **more)


def dashscope_error(status: int, code: str, message: str = "words") -> Says:
    return Says(status=status, body={"request_id": "31f808fd", "code": code, "message": message})


def dashscope_task(status: str, **more: Any) -> tuple[str, Says]:
    output = {"task_id": "0385dc79", "task_status": status, **more}
    return "/tasks/", Says(body={"output": output, "request_id": "31f808fd"})


def gemini_error(status: int, code: str, message: str, *details: dict[str, str]) -> Says:
    return Says(
        status=status, body={"error": {"code": status, "message": message, "status": code, "details": list(details)}}
    )


def fal_detail(kind: str, message: str) -> Says:
    return Says(status=422, body={"detail": [{"loc": ["body", "prompt"], "msg": message, "type": kind, "input": {}}]})


def replicate_failed(error: str | None) -> tuple[str, Says]:
    return "/gm3qorzd", Says(body=prediction("failed", error=error, metrics={"predict_time": 2.0}))


def bfl_moderated(status: str, **more: Any) -> tuple[str, Says]:
    return "get_result", Says(body=bfl_result(status, **more))


FAL_DONE = ("/status", Says(body={"status": "COMPLETED", "logs": []}))
FAL_RESULT = "/requests/764cabcf"
BLOCKED = {"promptFeedback": {"blockReason": "PROHIBITED_CONTENT"}, "usageMetadata": {"promptTokenCount": 1000}}
REASONS = {"Moderation Reasons": ["Safety Filter"]}
NSFW = {"images": [{"url": "data:image/png;base64,AAAA"}], "has_nsfw_concepts": [True]}

Fault = Says | tuple[str, Says]
REFUSALS: list[tuple[Provider, list[Fault], str, str, float | None]] = [
    # provider, what its server answers, the refusal's words, its signal, its cost where that is the point
    *((OPENAI, [openai_error(code)], SAFETY, f"error.code = {code}", None)
      for code in ("moderation_blocked", "content_policy_violation", "content_filter")),
    *((AZURE, [azure_error(code, **more)], AZURES, f"error.code = {code}", None)
      for code, more in (("content_policy_violation", {}), ("moderation_blocked", {}), ("contentFilter", {}),
                         ("content_filter", {"innererror": {"content_filter_result": {}}}))),
    *((AZURE, [azure_error(code, **{name: RESPONSIBLE})], AZURES,
       "inner_error.code = ResponsibleAIPolicyViolation (violence)", None)
      for code, name in (("content_policy_violation", "inner_error"), ("400", "innererror"))),
    (BFL, [bfl_moderated("Request Moderated", details=REASONS)], "Safety Filter", "status = Request Moderated", 0.0),
    (BFL, [bfl_moderated("Content Moderated", details=REASONS)], "Safety Filter", "status = Content Moderated", 0.045),
    (BFL, [bfl_moderated("Request Moderated")], "Request Moderated", "status = Request Moderated", 0.0),
    *((provider, [dashscope_error(400, code, INSPECTED)], INSPECTED, f"code = {code}", None)
      for provider in (DASHSCOPE, DASHSCOPE_TASK) for code in ("DataInspectionFailed", "data_inspection_failed")),
    (DASHSCOPE_TASK, [dashscope_task("FAILED", code="DataInspectionFailed", message=INSPECTED)], INSPECTED,
     "output.code = DataInspectionFailed", None),
    (FAL, [fal_detail("content_policy_violation", CHECKER)], CHECKER, "detail.type = content_policy_violation", None),
    (FAL, [FAL_DONE, (FAL_RESULT, fal_detail("content_policy_violation", CHECKER))], CHECKER,
     "detail.type = content_policy_violation", None),
    # The picture was made before it was withheld.
    (FAL, [FAL_DONE, (FAL_RESULT, Says(body=NSFW))], "", "has_nsfw_concepts = True", 0.045),
    (GEMINI, [Says(body=BLOCKED)], "PROHIBITED_CONTENT", "promptFeedback.blockReason = PROHIBITED_CONTENT",
     1000 * 0.5 / 1e6),
    *((provider, [gemini_says(finishReason=reason, finishMessage=UNABLE)], UNABLE, f"finishReason = {reason}", None)
      for provider, reason in ((GEMINI, "IMAGE_SAFETY"), (GEMINI, "IMAGE_PROHIBITED_CONTENT"), (GEMINI, "SAFETY"),
                               (GEMINI, "PROHIBITED_CONTENT"), (VERTEX, "IMAGE_SAFETY"))),
    *((GEMINI, [gemini_says([{"text": "Let me think.", "thought": True}, {"text": words}])], words,
       "a no in words instead of a picture", None)
      for words in (
          "I can't help with editing this person's skin colour.",
          "I’m sorry, but I am unable to modify images of real people.",
          "I cannot fulfil this request.",
          "Changing someone's race goes against my safety guidelines.",
          "This request violates our content policy.",
      )),
]  # fmt: skip


@pytest.mark.parametrize(("provider", "answers", "message", "signal", "cost"), REFUSALS)
def test_what_the_provider_marks_as_a_policy_is_a_refusal_in_its_words(
    at: At, provider: Provider, answers: list[Fault], message: str, signal: str, cost: float | None
):
    desk = at(provider)
    answer(desk.server, answers)
    outcome = must_be(Refused, desk.ask())
    assert message in outcome.message
    assert outcome.effective["signal"] == signal
    assert cost is None or outcome.cost == pytest.approx(cost)


def answer(server: Any, answers: list[Fault]) -> None:
    for fault in answers:
        place, says = fault if isinstance(fault, tuple) else ("", fault)
        server.breaks(says, at=place)


@pytest.mark.parametrize(
    "words",
    [
        "The input or output was flagged as sensitive. Please try again with different inputs. (E005) (abc123)",
        "NSFW content detected in all outputs. Try running it again, or try a different prompt.",
        "The generated image contained NSFW content.",
    ],
)
def test_a_flagged_prediction_is_a_refusal_whose_time_was_charged(at: At, words: str):
    desk = at(REPLICATE, price={"second": 0.001})
    answer(desk.server, [replicate_failed(words)])
    outcome = must_be(Refused, desk.ask())
    assert (outcome.message, outcome.cost) == (words, pytest.approx(0.002))


KEY_INVALID = {"@type": "type.googleapis.com/google.rpc.ErrorInfo", "reason": "API_KEY_INVALID"}
FAILURES: list[tuple[Provider, dict[str, Any], list[Fault], tuple[bool, bool, bool], str]] = [
    # provider, its parameters, what its server answers, who must act, words of the failure
    (OPENAI, {}, [openai_error("invalid_image_format")], FOR_GOOD, "invalid_image_format"),
    *((OPENAI, {}, [openai_error(code, status=status, message="You exceeded your current quota.")], FATAL, "quota")
      for code, status in (("insufficient_quota", 429), ("billing_hard_limit_reached", 400), ("model_not_found", 404))),
    (OPENAI, {}, [Says(body={"created": 1, "data": [{"b64_json": "!!not base64!!"}]})], RETRYABLE, "!!not base64!!"),
    (OPENAI, {}, [Says(body={"created": 1, "data": [{"b64_json": base64_of(b"a text")}]})], RETRYABLE, "not a picture"),
    (AZURE, {}, [azure_error("invalid_value", inner_error={"code": "SomethingElse"})], FOR_GOOD, "rejected"),
    (AZURE, {"model": "landscapes"}, [], FATAL, "Resource not found"),
    (BFL, {}, [fal_detail("x", "Input should be less than or equal to 5")], FOR_GOOD, "less than or equal to 5"),
    (COMFYUI, {}, [("/prompt", comfy_rejects("CheckpointLoaderSimple", "Value not in list", "ckpt_name: 'x'"))],
     FOR_GOOD, "CheckpointLoaderSimple: Value not in list (ckpt_name: 'x')"),
    *((DASHSCOPE, {}, [dashscope_error(status, code)], flags, code) for status, code, flags in (
        (400, "Arrearage", FATAL), (401, "InvalidApiKey", FATAL), (429, "Throttling.RateQuota", SLOWER),
        (400, "InvalidParameter", FOR_GOOD), (500, "InternalError", RETRYABLE))),
    (FAL, {}, [fal_detail("value_error", "unexpected value")], FOR_GOOD, "unexpected value"),
    (FAL, {}, [(FAL.submit, Says(status=404, body={"detail": "Application 'flux-9' not found"}))], FATAL,
     "Application 'flux-9' not found"),
    (GEMINI, {}, [gemini_error(400, "INVALID_ARGUMENT", "API key not valid.", KEY_INVALID)], FATAL, "not valid"),
    *((GEMINI, {}, [gemini_error(status, code, words)], FATAL, words) for status, code, words in (
        (400, "FAILED_PRECONDITION", "User location is not supported for the API use."),
        (429, "RESOURCE_EXHAUSTED", "Quota exceeded for metric: generate_requests, limit: 0, model: gemini"),
        (404, "NOT_FOUND", "models/gemini-9 is not found for API version v1"))),
    (GEMINI, {}, [gemini_error(429, "RESOURCE_EXHAUSTED", "Check your plan and billing details. limit: 10")], SLOWER,
     "limit: 10"),
    *((GEMINI, {}, [gemini_says([{"text": words}])], RETRYABLE, f"gemini: answered in words: {words}") for words in (
        "Which of the two people should wear the hat?",
        "Here is the edited picture:",
        "I can't see a picture; please upload one.",
        "The person wears a dark suit, and the background can't be made out.")),
    *((GEMINI, {}, [gemini_says([{"text": "Something about safety."}], finishReason=reason)], RETRYABLE, reason)
      for reason in ("NO_IMAGE", "IMAGE_OTHER", "OTHER", "MAX_TOKENS", "IMAGE_RECITATION")),
    *((REPLICATE, {}, [replicate_failed(error)], RETRYABLE, error or "no explanation")
      for error in ("CUDA out of memory", "Director: unexpected error (E6716)", None)),
    *((REPLICATE, {"model": "somebody/editor:5c7d5dc6"},
       [Says(status=status, body={"title": "Invalid version", "detail": NO_VERSION})], FATAL, NO_VERSION)
      for status in (404, 422)),
]  # fmt: skip


@pytest.mark.parametrize(("provider", "parameters", "answers", "flags", "words"), FAILURES)
def test_anything_else_is_a_failure_that_says_who_must_act(
    at: At,
    provider: Provider,
    parameters: dict[str, Any],
    answers: list[Fault],
    flags: tuple[bool, bool, bool],
    words: str,
):
    desk = at(provider, **parameters)
    answer(desk.server, answers)
    outcome = must_be(Failed, desk.ask())
    assert (outcome.fatal, outcome.throttled, outcome.retryable) == flags
    assert words in outcome.error
    if "candidates" in str(answers):
        assert outcome.cost > 0, "tokens were used"
    if outcome.retryable and not parameters:
        assert isinstance(desk.ask(), Edited)


BROKEN = {"node_type": "KSampler", "exception_message": "CUDA out of memory"}


@pytest.mark.parametrize(
    ("event", "words"),
    [
        (["execution_error", BROKEN], "the node KSampler failed: CUDA out of memory"),
        (["execution_interrupted", {"node_id": "3"}], "the job was interrupted at the server"),
    ],
)
def test_a_node_that_breaks_is_a_failure_with_its_words(
    at: At, monkeypatch: pytest.MonkeyPatch, event: list[Any], words: str
):
    messages = [["execution_start", {}], event]
    broken = {"status_str": "error", "completed": False, "messages": messages}
    monkeypatch.setattr(providers, "comfy_entry", lambda job: comfy_entry(job, **broken))
    outcome = must_be(Failed, at(COMFYUI).ask())
    assert outcome.retryable
    assert words in outcome.error


def test_the_last_picture_counts_and_thoughts_do_not(at: At):
    desk = at(GEMINI)
    source = desk.people[0].image.read()
    final = providers.negative(source)
    drafts = [providers.gemini_image(picture) for picture in (source, final)]
    desk.server.breaks(gemini_says([*drafts, providers.gemini_image(source, thought=True)]))
    assert getattr(desk.ask(), "image", None) == final


def test_a_server_may_answer_with_a_link_and_one_that_leads_nowhere_is_a_failure(at: At):
    desk = at(SERVER)
    picture = providers.negative(desk.people[0].image.read())
    desk.server.breaks(Says(body={"data": [{"url": f"{desk.server.url}/files/1.png"}]}), at="/edits")
    desk.server.breaks(Says(body=picture), at="/files/")
    assert getattr(desk.ask(), "image", None) == picture
    desk.editor._poll_seconds = 0.01  # pyright: ignore[reportAttributeAccessIssue]
    for link in (f"{desk.server.url}/files/1.png", "file:///etc/passwd", "ftp://127.0.0.1/x"):
        desk.server.breaks(Says(body={"data": [{"url": link}]}), at="/edits")
        desk.server.breaks(Says(status=404, body=b"gone"), at="/files/")
        outcome = must_be(Failed, desk.ask())
        assert outcome.retryable


def test_a_picture_of_another_size_than_asked_for_is_a_failure_that_was_charged(at: At):
    desk = at(OPENAI, size="32x16")
    assert desk.ask().effective["size"] == [32, 16]
    picture = base64_of(desk.people[0].image.read())
    usage = {"input_tokens": 0, "output_tokens": 1000}
    desk.server.breaks(Says(body={"created": 1, "data": [{"b64_json": picture}], "usage": usage}))
    outcome = must_be(Failed, desk.ask())
    assert (outcome.retryable, outcome.cost) == (True, pytest.approx(1000 * 30 / 1e6))
    assert "16×16 pixels instead of 32×16" in outcome.error
