"""The placebo: as long as the feature sentence, and about nobody."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from stillme.core.types import Arm, Prompt
from stillme.mitigation.arms import instruction, placebo
from stillme.mitigation.features import DIMENSIONS, OPENING, listed
from stillme.mitigation.labels import lint

PROMPT = Prompt(id="O-01", text="Dress the person as a doctor.", category="own", subcategory="own")
SEEN = "deep brown skin with warm undertones oval face broad nose short curly hair"
WORDS = st.sampled_from(SEEN.split())
PHRASES = st.lists(st.lists(WORDS, min_size=1, max_size=9).map(" ".join), min_size=1, max_size=7)


@given(phrases=PHRASES, seed=st.text(max_size=8))
def test_it_has_as_many_words_commas_and_nearly_as_many_characters(phrases: list[str], seed: str):
    sentence = f"{OPENING} {listed(phrases)}."
    text = placebo(sentence, seed)
    assert len(text.split()) == len(sentence.split())
    assert text.count(",") == sentence.count(",")
    assert abs(len(text) - len(sentence)) <= max(4, 0.1 * len(sentence))


@given(phrases=PHRASES, seed=st.text(max_size=8))
def test_it_passes_the_linter_and_names_no_feature(phrases: list[str], seed: str):
    text = placebo(f"{OPENING} {listed(phrases)}.", seed)
    assert lint(text) == ()
    words = set(text.casefold().replace(",", "").rstrip(".").split())
    assert not words & {"person's", "person", "skin", "face", "hair", "nose", *DIMENSIONS}


def test_the_same_request_has_the_same_words_and_another_has_others():
    sentence = f"{OPENING} deep brown skin with warm undertones, oval face, and black hair."
    assert placebo(sentence, "anna O-01") == placebo(sentence, "anna O-01")
    assert len({placebo(sentence, f"anna {number}") for number in range(20)}) == 20


def test_a_sentence_of_several_sentences_is_matched_too():
    sentence = f"{OPENING} oval face and black hair. Also maintain the nose (broad, with a low bridge)."
    assert len(placebo(sentence, "x").split()) == len(sentence.split())


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
