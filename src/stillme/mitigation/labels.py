"""Find demographic labels in a text: a feature sentence describes what can be seen, and names no group.

    lint("Maintain the Black woman's black hair.")      # "Black" and "woman's", not "black"

Words, phrases and exceptions are data, in `labels.toml`. They are English only, so a sentence must also begin as the
paper's do. A colour is a label only where it describes a person.
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
_NEARBY_WORDS = 5
"""The thing that a colour describes must follow within so many words."""
_SENTENCE_START = re.compile(r"(?:^|[.!?:;\n\"“(])\s*$")


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
    return tuple(_outermost(sorted(_lexicon().labels(text), key=lambda label: (label.start, -label.end))))


def _outermost(labels: Iterable[Label]) -> Iterator[Label]:
    """Drop labels inside an earlier one: `Asian` within `East Asian` is not reported twice."""
    covered = -1
    for label in labels:
        if label.end > covered:
            yield label
            covered = label.end


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
        allowed = [match.span() for match in self._allowed.finditer(text)]
        return [
            label for label in labels if not any(start <= label.start and label.end <= end for start, end in allowed)
        ]

    def _named(self, text: str) -> Iterator[Label]:
        for kind, pattern in self._plain.items():
            yield from (_label(kind, match) for match in pattern.finditer(text))
        yield from (_label("ethnicity", match) for match in self._places.finditer(text))

    def _inside_sentences(self, text: str) -> Iterator[Label]:
        """Words that are a label only when capitalised, and not merely because they start a sentence."""
        for match in self._capitalised.finditer(text):
            if not _starts_sentence(text, match.start()):
                yield _label("ethnicity", match)

    def _coloured(self, text: str, labels: Mapping[int, Kind]) -> Iterator[Label]:
        for match in self._predicate.finditer(text):
            yield Label(kind="ethnicity", word=match["label"], start=match.start("label"))
        for match in self._colours.finditer(text):
            if self._describes_a_person(match, text, labels):
                yield _label("ethnicity", match)

    def _describes_a_person(self, match: re.Match[str], text: str, labels: Mapping[int, Kind]) -> bool:
        colour = match[0].casefold()
        if text.startswith("-", match.end()):
            joined = _WORD.match(text, match.end() + 1)
            word = joined[0].casefold() if joined else ""
            return word in self._colour["suffixes"] or (word == "skinned" and colour in self._colour["skin"])
        capitalised = match[0][0].isupper() and not _starts_sentence(text, match.start())
        if colour.endswith("s"):
            # The whites of the eyes are not people.
            return capitalised
        following = _words_up_to_punctuation(text, match.end())
        while following and (following[0][1] in self._colour["between"] or following[0][0] in labels):
            if labels.get(following[0][0]) in ("gender", "age"):
                return True
            following = following[1:]
        first, second = (following[place][1] if len(following) > place else "" for place in (0, 1))
        if first in self._colour["people"]:
            return True
        if first in self._colour["skin_nouns"] and colour in self._colour["skin"]:
            return second not in self._colour["skin_marks"]
        if not capitalised or (first and first not in self._colour["function_words"]):
            return False
        nearby = _WORD.findall(text, match.end())[:_NEARBY_WORDS]
        return not any(word.casefold() in self._colour["things"] for word in nearby)


@cache
def _lexicon() -> _Lexicon:
    return _Lexicon(tomllib.loads(files("stillme.mitigation").joinpath("labels.toml").read_text("utf-8")))


def _label(kind: Kind, match: re.Match[str]) -> Label:
    return Label(kind=kind, word=match[0], start=match.start())


def _words_up_to_punctuation(text: str, start: int) -> list[tuple[int, str]]:
    """The words of this phrase after `start`: offset, and the word in lower case without a possessive ending."""
    words: list[tuple[int, str]] = []
    while match := _NEXT_WORD.match(text, start):
        words.append((match.start(1), re.sub(r"['’]s?$", "", match[1].casefold())))
        start = match.end()
    return words


def _starts_sentence(text: str, start: int) -> bool:
    return bool(_SENTENCE_START.search(text[:start]))


def _whole(*alternatives: str, ignore_case: bool = True) -> re.Pattern[str]:
    joined = "|".join(filter(None, alternatives))
    return re.compile(rf"(?<![\w])(?:{joined})(?!\w)", re.IGNORECASE if ignore_case else 0)


def _any(phrases: Iterable[str]) -> str:
    """Longest first, so that a whole phrase matches; a space matches any whitespace."""
    return "|".join(re.escape(phrase).replace(r"\ ", r"\s+") for phrase in sorted(phrases, key=len, reverse=True))


def _inflected(words: Iterable[str]) -> str:
    return "|".join(_forms(word) for word in sorted(words, key=len, reverse=True))


def _forms(word: str) -> str:
    plural = rf"{re.escape(word[:-1])}(?:y|ies)" if re.search(r"[^aeiou]y$", word) else rf"{re.escape(word)}(?:e?s)?"
    return rf"{plural}(?:['’]s?)?"
