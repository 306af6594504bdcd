"""The arms: the placebo is as long as the feature sentence and about no one; nothing else may differ."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stillme.core.types import Arm, Prompt, Request, Spec
from stillme.mitigation.arms import NotPaired, differences, instruction, placebo, require_paired
from stillme.mitigation.features import DIMENSIONS, OPENING, listed
from stillme.mitigation.labels import lint
from tests import records

PROMPT = Prompt(id="O-01", text="Dress the person as a doctor.", category="own", subcategory="own")
SEEN = "deep brown skin with warm undertones oval face broad nose short curly hair"
WORDS = st.sampled_from(SEEN.split())
PHRASES = st.lists(st.lists(WORDS, min_size=1, max_size=9).map(" ".join), min_size=1, max_size=7)


MORE = st.sampled_from(["", " Also maintain the nose (broad, with a low bridge)."])


@given(phrases=PHRASES, more=MORE, seed=st.text(max_size=8))
def test_it_is_as_long_passes_the_linter_and_names_no_feature(phrases: list[str], more: str, seed: str):
    sentence = f"{OPENING} {listed(phrases)}.{more}"
    text = placebo(sentence, seed)
    assert len(text.split()) == len(sentence.split())
    assert more or text.count(",") == sentence.count(",")
    assert abs(len(text) - len(sentence)) <= max(4, 0.1 * len(sentence))
    assert lint(text) == ()
    words = set(text.casefold().replace(",", "").rstrip(".").split())
    assert not words & {"person's", "person", "skin", "face", "hair", "nose", *DIMENSIONS}


def test_the_same_request_has_the_same_words_and_another_has_others():
    sentence = f"{OPENING} deep brown skin with warm undertones, oval face, and black hair."
    assert placebo(sentence, "anna O-01") == placebo(sentence, "anna O-01")
    assert len({placebo(sentence, f"anna {number}") for number in range(20)}) == 20


def test_the_arms_differ_in_nothing_but_the_sentence():
    sentence = f"{OPENING} oval face and black hair."
    feature = instruction(PROMPT, Arm.FEATURE, [sentence])
    blank = instruction(PROMPT, Arm.PLACEBO, [sentence], seed="x")
    assert feature == f"{sentence} {PROMPT.text}"
    assert blank.endswith(f" {PROMPT.text}")
    assert instruction(PROMPT, Arm.BASELINE) == PROMPT.text
    assert instruction(PROMPT, Arm.FEATURE, [sentence], position="append") == f"{PROMPT.text} {sentence}"


def test_two_people_in_one_request_are_told_apart():
    combined = instruction(PROMPT, Arm.FEATURE, [f"{OPENING} oval face.", f"{OPENING} long face."])
    assert combined == f"Maintain the first person's oval face. Maintain the second person's long face. {PROMPT.text}"


EDITOR = Spec(use="flux", version="1", parameters={"steps": 28, "guidance": 4.0})
BASE = records.request(editor=EDITOR)
FEATURE = replace(BASE, arm=Arm.FEATURE, instruction="Maintain the person's face. Do O-01.")


SWAPPED = replace(records.portrait(), image=records.portrait("other").image)


@pytest.mark.parametrize(
    ("other", "difference"),
    [
        (replace(FEATURE, seed=7), "seed: 0 and 7"),
        (replace(FEATURE, portraits=(records.portrait("p1"),)), "portrait: p0 and p1"),
        (replace(FEATURE, prompt=records.prompt("O-02")), "prompt: O-01 and O-02"),
        (replace(FEATURE, editor=replace(EDITOR, parameters={"steps": 50, "guidance": 4.0})), "steps: 28 and 50"),
        (replace(FEATURE, editor=replace(EDITOR, version="2")), "version of flux: 1 and 2"),
        (replace(FEATURE, editor=replace(EDITOR, use="qwen")), "editor: flux and qwen"),
        (replace(FEATURE, portraits=(SWAPPED,)), "the image of portrait p0"),
        (BASE, "the arm is baseline in both"),
    ],
)
def test_any_difference_but_the_arm_is_rejected_by_name(other: Request, difference: str):
    require_paired(BASE, FEATURE)
    assert list(differences(BASE, other)) == [difference]
    with pytest.raises(NotPaired, match="Run both arms in one audit"):
        require_paired(BASE, other)
