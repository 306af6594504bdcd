"""The prompts of editors that read no instruction: each has one of its own, which says what it always does."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from stillme.types import Prompt

SET = "styles"
"""The name of the prompt set with all of them."""

_TEXTS = {
    "redraw": "Redraw this portrait.",
    "color-sketch": "Redraw this portrait as a colour sketch.",
    "color-ink": "Redraw this portrait in coloured ink.",
    "oil-painting": "Redraw this portrait as an oil painting.",
    "retouching": "Retouch this photograph.",
    "enhancement": "Enhance this photograph.",
}


def prompts() -> tuple[Prompt, ...]:
    """All of them. An editor takes only its own."""
    return tuple(
        Prompt(id=name, text=text, category="style", subcategory="no instruction") for name, text in _TEXTS.items()
    )


def missing_prompt(own: str, given: Sequence[Prompt]) -> Iterator[str]:
    """What is wrong with an audit that does not ask for the one thing that an editor does."""
    if own not in {prompt.id for prompt in given}:
        yield (
            f'it reads no instruction and takes only the prompt {own!r} ("{_TEXTS[own]}"); '
            f'add "{SET}" to `sets` of [prompts], and {own!r} to `only` if there is one'
        )
