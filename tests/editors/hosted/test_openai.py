"""OpenAI's Images API and servers that speak it, through the official client."""

from __future__ import annotations

import pytest

from stillme.core.types import Edited, Failed, Refused
from tests.editors.hosted.loopback import Says
from tests.editors.hosted.providers import OPENAI, SERVER, base64_of, negative
from tests.editors.hosted.test_every_provider import At


def error(code: str, *, status: int = 400, message: str = "Your request was rejected by the safety system.") -> Says:
    return Says(status=status, body={"error": {"message": message, "type": "user_error", "param": None, "code": code}})


@pytest.mark.parametrize("code", ["moderation_blocked", "content_policy_violation", "content_filter"])
def test_a_policy_code_is_a_refusal_in_the_providers_words(at: At, code: str):
    desk = at(OPENAI)
    desk.server.breaks(error(code))
    outcome = desk.ask()
    assert isinstance(outcome, Refused)
    assert outcome.message == "Your request was rejected by the safety system."
    assert outcome.effective["signal"] == f"error.code = {code}"


def test_words_about_safety_without_the_code_are_no_refusal(at: At):
    desk = at(OPENAI)
    desk.server.breaks(error("invalid_image_format"))
    outcome = desk.ask()
    assert isinstance(outcome, Failed)
    assert not outcome.retryable
    assert "invalid_image_format" in outcome.error


@pytest.mark.parametrize(
    ("code", "status"),
    [("insufficient_quota", 429), ("billing_hard_limit_reached", 400), ("model_not_found", 404)],
)
def test_an_empty_account_or_no_such_model_is_fatal_but_not_for_good(at: At, code: str, status: int):
    desk = at(OPENAI)
    desk.server.breaks(error(code, status=status, message="You exceeded your current quota."))
    outcome = desk.ask()
    assert isinstance(outcome, Failed)
    assert (outcome.fatal, outcome.retryable) == (True, True)
    assert isinstance(desk.ask(), Edited)


def test_a_rate_limit_is_throttled_and_tells_how_long(at: At):
    desk = at(OPENAI)
    desk.server.breaks(Says(status=429, body={}, headers={"Retry-After": "0.3"}))
    outcome = desk.ask()
    assert isinstance(outcome, Failed)
    assert (outcome.throttled, outcome.fatal, outcome.retry_after) == (True, False, 0.3)


def test_a_turn_that_is_far_away_is_returned_instead_of_slept(at: At):
    desk = at(OPENAI, requests_per_minute=2)
    assert isinstance(desk.ask(), Edited)
    outcome = desk.ask()
    assert isinstance(outcome, Failed)
    assert (outcome.throttled, outcome.retryable) == (True, True)
    assert len(desk.server.asked) == 1


def test_the_request_says_what_the_audit_says(at: At):
    desk = at(OPENAI, quality="high", size="1536x1024", extra={"background": "opaque"})
    desk.ask()
    (asked,) = desk.server.asked
    form = asked.form
    assert asked.path == "/v1/images/edits"
    assert form["prompt"] == [b"Do O-01."]
    assert form["model"] == [b"gpt-image-2.5-sunburst-2026-09-08"]
    assert (form["quality"], form["size"], form["background"]) == ([b"high"], [b"1536x1024"], [b"opaque"])
    assert form["image"] == [desk.people[0].image.read()]
    assert "seed" not in form
    assert b"p0" not in asked.content.replace(form["image"][0], b""), "a file name could tell the person's group"


def test_several_portraits_go_in_one_request(at: At):
    desk = at(OPENAI)
    assert isinstance(desk.ask(portraits=3), Edited)
    assert desk.server.asked[0].form["image[]"] == [person.image.read() for person in desk.people]


def test_cost_and_what_really_applied_are_recorded(at: At):
    outcome = at(OPENAI).ask()
    assert isinstance(outcome, Edited)
    # 100 text and 200 image tokens in, 1,000 image tokens out, at 5, 8 and 30 dollars a million.
    assert outcome.cost == pytest.approx((100 * 5 + 200 * 8 + 1000 * 30) / 1e6)
    assert outcome.effective == {"size": [16, 16], "request_id": "req_1", "quality": "high", "output_format": "png"}


def test_a_model_without_a_known_price_says_so(at: At):
    desk = at(OPENAI, model="gpt-image-9")
    outcome = desk.ask()
    assert isinstance(outcome, Edited)
    assert (outcome.cost, outcome.effective["cost"]) == (0.0, "unknown")
    priced = at(OPENAI, model="gpt-image-9", price={"image": 0.25}).ask()
    assert priced.cost == 0.25


