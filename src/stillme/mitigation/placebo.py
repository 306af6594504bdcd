"""The placebo: a sentence as long as the feature sentence that says nothing about the person.

It has the same number of words and commas, and as nearly as its vocabulary allows the same number of characters. It
speaks of how the request is handled, so there is nothing in it to draw. Its words are drawn anew for every portrait and
prompt, so that no single wording can cause an effect.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from typing import Any

import numpy as np

from stillme.core.types import digest


def placebo(sentence: str, seed: str) -> str:
    """A neutral sentence as long as `sentence`; the same sentence and seed give the same words."""
    vocabulary = _Vocabulary(digest(["placebo", _words()["version"], sentence, seed]))
    opening: str = _words()["opening"]
    phrases = [phrase.split() for phrase in sentence.split(",")]
    # The opening replaces the first words of the first phrase.
    phrases[0] = phrases[0][len(opening.split()) :]
    drafts: list[str] = []
    surplus = len(opening) - len(" ".join(sentence.split()[: len(opening.split())]))
    for phrase in phrases:
        wanted = len(" ".join(phrase).rstrip(".")) - surplus
        draft = _phrase(len(phrase), wanted, vocabulary, conjunction=bool(drafts) and phrase[:1] == ["and"])
        surplus = len(draft) - wanted
        drafts.append(draft)
    return f"{opening} {', '.join(filter(None, drafts))}."


class _Vocabulary:
    """The words of one sentence, in random order; none is used twice while another is unused."""

    def __init__(self, seed: str) -> None:
        self._generator = np.random.default_rng(int(seed, 16))
        self._unused: dict[str, list[str]] = {}

    def take(self, kind: str, length: int | None = None) -> str:
        """The next unused word of a kind, or the one nearest to a length."""
        if not self._unused.get(kind):
            words: list[str] = _words()[kind]
            self._unused[kind] = [words[place] for place in self._generator.permutation(len(words)).tolist()]
        unused = self._unused[kind]
        chosen = unused[0] if length is None else min(unused, key=lambda word: abs(len(word) - length))
        unused.remove(chosen)
        return chosen

    def swap(self, kind: str, word: str, length: int) -> str:
        """Exchange a word for the one nearest to that length."""
        self._unused[kind].append(word)
        return self.take(kind, length)


def _phrase(count: int, length: int, vocabulary: _Vocabulary, *, conjunction: bool) -> str:
    """`count` words, as near to `length` characters as the vocabulary allows."""
    start = ["and"] if conjunction else []
    kinds = _kinds(count - len(start))
    words = [vocabulary.take(kind) for kind in kinds]
    for place, kind in enumerate(kinds):
        if missing := length - len(" ".join([*start, *words])):
            # Each word in turn makes up for the missing characters, as far as it can.
            words[place] = vocabulary.swap(kind, words[place], len(words[place]) + missing)
    return " ".join([*start, *words])


def _kinds(count: int) -> list[str]:
    """The kind of each word of a phrase: adjectives and nouns, linked, as in `usual order of plain handling`."""
    groups = max(1, (count + 1) // 3)
    # Every group has a noun, and all but the first a link before it; the rest are adjectives, spread evenly.
    spare = max(0, count - (2 * groups - 1))
    kinds: list[str] = []
    for group in range(groups):
        adjectives = spare // groups + (group < spare % groups)
        kinds += [*(["links"] if group else []), *(["adjectives"] * adjectives), "nouns"]
    return kinds[-count:] if count else []


@cache
def _words() -> Mapping[str, Any]:
    return tomllib.loads(files("stillme.mitigation").joinpath("placebo.toml").read_text("utf-8"))
