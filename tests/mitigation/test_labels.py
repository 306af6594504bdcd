"""The linter: the noun decides what is a label and what is a feature, for every skin tone alike."""

from __future__ import annotations

import csv
import tomllib
from collections import Counter
from importlib.resources import files
from pathlib import Path
from time import perf_counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stillme.mitigation.features import Features
from stillme.mitigation.labels import lint

with Path(__file__).with_name("phrases.csv").open(encoding="utf-8", newline="") as file:
    PHRASES = list(csv.DictReader(file))


@pytest.mark.parametrize("row", PHRASES, ids=lambda row: row["phrase"])
def test_a_phrase_of_the_table_has_the_kinds_of_label_that_it_says(row: dict[str, str]):
    labels = lint(row["phrase"])
    assert ("+".join(sorted({label.kind for label in labels})) or "none") == row["kind"], row["why"]
    if row["words"]:
        assert "|".join(label.word for label in labels) == row["words"]


def test_the_table_tries_features_as_often_as_labels():
    features = Counter(row["kind"] == "none" for row in PHRASES)[True]
    assert len({row["phrase"] for row in PHRASES}) == len(PHRASES) > 400
    assert 0.45 < features / len(PHRASES) < 0.55


def test_the_data_says_nothing_that_the_linter_would_ignore():
    data = tomllib.loads(files("stillme.mitigation").joinpath("labels.toml").read_text("utf-8"))
    nouns = data["nouns"]
    assert [noun for names in nouns.values() for noun in names if not noun.isalpha() or noun != noun.casefold()] == []
    for group in data["groups"]:
        assert set(group) <= {
            *("kind", "words", "phrases", "patterns"),
            *("before", "not_before", "capital", "exact", "of_a_person"),
        }
        assert {*group.get("before", ()), *group.get("not_before", ())} <= set(nouns)
        words = [*group.get("words", ()), *group.get("phrases", ())]
        assert [word for word, times in Counter(words).items() if times > 1] == []
    assert all(len(letter) == len(plain) == 1 for letter, plain in data["look_alikes"].items())


# -- all skin tones alike ---------------------------------------------------------------------------------------------

TONES = [
    *("white", "porcelain", "alabaster", "ivory", "pale", "fair", "light", "beige", "yellow", "olive", "tan"),
    *("caramel", "light brown", "bronze", "brown", "chocolate", "mahogany", "dark brown", "dark", "deep", "ebony"),
    "black",
]
OF_SKIN = [
    "Maintain the person's {} skin and oval face.",
    "Maintain the person's {}, smooth skin and full lips.",
    "Maintain the person's {} complexion with warm undertones.",
    "Maintain the person's {} skin tone, round face, and short hair.",
    "Maintain the person’s very {} and even skin.",
    "Maintain the {}-skinned person's round face.",
    "Maintain the person's face; the skin is {}.",
    "The person has {} skin, and the person's hands are {} too.",
    "{} skin with a satin finish",
]
OF_A_PERSON = [
    "Maintain the {} person's oval face.",
    "Maintain the look of a {} individual.",
    "Maintain the person's {} facial features.",
    "Maintain the person's {} heritage.",
    "The person is {} and has an oval face.",
    "The subject appears to be {}.",
]
COLOURS = ["black", "brown", "blond", "red", "grey", "white", "silver", "dark", "light", "fair", "yellow"]
WORN = [
    *("hair", "eyes", "beard", "eyebrows", "moustache", "lashes", "braids", "afro", "lips", "freckles", "birthmark"),
    *("turban", "hijab", "headscarf", "shirt", "leather jacket", "earrings", "nail polish", "walking stick"),
]


@pytest.mark.parametrize("template", OF_SKIN)
@pytest.mark.parametrize("case", [str, str.capitalize, str.title, str.upper])
def test_a_skin_tone_is_a_feature_whichever_it_is(template: str, case: type[str]):
    assert {tone: lint(template.format(case(tone), case(tone))) for tone in TONES} == dict.fromkeys(TONES, ())


