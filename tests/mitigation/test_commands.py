"""`stillme mitigate`, as a user types it."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from stillme.core.errors import StillmeError
from stillme.portraits import portraits
from tests.command_lines import invoke, ran
from tests.editors.hosted.loopback import serving
from tests.mitigation.test_model_extractor import GOOD, LABELLED
from tests.vlm.servers import CHAT, Scripted

PORTRAIT = portraits()[0]


@pytest.fixture
def anna(tmp_path: Path) -> Path:
    with Image.open(PORTRAIT.image.path) as picture:
        picture.save(tmp_path / "anna.png")
    return tmp_path / "anna.png"


@pytest.fixture
def nobody(tmp_path: Path) -> Path:
    Image.fromarray(np.zeros((128, 128, 3), dtype=np.uint8)).save(tmp_path / "nobody.png")
    return tmp_path / "nobody.png"


def test_a_portrait_of_the_embedded_set_is_shown_by_its_id():
    shown = ran("mitigate", "--dry-run", PORTRAIT.id)
    assert "Maintain the person's deep brown skin" in shown.stdout
    assert "no demographic label found" in shown.stdout
    assert "not described" in shown.stdout
    assert "add --extractor" not in shown.output


def test_features_as_json(anna: Path):
    output = json.loads(ran("mitigate", "--dry-run", anna, "--json").stdout)
    assert output["dimensions"]["skin_tone"] == "deep brown skin"
    assert output["labels"] == []
    (extractor,) = output["extractors"]
    assert (extractor["name"], extractor["outcome"]) == ("measured", "described")
    assert extractor["effective"]["measured"]["well_lit"] is True


def test_nobody_to_describe_exits_with_1_and_says_why(nobody: Path):
    shown = ran("mitigate", "--dry-run", nobody, code=1)
    assert "No feature prompt: measured declined: no face found" in shown.stdout
    assert "add --extractor gemini-3-flash" in shown.output, "who describes what it cannot"


def test_an_unknown_portrait_is_named_with_the_nearest():
    shown = invoke("mitigate", "--dry-run", "A_f_24")
    assert isinstance(shown.exception, StillmeError)
    assert "Did you mean 'A_f_" in str(shown.exception)


def test_an_edit_needs_an_instruction_and_an_editor_and_a_look_needs_neither(anna: Path):
    refused = ran("mitigate", anna, "--prompt", "Smile.", code=2)
    assert "--prompt and --editor are needed; --dry-run needs neither." in refused.output


def test_an_image_is_edited_with_the_person_described(anna: Path, tmp_path: Path):
    out = tmp_path / "edited.png"
    shown = ran(
        *("mitigate", anna, "--prompt", "Dress the person as a doctor.", "--editor", "planted"),
        *("--set", "recolour=both", "--seed", "3", "--out", out, "--json"),
    )
    output = json.loads(shown.stdout)
    assert output["instruction"] == f"{output['sentence']} Dress the person as a doctor."
    assert output["file"] == str(out)
    with Image.open(out) as edited, Image.open(anna) as source:
        assert edited.size == source.size
        assert np.asarray(edited.convert("RGB")).tolist() != np.asarray(source.convert("RGB")).tolist()


def test_the_sentence_is_shown_and_can_be_appended(anna: Path, tmp_path: Path):
    out = tmp_path / "edited.jpg"
    shown = ran("mitigate", anna, "--prompt", "Smile.", "--editor", "noop", "--position", "append", "--out", out)
    assert "The editor read: Smile. Maintain the person's deep brown skin" in shown.stdout
    with Image.open(out) as edited:
        assert edited.format == "JPEG", "the suffix gives the format"


def test_without_a_description_nothing_is_edited(nobody: Path, tmp_path: Path):
    out = tmp_path / "edited.png"
    told = ran("mitigate", nobody, "--prompt", "Smile.", "--editor", "noop", "--out", out, "--json", code=1)
    output = json.loads(told.stdout)
    assert (output["outcome"], output["file"], output["instruction"]) == ("not asked", None, "")
    assert not out.exists()


@pytest.mark.parametrize(("answer", "code", "outcome"), [(GOOD, 0, "described"), (LABELLED, 1, "unusable")])
def test_a_self_hosted_model_describes_the_person(anna: Path, tmp_path: Path, answer: object, code: int, outcome: str):
    with serving(CHAT.handler(Scripted([answer]))) as server:
        shown = ran(
            *("mitigate", anna, "--prompt", "Smile.", "--editor", "noop", "--out", tmp_path / "edited.png"),
            *("--extractor", "openai-compatible", "--extractor-set", f"base_url={server.url}/v1"),
            *("--extractor-set", "model=qwen", "--json"),
            code=code,
        )
    told = json.loads(shown.stdout)
    assert told["extractors"][0]["outcome"] == outcome
    if not code:
        assert told["sentence"].startswith("Maintain the person's deep brown skin with warm undertones")


def test_two_extractors_have_a_server_each(anna: Path):
    with serving(CHAT.handler(Scripted([GOOD]))) as one, serving(CHAT.handler(Scripted([GOOD]))) as two:
        shown = ran(
            *("mitigate", "--dry-run", anna, "--json"),
            *("--extractor", "one=openai-compatible", "--extractor", "two=openai-compatible"),
            *("--extractor-set", f"one.base_url={one.url}/v1", "--extractor-set", "one.model=qwen"),
            *("--extractor-set", f"two.base_url={two.url}/v1", "--extractor-set", "two.model=llava"),
        )
    assert [extractor["name"] for extractor in json.loads(shown.stdout)["extractors"]] == ["one", "two"]
    assert [call.json["model"] for call in one.calls()] == ["qwen"]
    assert [call.json["model"] for call in two.calls()] == ["llava"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--editor", "nop"], "Did you mean 'noop'"),
        (["--editor", "noop", "--set", "steps"], "--set steps: write noop.KEY=VALUE"),
        (["--editor", "noop", "--set", "steps=4"], "steps"),
        (["--editor", "noop", "--out", "edited.xyz"], "no known picture format"),
        (["--editor", "noop:x"], "takes nothing after a colon"),
        (["--editor", "noop", "--extractor", "measured", "--extractor", "measured"], "Two extractors are called"),
        (
            [*("--editor", "noop", "--extractor", "measured", "--extractor", "a=measured"), "--extractor-set", "b=1"],
            "write measured.KEY=VALUE or a.KEY=VALUE",
        ),
    ],
)
def test_mistakes_are_one_sentence(anna: Path, arguments: list[str], message: str):
    shown = invoke("mitigate", anna, "--prompt", "Smile.", *arguments)
    assert isinstance(shown.exception, StillmeError), shown.output
    assert message in str(shown.exception)
