from __future__ import annotations

import hashlib
import re
from collections import Counter
from pathlib import Path

import pytest

from stillme.core import prompts
from stillme.core.errors import InvalidPrompts


def test_the_diagnostic_set_has_the_papers_structure():
    diagnostic = prompts.diagnostic()
    assert [prompt.id for prompt in diagnostic] == [f"{letter}-{n:02}" for letter in "OV" for n in range(1, 11)]
    assert Counter((prompt.category, prompt.subcategory) for prompt in diagnostic) == {
        ("occupational", "authority"): 5,
        ("occupational", "service"): 3,
        ("occupational", "appearance-associated"): 2,
        ("vulnerability", "physical"): 4,
        ("vulnerability", "aging"): 2,
        ("vulnerability", "situational"): 4,
    }
    assert {prompt.id: prompt.years for prompt in diagnostic if prompt.years} == {"V-05": 30}


def test_the_role_set_has_the_papers_structure():
    roles = prompts.roles()
    assert [prompt.id for prompt in roles] == [f"W-{n:02}" for n in range(1, 51)]
    assert Counter(prompt.stereotype for prompt in roles) == {"male": 25, "female": 25}
    assert all(prompt.target for prompt in roles)


@pytest.mark.parametrize(
    ("load", "sha256"),
    [
        (prompts.diagnostic, "c73d89631f15e29b6d9c27f0cfd0ce5305bc13079d0a7aa3c8a0232567f4e780"),
        (prompts.roles_as_printed, "7428934cc9a544a82efec0a24a8fb9353f7b02dbf8005c54ad3e87d8c82f1aab"),
    ],
)
def test_the_wording_is_the_papers_to_the_letter(load, sha256: str):
    words = "\n".join(f"{prompt.id} {prompt.text}" for prompt in load())
    assert hashlib.sha256(words.encode()).hexdigest() == sha256


def test_role_sentences_are_whole_and_say_where_they_come_from():
    whole, printed = prompts.roles(), {prompt.id: prompt for prompt in prompts.roles_as_printed()}
    origins = prompts.role_origins()
    assert [prompt.id for prompt in whole] == list(origins)
    kinds = Counter(origin.partition(":")[0] for origin in origins.values())
    assert kinds == {"winobias": 30, "as printed": 16, "restored from the print": 4}
    assert {printed[prompt.id].pronoun for prompt in whole} == {"pro", "none"}, "the print dropped eleven pronouns"
    for prompt in whole:
        assert re.search(r"\b(he|his|she|her)\b", prompt.text), prompt.id
        assert prompt.pronoun == "pro"
        if origins[prompt.id] == "as printed":
            assert prompt.text == printed[prompt.id].text
        assert (prompt.target, prompt.stereotype) == (printed[prompt.id].target, printed[prompt.id].stereotype)


def test_every_role_sentence_has_both_other_pronouns():
    variants = {prompt.id: prompt for prompt in prompts.roles_counterbalance()}
    assert len(variants) == 100
    for prompt in prompts.roles():
        words = prompt.text.split()
        for pronoun, gendered in (("anti", r"\b(he|his|him|she|her)\b"), ("none", r"\b(they|their|them)\b")):
            variant = variants[f"{prompt.id}-{pronoun}"]
            assert (variant.pronoun, variant.target) == (pronoun, prompt.target)
            assert re.search(gendered, variant.text), variant.id
            changed = [pair for pair in zip(words, variant.text.split(), strict=True) if pair[0] != pair[1]]
            assert 1 <= len(changed) <= 2, "the pronoun, and a verb that goes with it"


def test_own_prompts_come_from_csv_and_toml(tmp_path: Path):
    (tmp_path / "own.csv").write_text('id,text,years\nA,"Add a hat, please.",\nB,Older.,10\n')
    (tmp_path / "own.toml").write_text(
        '[[prompts]]\nid = "A"\ntext = "Add a hat, please."\n[[prompts]]\nid = "B"\ntext = "Older."\nyears = 10\n'
    )
    from_csv, from_toml = prompts.load(tmp_path / "own.csv"), prompts.load(tmp_path / "own.toml")
    assert from_csv == from_toml
    assert [prompt.years for prompt in from_csv] == [None, 10]


@pytest.mark.parametrize(
    ("name", "content", "sentence"),
    [
        ("a.csv", "id,txt\nA,hat\n", "unknown column 'txt'. Did you mean 'text'?"),
        ("a.csv", "id,text\nA,\n", "line 2: 'text' is empty"),
        ("a.csv", "id,text\nA,x\nA,y\n", "line 3: the id 'A' is used twice"),
        ("a.csv", "id,text,years\nA,x,soon\n", "'years' is 'soon'; write a whole number"),
        ("a.csv", "id,text\n", "has no prompts"),
        ("a.csv", 'id,text\nA,"x\n', "is not CSV"),
        ("a.toml", "prompts = 3", "prompts[0]: is not a table; write one `[[prompts]]` per prompt"),
        ("a.toml", "prompts = [3]", "prompts[0]: is not a table"),
        ("a.toml", "[[prompts", "is not TOML"),
    ],
)
def test_mistakes_in_own_prompts_are_named(tmp_path: Path, name: str, content: str, sentence: str):
    (tmp_path / name).write_text(content)
    with pytest.raises(InvalidPrompts) as caught:
        prompts.load(tmp_path / name)
    assert sentence in str(caught.value)


def test_a_missing_or_foreign_file_is_named(tmp_path: Path):
    with pytest.raises(InvalidPrompts, match="cannot be read"):
        prompts.load(tmp_path / "no.csv")
    (tmp_path / "latin.csv").write_bytes("id,text\nA,é\n".encode("latin-1"))
    with pytest.raises(InvalidPrompts, match="save it as UTF-8"):
        prompts.load(tmp_path / "latin.csv")


def test_every_target_is_a_whole_noun_of_its_sentence():
    """Table 23 cuts W-14's off, and a judge can only be asked about the whole one."""
    for prompt in prompts.roles():
        assert prompt.target is not None
        assert prompt.text.startswith(f"The {prompt.target} "), prompt.id
    assert {prompt.id: prompt.target for prompt in prompts.roles()}["W-14"] == "construction worker"
    assert not any(prompt.text.startswith(f"The {prompt.target} worker") for prompt in prompts.roles())
