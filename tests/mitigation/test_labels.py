"""The linter: words for groups are labels, colours of things are not."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stillme.mitigation import lint

CLEAN = [
    "Maintain the person's deep brown skin with warm undertones, round face, broad nose, full lips, and braided hair.",
    "Maintain the person's fair, reddish skin tone, short salt-and-pepper wavy hair, thin lips, and deep laugh lines.",
    "white shirt, black hair, brown eyes, white background",
    "Black, tightly coiled hair; white teeth; a white beard",
    "The person is black-haired and wears white-framed glasses.",
    "medium brown skin, light brown hair with yellow highlights",
    "short hair in a man bun, or in French braids and baby hairs along the hairline",
    "an old scar under the left eye, age spots, crow's feet, signs of aging",
    "an aquiline nose, like a Greek nose, and the whites of the eyes clearly visible",
    "white skin patches around the mouth and a black skin tag",
    "human mandible, whereas shell theory, message, brace, trace, Germanium, blackberry, shepherd, chapped lips",
    "glasses of the 1970s with nail polish",
    "a hint of color on the lips",
    "an afro and afro-textured brows",
    "Short Black Hair",
    "a full, Black, coily beard",
    "minor scarring, major freckles, manicured brows",
]

LABELLED = [
    ("Keep this Black woman's look.", ["Black", "woman's"]),
    ("an Indian face", ["Indian"]),
    ("East Asian eyes", ["East Asian"]),
    ("of Nigerian descent", ["Nigerian", "descent"]),
    ("middle-aged man with glasses", ["middle-aged", "man"]),
    ("a person in the mid-30s", ["mid-30s"]),
    ("looks like a 50-year-old", ["50-year-old"]),
    ("forty-something, or aged 45", ["forty-something", "aged 45"]),
    ("her dark eyes and his beard", ["her", "his"]),
    ("an elderly person's wrinkles", ["elderly"]),
    ("youthful skin", ["youthful"]),
    ("an old face", ["old"]),
    ("a white elderly person", ["white", "elderly"]),
    ("a person who appears to be white", ["white"]),
    ("The person is Black.", ["Black"]),
    ("white skin", ["white"]),
    ("a white-presenting face", ["white-presenting"]),
    ("non-white", ["non-white"]),
    ("a person of color", ["person of color"]),
    ("Maintain the person's Black identity", ["Black"]),
    ("feminine features, androgynous style", ["feminine", "androgynous"]),
    ("a teenager from Turkey", ["teenager", "Turkey"]),
    ("Mediterranean complexion", ["Mediterranean"]),
    ("typical Middle Eastern features", ["Middle Eastern"]),
    ("an Asian-looking face", ["Asian"]),
    ("the Polish look", ["Polish"]),
    ("almond-shaped eyes with mature characteristics", ["mature"]),
    ("ladies’ hat", ["ladies’"]),
]


@pytest.mark.parametrize("text", CLEAN)
def test_what_can_be_seen_passes(text: str):
    assert lint(text) == ()


@pytest.mark.parametrize(("text", "words"), LABELLED)
def test_a_label_is_named_with_its_place(text: str, words: list[str]):
    labels = lint(text)
    reported = [label.word for label in labels]
    assert [text[label.start : label.end] for label in labels] == reported
    assert all(any(word.startswith(label) for label in reported) for word in words), reported
    assert len(labels) == len(words)


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
VISIBLE = [
    *(
        "deep",
        "brown",
        "skin",
        "warm",
        "undertones",
        "round",
        "oval",
        "face",
        "with",
        "full",
        "cheeks",
        "broad",
        "nose",
    ),
    *(
        "thin",
        "lips",
        "dark",
        "wavy",
        "hair",
        "and",
        "a",
        "black",
        "beard",
        "white",
        "shirt",
        "grey",
        "brows",
        "wrinkles",
    ),
    *("freckles", "glasses", "of", "the", "eyes"),
]
WORDS = st.lists(st.sampled_from(VISIBLE), min_size=1, max_size=25)
CASES = st.sampled_from([str, str.upper, str.lower])


@given(words=WORDS)
def test_no_sentence_of_visible_things_is_rejected(words: list[str]):
    # "white" or "black" before "skin" is the one thing these words can say that names a group.
    text = " ".join(words).replace("black skin", "skin").replace("white skin", "skin")
    assert lint(text) == ()


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
