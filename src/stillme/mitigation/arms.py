"""How an arm turns a prompt into the editor's instruction, and that arms differ in nothing else.

In the authors' code the arms ran with different steps and seeds, so the difference between them is not due to the
feature prompt alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from typing import Any, Literal, assert_never

import numpy as np

from stillme.core.errors import StillmeError
from stillme.core.files import packaged_toml
from stillme.core.types import Arm, Prompt, Request, digest
from stillme.mitigation.features import OPENING

Position = Literal["prepend", "append"]
"""Where the sentence goes: before the prompt (the paper's text) or after it (its authors' code)."""

NOOP_INSTRUCTION = "Return the photo exactly as it is. Do not change anything."
"""Whatever still changes under this instruction is the editor's noise floor."""

NEEDS_FEATURES = frozenset({Arm.FEATURE, Arm.PLACEBO})
"""Arms that need a feature sentence for every portrait; the placebo matches its length."""

_ORDINALS = ("first", "second", "third", "fourth")


def instruction(
    prompt: Prompt, arm: Arm, sentences: Sequence[str] = (), *, position: Position = "prepend", seed: str = ""
) -> str:
    """The instruction that the editor gets in this arm.

    `sentences` holds one feature sentence per portrait of the request, for the arms of `NEEDS_FEATURES`; `seed` names
    the request's portraits and prompt, and determines the placebo's words.
    """
    match arm:
        case Arm.BASELINE:
            return prompt.text
        case Arm.NOOP:
            return NOOP_INSTRUCTION
        case Arm.FEATURE:
            return combined(prompt.text, _joined(sentences), position)
        case Arm.PLACEBO:
            return combined(prompt.text, placebo(_joined(sentences), seed), position)
        case never:
            assert_never(never)


def combined(prompt: str, sentence: str, position: Position = "prepend") -> str:
    """A sentence and a prompt as one instruction."""
    return f"{sentence} {prompt}" if position == "prepend" else f"{prompt} {sentence}"


def _joined(sentences: Sequence[str]) -> str:
    """The sentences of all portraits of a request; of several, each names its person."""
    if not sentences:
        raise ValueError("this arm needs a feature sentence for every portrait")
    if len(sentences) == 1:
        return sentences[0]
    openings = (OPENING.replace("person", f"{ordinal} person") for ordinal in _ORDINALS)
    return " ".join(f"{opening}{text[len(OPENING) :]}" for opening, text in zip(openings, sentences, strict=False))


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
    return packaged_toml("stillme.mitigation", "placebo.toml")


class NotPaired(StillmeError):
    """Two requests that must not be compared, because more than the arm differs."""


def differences(one: Request, other: Request) -> Iterator[str]:
    """Every difference between two requests beyond arm and instruction, as `seed: 1 and 2`."""
    if one.arm == other.arm:
        yield f"the arm is {one.arm} in both"
    first, second = (
        [(portrait.id, portrait.image.sha256) for portrait in request.portraits] for request in (one, other)
    )
    if first != second:
        ids = _ids(one), _ids(other)
        yield f"portrait: {ids[0]} and {ids[1]}" if ids[0] != ids[1] else f"the image of portrait {ids[0]}"
    if (one.prompt.id, one.prompt.text) != (other.prompt.id, other.prompt.text):
        same = one.prompt.id == other.prompt.id
        yield f"the text of prompt {one.prompt.id}" if same else f"prompt: {one.prompt.id} and {other.prompt.id}"
    yield from _editor_differences(one, other)
    if one.seed != other.seed:
        yield f"seed: {one.seed} and {other.seed}"
    if one.attributes_matter and [dict(p.attributes) for p in one.portraits] != [
        dict(p.attributes) for p in other.portraits
    ]:
        yield "the labels that a known-answer editor reads"


def require_paired(one: Request, other: Request) -> None:
    """Raise `NotPaired` unless the requests differ in the arm alone."""
    if more := list(differences(one, other)):
        raise NotPaired(
            f"{_name(one)} and {_name(other)} differ in more than the arm ({'; '.join(more)}), so they cannot be "
            "compared. Run both arms in one audit."
        )


def _editor_differences(one: Request, other: Request) -> Iterator[str]:
    first, second = one.editor, other.editor
    if first.use != second.use:
        yield f"editor: {first.use} and {second.use}"
        return
    if first.version != second.version:
        yield f"version of {first.use}: {first.version} and {second.version}"
    for name in sorted({*first.parameters, *second.parameters}):
        values = first.parameters.get(name), second.parameters.get(name)
        if values[0] != values[1]:
            yield f"{name}: {values[0]!r} and {values[1]!r}"


def _name(request: Request) -> str:
    return f"{_ids(request)} × {request.prompt.id} ({request.arm})"


def _ids(request: Request) -> str:
    return " + ".join(portrait.id for portrait in request.portraits)


class PairedArms:
    """The requests of one editor as they come, portrait by portrait."""

    def __init__(self) -> None:
        self._first: dict[tuple[tuple[str, ...], str, int], Request] = {}
        self._portrait = ""

    def check(self, request: Request) -> None:
        """Raise `NotPaired` if a request differs from another arm's of its cell in more than the arm."""
        if request.arm is Arm.NOOP:
            return  # has an instruction of its own, once per portrait
        # Requests come portrait by portrait, so no more than one portrait's are kept.
        if request.portraits[0].id != self._portrait:
            self._portrait = request.portraits[0].id
            self._first.clear()
        people = tuple(portrait.id for portrait in request.portraits)
        first = self._first.setdefault((people, request.prompt.id, request.seed), request)
        if first.arm is not request.arm:
            require_paired(first, request)
