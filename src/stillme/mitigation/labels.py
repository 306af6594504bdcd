"""Find demographic labels in a text: a feature sentence describes what can be seen, and names no group.

    lint("Maintain the Black woman's black hair.")      # "Black" and "woman's", not "black"

The noun decides: a colour of skin, hair or cloth is a feature, a colour of a person is a label; a "Swiss watch" is a
thing, a "Swiss face" a people's. Words, nouns and look-alike letters are data, in `labels.toml`. They are English only,
so a sentence must also begin as the paper's do.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from itertools import islice
from typing import Any, Literal

from stillme.core.files import packaged_toml

Kind = Literal["ethnicity", "gender", "age"]

_WORD = re.compile(r"[^\W\d_]+(?:'[^\W\d_]+)*")
_NEXT_WORD = re.compile(r"(?:\s+|[-/])([^\W_]+)('s?)?")
_PHRASE_WORDS = 8
"""A noun that a word describes follows within so many words."""
_NEARBY_WORDS = 5
"""A colour without a noun of its own may still describe one that follows within so many words."""
_BEFORE = 100
"""Characters before a word that can name its noun."""
_SENTENCE_START = re.compile(r"(?:^|[.!?:;\n\"“(])\s*$")
_AFTER_LOWER_CASE = re.compile(r"(?<![\w'-])[a-z][\w'-]*,?\s+$")
_SUBJECT = re.compile(r"(\w+)\s+(?:is|are)\s+(?:\w+\s+)?$")
"""What a colour describes: "the skin is Black"."""
_OF_PEOPLE = frozenset({"people", "belonging"})
"""Nouns of `labels.toml` that stand for a person or a people; the others stand for what a person has."""
_UNSEEN = frozenset({"Mn", "Me", "Cf"})
"""Unicode categories: accents and other marks, zero-width and format characters."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Label:
    """A word or phrase that names a group."""

    kind: Kind
    word: str
    """As written in the text."""
    start: int
    """The offset of its first character."""

    @property
    def end(self) -> int:
        """The offset after its last character."""
        return self.start + len(self.word)

    def __str__(self) -> str:
        return f"{self.word!r} at character {self.start + 1} names {_NAMES[self.kind]}"


_NAMES: Mapping[Kind, str] = {
    "ethnicity": "a race, ethnicity or nationality",
    "gender": "a gender",
    "age": "an age group",
}


def lint(text: str) -> tuple[Label, ...]:
    """Every demographic label in a text, in order; a text without labels may be used."""
    lexicon = _lexicon()
    plain, offsets = _plain(text, lexicon.look_alikes)
    labels: list[Label] = []
    for kind, match in lexicon.matches(plain):
        start, end = offsets[match.start()], offsets[match.end() - 1] + 1
        labels.append(Label(kind=kind, word=text[start:end], start=start))
    return tuple(_outermost(sorted(labels, key=lambda label: (label.start, -label.end))))


def _plain(text: str, look_alikes: Mapping[str, str]) -> tuple[str, list[int]]:
    """The text as it reads, in plain letters, and the offset in `text` of each of its characters."""
    letters: list[str] = []
    offsets: list[int] = []
    for offset, character in enumerate(text):
        for letter in unicodedata.normalize("NFKD", character):
            if unicodedata.category(letter) not in _UNSEEN:
                letters.append(look_alikes.get(letter, letter))
                offsets.append(offset)
    return "".join(letters), offsets


def _outermost(labels: Iterable[Label]) -> Iterator[Label]:
    """Drop labels inside an earlier one: `Asian` within `East Asian` is not reported twice."""
    covered = -1
    for label in labels:
        if label.end > covered:
            yield label
            covered = label.end


class _Group:
    """Words that name a group under the same conditions: a `[[groups]]` table of the data file."""

    def __init__(self, data: Mapping[str, Any]) -> None:
        self.kind: Kind = data["kind"]
        self.before = frozenset[str](data.get("before", ()))
        self.not_before = frozenset[str](data.get("not_before", ()))
        self.capital: bool = data.get("capital", False)
        self.of_a_person: bool = data.get("of_a_person", False)
        self.pattern = _whole(
            "|".join(map(_forms, sorted(data.get("words", ()), key=len, reverse=True))),
            _any(data.get("phrases", ())),
            *data.get("patterns", ()),
            ignore_case=not (self.capital or data.get("exact", False)),
        )


