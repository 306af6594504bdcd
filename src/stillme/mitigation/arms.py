"""How an arm turns a prompt into the words that the editor reads."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, assert_never

from stillme.mitigation.features import OPENING
from stillme.mitigation.placebo import placebo
from stillme.types import Arm, Prompt

Position = Literal["prepend", "append"]
"""Where the sentence stands: the paper says before the prompt, its authors' code puts it behind."""

NOTHING = "Return the photo exactly as it is. Do not change anything."
"""The no-op arm's instruction: whatever changes under it is the editor's floor."""

NEEDS_FEATURES = frozenset({Arm.FEATURE, Arm.PLACEBO})
"""Arms that need a feature sentence of every portrait: the placebo is as long as it."""

_ORDINALS = ("first", "second", "third", "fourth")


def instruction(
    prompt: Prompt, arm: Arm, sentences: Sequence[str] = (), *, position: Position = "prepend", seed: str = ""
) -> str:
    """The editor's instruction: the prompt as the arm changes it.

    `sentences` holds one feature sentence per portrait of the request, for the arms of `NEEDS_FEATURES`; `seed` names
    the request's portraits and prompt, and chooses the placebo's words.
    """
    match arm:
        case Arm.BASELINE:
            return prompt.text
        case Arm.NOOP:
            return NOTHING
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
    """The sentences of all portraits of a request; where there are several, each says whose it is."""
    if not sentences:
        raise ValueError("this arm needs a feature sentence of every portrait")
    if len(sentences) == 1:
        return sentences[0]
    whose = (OPENING.replace("person", f"{ordinal} person") for ordinal in _ORDINALS)
    return " ".join(f"{start}{sentence[len(OPENING) :]}" for start, sentence in zip(whose, sentences, strict=False))
