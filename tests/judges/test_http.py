"""A web address is a judge: the scores in its answer become ratings."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from typing import Any

import pytest

from stillme.core import images
from stillme.core.types import Abstained, Assessment, Rated
from stillme.judges.own import HttpJudge, HttpJudgeParameters
from stillme.plugins.testing import check_plugin
from stillme.portraits import portraits
from tests.editors.hosted.loopback import Asked, Loopback, Says
from tests.judges.conftest import PAIR, SUIT

TEMPLATE = {"before": "{source}", "after": "{edited_data_uri}", "asked": "{instruction}"}
AXES = ("edit_success", "brighter")


def behave(server: Loopback, asked: Asked) -> Says:
    before = images.read_rgb(base64.b64decode(asked.json["before"]))
    after = images.read_rgb(base64.b64decode(asked.json["after"].removeprefix("data:image/png;base64,")))
    return Says(body={"edit_success": 5, "brighter": float(after.mean() - before.mean()), "model": "mine-2"})


@pytest.fixture
def server(loopback: Callable[..., Loopback]) -> Loopback:
    return loopback(behave)


def judge(server: Loopback, **settings: Any) -> HttpJudge:
    given = {"url": f"{server.url}/rate", "template": TEMPLATE, "axes": AXES, **settings}
    return HttpJudge(HttpJudgeParameters.model_validate(given))


def assessed(judge: HttpJudge) -> Assessment:
    try:
        return next(judge.judge([PAIR]))
    finally:
        judge.close()


def test_a_server_conforms(server: Loopback):
    check_plugin(HttpJudge, portraits()[:2], {"url": server.url, "template": TEMPLATE, "axes": AXES})
    assert judge(server).provider == server.url.removeprefix("http://")


def test_scores_are_read_from_the_answer(server: Loopback):
    assessment = assessed(judge(server, price=0.25))
    assert assessment.ratings["edit_success"] == Rated(score=5.0)
    assert json.loads(assessment.raw or "")["model"] == "mine-2"
    assert assessment.cost == 0.25
    assert server.asked[0].json["asked"] == SUIT.text


def test_scores_may_stand_in_text_and_under_other_names(server: Loopback):
    text = 'Here you are:\n```json\n{"success": {"score": 4, "evidence": "a suit"}, "light": {"value": null}}\n```'
    server.breaks(Says(body={"choices": [{"message": {"content": text}}]}))
    paths = {"edit_success": "success", "brighter": "light.value"}
    ratings = assessed(judge(server, answer="choices.0.message.content", paths=paths)).ratings
    assert ratings == {
        "edit_success": Rated(score=4.0, evidence="a suit"),
        "brighter": Abstained(reason="no reason given"),
    }


@pytest.mark.parametrize(
    ("says", "words"),
    [
        (Says(body={"edit_success": 5}), "the server returned no brighter"),
        (Says(body=b"lovely"), "there are no scores at"),
        (Says(body={"error": "busy"}, status=503), "503"),
        (Says(status=429, headers={"Retry-After": "3"}), "429"),
    ],
)
def test_anything_else_is_a_failure_and_never_a_score(server: Loopback, says: Says, words: str):
    server.breaks(says)
    assessment = assessed(judge(server, price=0.25))
    assert assessment.ratings.keys() == set(AXES)
    for rating in assessment.ratings.values():
        assert words in rating.error
        assert (rating.retryable, rating.throttled) == (True, says.status == 429)
        assert rating.retry_after == (3.0 if says.status == 429 else None)
    assert assessment.cost == (0.25 if says.status == 200 else 0.0)


def test_a_refusal_abstains_on_every_axis(server: Loopback):
    server.breaks(Says(body={"blocked": "no faces"}))
    ratings = assessed(judge(server, refusal="blocked")).ratings
    assert ratings == dict.fromkeys(AXES, Abstained(reason="no faces"))


def test_mistakes_are_named(server: Loopback):
    sentences = " ".join(judge(server, template={"x": "{source}"}, paths={"skin": "y"}).problems([], []))
    assert "`template` has no {edited}" in sentences
    assert "`paths.skin` is for an axis that `axes` does not list" in sentences