class _Lexicon:
    """The data file, compiled."""

    def __init__(self, data: Mapping[str, Any]) -> None:
        self.look_alikes: Mapping[str, str] = data["look_alikes"]
        self._groups = [_Group(group) for group in data["groups"]]
        self._nouns: Mapping[str, frozenset[str]] = {name: frozenset(nouns) for name, nouns in data["nouns"].items()}
        self._ends = frozenset[str](data["phrase"]["ends"])
        self._predicate = re.compile(rf"{data['phrase']['predicate']}$", re.IGNORECASE)
        self._allowed = _whole(_any(data["allowed"]["phrases"]))

    def matches(self, text: str) -> Iterator[tuple[Kind, re.Match[str]]]:
        """The labels of a text in plain letters."""
        allowed = [match.span() for match in self._allowed.finditer(text)]
        for group in self._groups:
            for match in group.pattern.finditer(text):
                inside = any(start <= match.start() and match.end() <= end for start, end in allowed)
                if not inside and self._names_a_group(group, match, text):
                    yield group.kind, match

    def _names_a_group(self, group: _Group, match: re.Match[str], text: str) -> bool:
        if group.capital and _SENTENCE_START.search(_before(match, text)):
            return False
        # "the Indian's watch": the owner is a person.
        described = frozenset[str]() if "'" in match[0] else self._described(text, match.end())
        if not group.before:
            return not described & group.not_before
        if described:
            return bool(described & group.before) and not self._continues(text, match.end())
        return group.of_a_person and self._says_what_a_person_is(match, text)

    def _continues(self, text: str, end: int) -> bool:
        """Whether a word goes on after a hyphen, as another word: `deep-set`, but not `white-presenting`."""
        following = _NEXT_WORD.match(text, end)
        return bool(following and text[end] == "-" and not self._kinds(following[1].casefold()))

    def _described(self, text: str, start: int) -> frozenset[str]:
        """The kinds of the noun that a word ending at `start` describes; none if its phrase has no such noun."""
        described = frozenset[str]()
        for _ in range(_PHRASE_WORDS):
            match = _NEXT_WORD.match(text, start)
            if match is None or match[1].casefold() in self._ends:
                break
            kinds = self._kinds(match[1].casefold())
            # Of a compound the last noun counts: an "Indian nose ring" is a ring. A "white bearded person" has a beard.
            if described and (not kinds or kinds & _OF_PEOPLE):
                break
            described = kinds
            # "an Italian chef's hat": the word describes the owner.
            if match[2] or kinds & _OF_PEOPLE:
                break
            start = match.end()
        return described

    def _kinds(self, noun: str) -> frozenset[str]:
        forms = {noun, noun.removesuffix("s"), noun.removesuffix("es")}
        return frozenset(name for name, nouns in self._nouns.items() if forms & nouns)

    def _says_what_a_person_is(self, match: re.Match[str], text: str) -> bool:
        """`The person is black`, `reads as Black and`; not `the skin is Black` or `a Black, coily beard`."""
        following = _NEXT_WORD.match(text, match.end())
        if following and following[1].casefold() not in self._ends:
            return False
        before = _before(match, text)
        if self._predicate.search(before):
            return True
        # A capital after a capital is a title's: "Dark Brown, Wavy".
        if not (match[0][0].isupper() and _AFTER_LOWER_CASE.search(before)):
            return False
        subject = _SUBJECT.search(before)
        nearby = [word[0] for word in islice(_WORD.finditer(text, match.end()), _NEARBY_WORDS)]
        nouns = [*nearby, subject[1]] if subject else nearby
        return not any(self._kinds(noun.casefold()) - _OF_PEOPLE for noun in nouns)


@cache
def _lexicon() -> _Lexicon:
    return _Lexicon(packaged_toml("stillme.mitigation", "labels.toml"))


def _before(match: re.Match[str], text: str) -> str:
    return text[max(0, match.start() - _BEFORE) : match.start()]


def _whole(*alternatives: str, ignore_case: bool = True) -> re.Pattern[str]:
    joined = "|".join(filter(None, alternatives))
    return re.compile(rf"(?<!\w)(?:{joined})(?!\w)", re.IGNORECASE if ignore_case else 0)


def _any(phrases: Iterable[str]) -> str:
    """Longest first, so that a whole phrase matches; a space matches any whitespace."""
    return "|".join(re.escape(phrase).replace(r"\ ", r"\s+") for phrase in sorted(phrases, key=len, reverse=True))


def _forms(word: str) -> str:
    plural = rf"{re.escape(word[:-1])}(?:y|ies)" if re.search(r"[^aeiou]y$", word) else rf"{re.escape(word)}(?:e?s)?"
    return rf"{plural}(?:'s?)?"
