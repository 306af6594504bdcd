"""How an arm turns a prompt into the editor's instruction."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, assert_never

from stillme.core.types import Arm, Prompt
from stillme.mitigation.features import OPENING
from stillme.mitigation.placebo import placebo

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
