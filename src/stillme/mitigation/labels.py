"""Find demographic labels in a text: a feature sentence says what can be seen, never which group it is taken for.

    lint("Maintain the Black woman's black hair.")      # "Black" and "woman's", not "black"

Words, phrases and exceptions are data, in `labels.toml`; English only, which is why a sentence must also begin as the
paper's do. A colour is a label only where it colours a person.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any, Literal

Kind = Literal["ethnicity", "gender", "age"]

_WORD = re.compile(r"[^\W\d_]+(?:['’][^\W\d_]+)*")
_NEXT_WORD = re.compile(r"\s+([^\W\d_]+(?:['’-][^\W\d_]+)*['’]?)")
_PREDICATE = (
    r"(?<!\w)(?:person|individual|subject|someone|somebody|they|people|who)(?:\s+who)?\s*"
    r"(?:\s(?:is|are)|['’](?:s|re)|\s(?:appears?|looks?|seems?|presents?|reads?|identif(?:y|ies)))\s+"
    r"(?:to\s+be\s+|as\s+|like\s+)?(?:an?\s+)?(?:\w+ly\s+)?(?P<label>{colours})(?![\w-])(?!\s+hair)"
)
_SOON = 5
"""Words within which the thing that a colour colours must come."""
_SENTENCE_START = re.compile(r"(?:^|[.!?:;\n\"“(])\s*$")


@dataclass(frozen=True, slots=True, kw_only=True)
class Label:
    """A word or phrase that names a group."""

    kind: Kind
    word: str
    """As it stands in the text."""
    start: int
    """Where it begins, in characters from 0."""

    @property
    def end(self) -> int:
        """Where it ends."""
        return self.start + len(self.word)

    def __str__(self) -> str:
        return f"{self.word!r} at character {self.start + 1} names {_NAMES[self.kind]}"


_NAMES: Mapping[Kind, str] = {
    "ethnicity": "a race, ethnicity or nationality",
    "gender": "a gender",
    "age": "an age group",
}


def lint(text: str) -> tuple[Label, ...]:
    """Every demographic label in a text, in its order; none is the verdict that the text may be used."""
    return tuple(_outermost(sorted(_lexicon().labels(text), key=lambda label: (label.start, -label.end))))


def _outermost(labels: Iterable[Label]) -> Iterator[Label]:
    """Labels that do not lie inside an earlier one: `Asian` within `East Asian` is not told twice."""
    reached = -1
    for label in labels:
        if label.end > reached:
            yield label
            reached = label.end


class _Lexicon:
    """The data file, compiled."""

    def __init__(self, data: Mapping[str, Any]) -> None:
        ethnicity, age = data["ethnicity"], data["age"]
        old = rf"old(?![-\s]+(?:fashioned|style|time|school|{_any(age['old_things'])})\b)"
        self._plain: Mapping[Kind, re.Pattern[str]] = {
            "ethnicity": _whole(_inflected(ethnicity["words"]), _any(ethnicity["phrases"])),
            "gender": _whole(_inflected(data["gender"]["words"])),
            "age": _whole(_inflected(age["words"]), _any(age["phrases"]), old, *age["patterns"]),
        }
        self._places = _whole(_inflected(ethnicity["places"]), ignore_case=False)
        self._capitalised = _whole(_inflected(ethnicity["capitalised"]), ignore_case=False)
        self._allowed = _whole(_any(data["allowed"]["phrases"]))
        colour = data["colour"]
        colours = "|".join(colour["words"])
        self._colours = re.compile(rf"(?<![\w-])(?:{colours})s?(?![\w'’])", re.IGNORECASE)
        self._predicate = re.compile(_PREDICATE.format(colours=colours), re.IGNORECASE)
        self._colour: Mapping[str, frozenset[str]] = {name: frozenset(words) for name, words in colour.items()}

    def labels(self, text: str) -> list[Label]:
        plain = self._without_allowed(text, [*self._named(text), *self._inside_sentences(text)])
        return [*plain, *self._coloured(text, {label.start: label.kind for label in plain})]

    def _without_allowed(self, text: str, labels: Iterable[Label]) -> list[Label]:
        spans = [found.span() for found in self._allowed.finditer(text)]
        return [each for each in labels if not any(start <= each.start and each.end <= end for start, end in spans)]

    def _named(self, text: str) -> Iterator[Label]:
        for kind, pattern in self._plain.items():
            yield from (_label(kind, found) for found in pattern.finditer(text))
        yield from (_label("ethnicity", found) for found in self._places.finditer(text))

    def _inside_sentences(self, text: str) -> Iterator[Label]:
        """Words that are a label only with a capital which the start of a sentence does not explain."""
        for found in self._capitalised.finditer(text):
            if not _starts_sentence(text, found.start()):
                yield _label("ethnicity", found)

    def _coloured(self, text: str, labels: Mapping[int, Kind]) -> Iterator[Label]:
        for found in self._predicate.finditer(text):
            yield Label(kind="ethnicity", word=found["label"], start=found.start("label"))
        for found in self._colours.finditer(text):
            if self._colours_a_person(found, text, labels):
                yield _label("ethnicity", found)

    def _colours_a_person(self, found: re.Match[str], text: str, labels: Mapping[int, Kind]) -> bool:
        colour = found[0].casefold()
        if text.startswith("-", found.end()):
            joined = _WORD.match(text, found.end() + 1)
            word = joined[0].casefold() if joined else ""
            return word in self._colour["suffixes"] or (word == "skinned" and colour in self._colour["skin"])
        capital = found[0][0].isupper() and not _starts_sentence(text, found.start())
        if colour.endswith("s"):
            # The whites of the eyes are no people.
            return capital
        following = _words_up_to_punctuation(text, found.end())
        while following and (following[0][1] in self._colour["between"] or following[0][0] in labels):
            if labels.get(following[0][0]) in ("gender", "age"):
                return True
            following = following[1:]
        first, second = (following[place][1] if len(following) > place else "" for place in (0, 1))
        if first in self._colour["people"]:
            return True
        if first in self._colour["skin_nouns"] and colour in self._colour["skin"]:
            return second not in self._colour["skin_marks"]
        if not capital or (first and first not in self._colour["function_words"]):
            return False
        soon = _WORD.findall(text, found.end())[:_SOON]
        return not any(word.casefold() in self._colour["things"] for word in soon)


@cache
def _lexicon() -> _Lexicon:
    return _Lexicon(tomllib.loads(files("stillme.mitigation").joinpath("labels.toml").read_text("utf-8")))


def _label(kind: Kind, found: re.Match[str]) -> Label:
    return Label(kind=kind, word=found[0], start=found.start())


def _words_up_to_punctuation(text: str, start: int) -> list[tuple[int, str]]:
    """Where the words of this phrase after `start` begin, and the words in lower case without a possessive ending."""
    words: list[tuple[int, str]] = []
    while found := _NEXT_WORD.match(text, start):
        words.append((found.start(1), re.sub(r"['’]s?$", "", found[1].casefold())))
        start = found.end()
    return words


def _starts_sentence(text: str, start: int) -> bool:
    return bool(_SENTENCE_START.search(text[:start]))


def _whole(*alternatives: str, ignore_case: bool = True) -> re.Pattern[str]:
    joined = "|".join(filter(None, alternatives))
    return re.compile(rf"(?<![\w])(?:{joined})(?!\w)", re.IGNORECASE if ignore_case else 0)


def _any(phrases: Iterable[str]) -> str:
    """Longer ones first, so that the whole of a phrase is found; a space may be any space."""
    return "|".join(re.escape(phrase).replace(r"\ ", r"\s+") for phrase in sorted(phrases, key=len, reverse=True))


def _inflected(words: Iterable[str]) -> str:
    return "|".join(_forms(word) for word in sorted(words, key=len, reverse=True))


def _forms(word: str) -> str:
    plural = rf"{re.escape(word[:-1])}(?:y|ies)" if re.search(r"[^aeiou]y$", word) else rf"{re.escape(word)}(?:e?s)?"
    return rf"{plural}(?:['’]s?)?"
