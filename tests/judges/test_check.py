"""`stillme check` with model judges, as a user would call it."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from click.testing import Result

from stillme.core.errors import StillmeError
from stillme.core.types import ImageFile
from tests.command_lines import invoke, ran
from tests.editors.hosted.loopback import Loopback, Says
from tests.judges.conftest import answer
from tests.vlm.servers import CHAT, Scripted


class Shell:
    """One pair, and judges at loopback servers."""

    def __init__(self, images: list[ImageFile], servers: dict[str, Loopback]) -> None:
        source, _, edited = images
        self.servers = servers
        self.given = [str(edited.path), "--source", str(source.path), "--prompt", "Dress them in a suit."]
        for name, server in servers.items():
            judge = f"--judge {name} --set {name}.model=llava --set {name}.base_url={server.url}/v1"
            self.given += [*judge.split(), *(("--set", "vlm.provider=openai-chat") if name == "vlm" else ())]

    def check(self, *more: str, code: int = 0) -> Result:
        return ran("check", *self.given, *more, code=code)


@pytest.fixture
def shell(images: list[ImageFile], loopback: Callable[..., Loopback]) -> Callable[..., Shell]:
    def build(**judges: Any) -> Shell:
        servers = {name: loopback(CHAT.handler(Scripted([answers]))) for name, answers in judges.items()}
        return Shell(images, {name.replace("_", "-"): server for name, server in servers.items()})

    return build


Shells = Callable[..., Shell]


def test_a_card_shows_the_scores_and_the_evidence(shell: Shells):
    shown = shell(openai_compatible=answer(skin_tone=4)).check()
    assert "Skin Tone Change" in shown.stdout
    assert "4 slightly lighter (the same)" in shown.stdout
    assert "unknown" in shown.stdout, "an unknown cost is not zero"


def test_two_judges_are_combined_by_the_rule(shell: Shells):
    both = shell(openai_compatible=answer(skin_tone=5, age_drift=3), vlm=answer(skin_tone=3, age_drift=4))
    shown = json.loads(both.check("--json").stdout)
    assert [card["judge"] for card in shown["judges"]] == ["openai-compatible", "vlm"]
    assert shown["ensemble"]["scores"]["skin_tone"] == 4
    assert shown["ensemble"]["scores"]["age_change"] == 3.5
    assert shown["ensemble"]["flagged"] == ["skin_tone"]
    paper = json.loads(both.check("--json", "--rule", "paper").stdout)
    assert (paper["ensemble"]["scores"]["skin_tone"], paper["ensemble"]["scores"]["age_change"]) == (5, 4)
    assert "judges disagree" in both.check().stdout


def test_an_aging_edit_is_also_scored_against_its_target(shell: Shells):
    shown = json.loads(shell(vlm=answer(age_drift=5, age_accuracy=4)).check("--years", "30", "--json").stdout)
    (card,) = shown["judges"]
    assert card["scores"]["age_accuracy"] == 4


def test_without_a_prompt_no_model_is_paid_to_guess_whether_the_edit_succeeded(shell: Shells):
    reply = answer(skin_tone=4)
    del reply["scores"]["edit_success"]
    one = shell(vlm=reply)
    shown = one.check("--prompt", "", "--json")
    (card,) = json.loads(shown.stdout)["judges"]
    assert set(card["scores"]) == {"skin_tone", "race_change", "gender_change", "age_change"}
    assert (card["failed"], card["abstained"]) == ({}, {})
    (asked,) = one.servers["vlm"].calls()
    content = asked.content.decode()
    assert "skin_tone" in content
    for word in ("edit_success", "Edit Success", "EDIT INSTRUCTION: ", "requested edit"):
        assert word not in content


def test_a_models_words_cannot_steer_the_terminal(shell: Shells):
    reply = answer(skin_tone=4)
    reply["observations"]["skin_tone_comparison"] = "same\x1b[2J\x9b1m\u202e\nVERDICT passed"
    one = shell(vlm=reply)
    shown = one.check().stdout
    assert "(same�[2J�1m� VERDICT passed)" in shown
    assert not any(control in shown for control in "\x1b\x9b\u202e")
    raw = one.check("--json").stdout
    assert not any(control in raw for control in "\x1b\x9b\u202e")
    (card,) = json.loads(raw)["judges"]
    assert card["evidence"]["skin_tone"] == reply["observations"]["skin_tone_comparison"], "programs get every byte"


def test_a_judge_that_is_down_is_a_failure_and_exits_with_3(shell: Shells):
    one = shell(vlm=answer())
    one.servers["vlm"].breaks(Says(status=503, body={"error": {"message": "down"}}))
    assert "failed (llava: 503: down); re-run to retry" in one.check(code=3).stdout


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (["--judge", "openai-compatible"], "'model' is missing; add it. `stillme list judges openai-"),
        (["--judge", "vlm:cloude"], "there is no preset 'cloude'"),
        (["--judge", "scripted:x"], "takes nothing after a colon"),
        (["--judge", "scripted", "--set", "vlm.model=x"], "--set vlm.model=x: write scripted.KEY=VALUE."),
    ],
)
def test_a_mistake_is_one_sentence(shell: Shells, given: list[str], words: str):
    shown = invoke("check", *shell().given, *given)
    assert isinstance(shown.exception, StillmeError)
    assert words in str(shown.exception)
