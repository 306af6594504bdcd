"""How an arm turns a prompt into the words that the editor reads."""

from __future__ import annotations

from stillme.types import Arm, Prompt

NOTHING = "Return the photo exactly as it is. Do not change anything."
"""The no-op arm's instruction: whatever changes under it is the editor's floor."""

AVAILABLE = (Arm.BASELINE, Arm.NOOP)
"""Arms that need nothing but the prompt."""


def instruction(prompt: Prompt, arm: Arm) -> str:
    """The editor's instruction under an arm of `AVAILABLE`."""
    return NOTHING if arm is Arm.NOOP else prompt.text
