"""Qwen's image models at Alibaba Cloud, at once or as a task."""

from __future__ import annotations

from typing import Any

import pytest

from stillme.core.types import Edited, Failed, Refused
from tests.editors.hosted.further_providers import DASHSCOPE, DASHSCOPE_TASK
from tests.editors.hosted.loopback import Says
from tests.editors.hosted.providers import Provider
from tests.editors.hosted.test_every_provider import At

INSPECTED = "Output data may contain inappropriate content."
both = pytest.mark.parametrize("provider", [DASHSCOPE, DASHSCOPE_TASK], ids=["at once", "as a task"])


def error(status: int, code: str, message: str = "words") -> Says:
    return Says(status=status, body={"request_id": "31f808fd", "code": code, "message": message})


def task(status: str, **more: Any) -> Says:
    return Says(body={"output": {"task_id": "0385dc79", "task_status": status, **more}, "request_id": "31f808fd"})


@both
def test_the_request_says_what_the_audit_says(at: At, provider: Provider):
    desk = at(provider, size="1024*1024", extra={"negative_prompt": " "})
    assert isinstance(desk.ask(portraits=2, seed=7), Edited)
    fields = desk.server.calls()[0].json
    assert fields["model"] == "qwen-image-edit-plus-2025-12-15"
    (message,) = fields["input"]["messages"]
    assert [sorted(part) for part in message["content"]] == [["image"], ["image"], ["text"]]
    assert message["content"][2] == {"text": "Do O-01."}
    assert fields["parameters"] == {
        "n": 1,
        "seed": 7,
        "watermark": False,
        "prompt_extend": False,
        "size": "1024*1024",
        "negative_prompt": " ",
    }


@both
@pytest.mark.parametrize("code", ["DataInspectionFailed", "data_inspection_failed"])
def test_a_failed_inspection_is_a_refusal(at: At, provider: Provider, code: str):
    desk = at(provider)
    desk.server.breaks(error(400, code, INSPECTED))
    outcome = desk.ask()
    assert isinstance(outcome, Refused)
    assert (outcome.message, outcome.effective["signal"]) == (INSPECTED, f"code = {code}")


def test_a_failed_inspection_of_a_task_is_a_refusal(at: At):
    desk = at(DASHSCOPE_TASK)
    desk.server.breaks(task("FAILED", code="DataInspectionFailed", message=INSPECTED), at="/tasks/")
    outcome = desk.ask()
    assert isinstance(outcome, Refused)
    assert outcome.effective["signal"] == "output.code = DataInspectionFailed"


@pytest.mark.parametrize(
    ("says", "fatal", "throttled", "retryable"),
    [
        (error(400, "Arrearage"), True, False, True),
        (error(401, "InvalidApiKey"), True, False, True),
        (error(429, "Throttling.RateQuota"), False, True, True),
        (error(400, "InvalidParameter"), False, False, False),
        (error(500, "InternalError"), False, False, True),
    ],
)
def test_codes_say_what_to_do(at: At, says: Says, fatal: bool, throttled: bool, retryable: bool):
    desk = at(DASHSCOPE)
    desk.server.breaks(says)
    outcome = desk.ask()
    assert isinstance(outcome, Failed)
    assert (outcome.fatal, outcome.throttled, outcome.retryable) == (fatal, throttled, retryable)
    assert says.body["code"] in outcome.error


@pytest.mark.parametrize("status", ["FAILED", "CANCELED", "UNKNOWN"])
def test_a_task_without_a_picture_is_handed_in_anew(at: At, status: str):
    desk = at(DASHSCOPE_TASK)
    desk.server.breaks(task(status, code="InternalError.Timeout", message="too slow"), at="/tasks/")
    outcome = desk.ask()
    assert isinstance(outcome, Failed)
    assert outcome.retryable
    assert "too slow (InternalError.Timeout)" in outcome.error or status in outcome.error
    assert isinstance(desk.ask(), Edited)
    assert len(desk.server.calls("POST")) == 2


def test_a_slow_task_is_asked_for_again_and_paid_for_once(at: At):
    desk = at(DASHSCOPE_TASK, timeout=1.0)
    desk.server.breaks(task("PENDING"), at="/tasks/", times=60)
    outcome = desk.ask()
    assert isinstance(outcome, Failed)
    assert outcome.retryable
    desk.server.faults.clear()
    assert isinstance(desk.ask(), Edited)
    assert len(desk.server.calls("POST")) == 1


@both
def test_a_picture_that_cannot_be_fetched_for_now_is_paid_for_once(at: At, provider: Provider):
    desk = at(provider, price={"image": 0.03})
    desk.server.breaks(Says(status=503, body=b"busy"), at="picture.png", times=9)
    waiting, edited = desk.ask(), desk.ask()
    assert isinstance(waiting, Failed)
    assert (waiting.retryable, waiting.cost) == (True, 0.0)
    assert isinstance(edited, Edited)
    assert edited.cost == 0.03
    assert len(desk.server.calls("POST")) == 1


def test_an_instruction_that_would_be_cut_off_fails_instead(at: At):
    desk = at(DASHSCOPE, max_characters=5)
    outcome = desk.ask()
    assert isinstance(outcome, Failed)
    assert not outcome.retryable
    assert "has 8 characters; 'qwen-image-edit-plus-2025-12-15' reads 5" in outcome.error
    assert desk.server.asked == []


def test_rewriting_is_asked_for_or_off(at: At):
    assert not at(DASHSCOPE).editor.capabilities.rewrites_prompt
    desk = at(DASHSCOPE, prompt_extend=True)
    assert desk.editor.capabilities.rewrites_prompt
    desk.ask()
    assert desk.server.calls()[0].json["parameters"]["prompt_extend"] is True


def test_the_first_model_knows_neither_size_nor_rewriting(at: At):
    desk = at(DASHSCOPE, model="qwen-image-edit")
    assert list(desk.editor.problems([], [])) == []
    desk.ask()
    assert desk.server.calls()[0].json["parameters"] == {"n": 1, "seed": 0, "watermark": False}
    given = at(DASHSCOPE, model="qwen-image-edit", size="1024*1024", prompt_extend=True).editor
    assert len(list(given.problems([], []))) == 2


def test_how_the_work_is_asked_for_is_no_part_of_the_key():
    assert DASHSCOPE.build("http://127.0.0.1:9").spec.key == DASHSCOPE_TASK.build("http://127.0.0.1:9").spec.key


def test_the_price_is_unknown_unless_the_audit_gives_it(at: At):
    assert at(DASHSCOPE).ask().effective == {"size": [16, 16], "request_id": "571ae02f", "cost": "unknown"}
    assert at(DASHSCOPE, price={"image": 0.03}).ask().cost == 0.03