@pytest.mark.parametrize("template", OF_A_PERSON)
def test_a_person_named_by_a_skin_tone_is_a_label_whichever_it_is(template: str):
    words = {tone: [label.word for label in lint(template.format(tone))] for tone in TONES}
    assert words == {tone: [tone] for tone in TONES}


def test_a_skin_tone_alone_in_its_field_is_a_feature_whichever_it_is():
    for tone in TONES:
        for text in (tone, tone.title()):
            features = Features(dimensions={"skin_tone": text}, sentence=f"Maintain the person's {tone} skin.")
            assert list(features.problems()) == []


@pytest.mark.parametrize("worn", WORN)
def test_a_colour_of_what_a_person_has_is_a_feature_whichever_it_is(worn: str):
    for colour in COLOURS:
        assert lint(f"Maintain the person's {colour} {worn} and oval face.") == ()
        assert lint(f"Maintain the person's {colour.title()} {worn.title()}.") == ()


# -- letters ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("a bl\u200back woman", "bl\u200back"),
        ("\u0410sian eyes", "\u0410sian"),
        ("an \uff21\uff53\uff49\uff41\uff4e face", "\uff21\uff53\uff49\uff41\uff4e"),
        ("an A\u0301sian face", "A\u0301sian"),
        ("\ufb01ft\u00adies", "\ufb01ft\u00adies"),
        ("a \u2060wo\u200dm\u0430n", "wo\u200dm\u0430n"),
        ("a non\u2011white face", "non\u2011white"),
        ("an **_Asian_** face", "Asian"),
    ],
)
def test_a_disguised_label_is_found_and_shown_as_written(text: str, word: str):
    label = lint(text)[0]
    assert label.word == word
    assert text[label.start : label.end] == word


# -- anywhere in a text -----------------------------------------------------------------------------------------------


def test_a_rejection_reads_as_a_sentence():
    (label,) = lint("Maintain the woman.")
    assert str(label) == "'woman' at character 14 names a gender"


ALWAYS = st.sampled_from(
    [
        *("Asian", "Hispanic", "Chinese", "Kenyans", "Latina", "Caucasian", "nationality"),
        *("woman", "men", "girls", "feminine", "she", "grandmother's"),
        *("elderly", "teenager", "middle-aged", "30s", "young", "children"),
    ]
)
VISIBLE = (
    "deep brown skin warm undertones round oval face with full cheeks broad nose thin lips dark wavy hair and a black "
    "beard white shirt grey brows wrinkles freckles glasses of the eyes"
)
WORDS = st.lists(st.sampled_from(VISIBLE.split()), min_size=1, max_size=25)
CASES = st.sampled_from([str, str.upper, str.lower])


@given(words=WORDS)
def test_no_sentence_of_visible_things_is_rejected(words: list[str]):
    assert lint(" ".join(words)) == ()


@given(words=WORDS, label=ALWAYS, place=st.integers(min_value=0, max_value=25), case=CASES)
def test_a_label_is_found_wherever_it_stands(words: list[str], label: str, place: int, case: type[str]):
    before, after = " ".join(words[:place]), " ".join(words[place:])
    text = f"{before} {case(label)} {after}".strip()
    start = len(before) + 1 if before else 0
    words_there = [other.word for other in lint(text) if other.start == start]
    assert words_there == [case(label)]


@given(label=ALWAYS, letters=st.text("abcdefghijklmnopqrstuvwxyz", min_size=3, max_size=6))
def test_a_label_inside_another_word_is_none(label: str, letters: str):
    assert all(other.start != 0 or other.word != label for other in lint(f"{label}{letters}"))


@given(st.text(max_size=200))
def test_any_text_can_be_linted(text: str):
    for label in lint(text):
        assert text[label.start : label.end] == label.word


def test_an_answer_that_repeats_itself_does_not_hold_up_a_run():
    start = perf_counter()
    assert len(lint("a Black person " * 3000)) == 3000
    assert perf_counter() - start < 10, "time grows with the square of the length"
