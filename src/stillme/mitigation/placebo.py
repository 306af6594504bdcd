"""The placebo: a sentence as long as the feature sentence that says nothing about the person.

It has the same number of words and of commas, and as nearly as its vocabulary allows the same number of characters. It
speaks of the request's own handling, so that there is nothing in it to draw. Which words are taken is drawn by portrait
and prompt: no single wording can be what acts.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from typing import Any

import numpy as np

from stillme.types import digest


def placebo(sentence: str, seed: str) -> str:
    """A neutral sentence as long as `sentence`; the same sentence and seed give the same words."""
    vocabulary = _Vocabulary(digest(["placebo", _words()["version"], sentence, seed]))
    opening: str = _words()["opening"]
    phrases = [phrase.split() for phrase in sentence.split(",")]
    # The opening stands for the first words of the first phrase, whatever they are.
    phrases[0] = phrases[0][len(opening.split()) :]
    made: list[str] = []
    surplus = len(opening) - len(" ".join(sentence.split()[: len(opening.split())]))
    for phrase in phrases:
        wanted = len(" ".join(phrase).rstrip(".")) - surplus
        draft = _phrase(len(phrase), wanted, vocabulary, conjunction=bool(made) and phrase[:1] == ["and"])
        surplus = len(draft) - wanted
        made.append(draft)
    return f"{opening} {', '.join(filter(None, made))}."


class _Vocabulary:
    """The words of one sentence, in drawn order; none is used twice while another is left."""

    def __init__(self, seed: str) -> None:
        self._dice = np.random.default_rng(int(seed, 16))
        self._left: dict[str, list[str]] = {}

    def take(self, kind: str, length: int | None = None) -> str:
        """The next word of a kind that is left, or of those the nearest in length."""
        if not self._left.get(kind):
            words: list[str] = _words()[kind]
            self._left[kind] = [words[place] for place in self._dice.permutation(len(words)).tolist()]
        left = self._left[kind]
        nearest = left[0] if length is None else min(left, key=lambda word: abs(len(word) - length))
        left.remove(nearest)
        return nearest

    def swap(self, kind: str, word: str, length: int) -> str:
        """Give a word back for the one nearest to that length."""
        self._left[kind].append(word)
        return self.take(kind, length)


def _phrase(count: int, length: int, vocabulary: _Vocabulary, *, conjunction: bool) -> str:
    """So many words, as near to so many characters as the vocabulary comes."""
    start = ["and"] if conjunction else []
    kinds = _kinds(count - len(start))
    words = [vocabulary.take(kind) for kind in kinds]
    for place, kind in enumerate(kinds):
        if missing := length - len(" ".join([*start, *words])):
            # Each word in turn makes up what is missing, as far as it can.
            words[place] = vocabulary.swap(kind, words[place], len(words[place]) + missing)
    return " ".join([*start, *words])


def _kinds(count: int) -> list[str]:
    """What each word of a phrase is: adjectives and nouns, linked, as in `usual order of plain handling`."""
    groups = max(1, (count + 1) // 3)
    # Every group has a noun, every one but the first a link before it; the rest are adjectives, spread evenly.
    spare = max(0, count - (2 * groups - 1))
    kinds: list[str] = []
    for group in range(groups):
        adjectives = spare // groups + (group < spare % groups)
        kinds += [*(["links"] if group else []), *(["adjectives"] * adjectives), "nouns"]
    return kinds[-count:] if count else []


@cache
def _words() -> Mapping[str, Any]:
    return tomllib.loads(files("stillme.mitigation").joinpath("placebo.toml").read_text("utf-8"))