@pytest.mark.parametrize(
    ("parameters", "words"),
    [
        ({"input_fidelity": "high"}, "`input_fidelity` is rejected"),
        ({"model": "gpt-image-2-2026-04-21", "quality": "max"}, "write one of auto, low, medium, high"),
        ({"extra": {"input_fidelity": "high"}}, "`input_fidelity` is rejected"),
    ],
)
def test_a_setting_that_the_model_rejects_is_named_before_the_first_edit(parameters: dict[str, object], words: str):
    (sentence,) = OPENAI.build("http://127.0.0.1:9", **parameters).problems([], [])
    assert words in sentence


def test_undecodable_base64_is_a_failure_that_shows_it(at: At):
    desk = at(OPENAI)
    desk.server.breaks(Says(body={"created": 1, "data": [{"b64_json": "!!not base64!!"}]}))
    outcome = desk.ask()
    assert isinstance(outcome, Failed)
    assert "!!not base64!!" in outcome.error


def test_base64_of_something_else_than_a_picture_is_a_failure(at: At):
    desk = at(OPENAI)
    desk.server.breaks(Says(body={"created": 1, "data": [{"b64_json": base64_of(b"a text")}]}))
    outcome = desk.ask()
    assert isinstance(outcome, Failed)
    assert "not a picture" in outcome.error


def test_a_picture_of_another_size_than_asked_for_is_a_failure_that_was_charged(at: At):
    desk = at(OPENAI, size="32x16")
    outcome = desk.ask()
    assert isinstance(outcome, Edited)
    assert outcome.effective["size"] == [32, 16]
    usage = {"input_tokens": 0, "output_tokens": 1000}
    picture = base64_of(desk.people[0].image.read())
    desk.server.breaks(Says(body={"created": 1, "data": [{"b64_json": picture}], "usage": usage}))
    outcome = desk.ask()
    assert isinstance(outcome, Failed)
    assert (outcome.retryable, outcome.cost) == (True, pytest.approx(1000 * 30 / 1e6))
    assert "16×16 pixels instead of 32×16" in outcome.error


@pytest.mark.parametrize(
    ("settings", "tokens"),
    [
        ({"quality": "low", "size": "1024x1024"}, 272),
        ({"quality": "high", "size": "1024x1536"}, 6240),
        ({"quality": "auto", "size": "auto"}, 4160),
    ],
)
def test_the_price_of_an_edit_is_known_beforehand(at: At, settings: dict[str, str], tokens: int):
    assert at(OPENAI, **settings).editor.expected_dollars() == pytest.approx((4160 * 8 + tokens * 30) / 1e6)
    assert at(OPENAI, model="gpt-image-9").editor.expected_dollars() is None


# -- servers of one's own ---------------------------------------------------------------------------------------------


def test_a_server_of_ones_own_needs_no_key_and_gets_the_seed(at: At, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delenv("OPENAI_API_KEY")
    settings = {"num_inference_steps": 40, "true_cfg_scale": 4.0, "negative_prompt": " "}
    desk = at(SERVER, extra=settings, key_variable=None)
    assert isinstance(desk.ask(seed=7), Edited)
    form = desk.server.asked[0].form
    assert (form["seed"], form["num_inference_steps"], form["true_cfg_scale"]) == ([b"7"], [b"40"], [b"4.0"])
    assert form["negative_prompt"] == [b" "]
    assert desk.editor.capabilities.seed == "best_effort"


def test_a_server_of_ones_own_may_have_a_key_of_its_own(at: At, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("MY_SERVER", "sesame")
    desk = at(SERVER, key_variable="MY_SERVER")
    desk.ask()
    assert desk.server.asked[0].headers["authorization"] == "Bearer sesame"


def test_a_server_may_answer_with_a_link(at: At):
    desk = at(SERVER)
    picture = negative(desk.people[0].image.read())
    desk.server.breaks(Says(body={"data": [{"url": f"{desk.server.url}/files/1.png"}]}), at="/edits")
    desk.server.breaks(Says(body=picture), at="/files/")
    outcome = desk.ask()
    assert isinstance(outcome, Edited)
    assert outcome.image == picture


def test_a_link_that_leads_nowhere_is_a_failure(at: At):
    desk = at(SERVER)
    desk.editor._poll_seconds = 0.01  # pyright: ignore[reportAttributeAccessIssue]
    for link in (f"{desk.server.url}/files/1.png", "file:///etc/passwd", "ftp://127.0.0.1/x"):
        desk.server.breaks(Says(body={"data": [{"url": link}]}), at="/edits")
        desk.server.breaks(Says(status=404, body=b"gone"), at="/files/")
        outcome = desk.ask()
        assert isinstance(outcome, Failed)
        assert outcome.retryable
