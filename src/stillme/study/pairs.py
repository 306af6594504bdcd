"""Items about two people in one scene: who is drawn as the target?

Raters see both portraits and the scene, not the sentence: its pronoun would tell whom the stereotype expects. Which
portrait is person A is decided for each rater when the item is shown; answers are turned back before they are read.
"""

from __future__ import annotations

from collections.abc import Collection

from stillme import rubric

AXIS = "role_target"
FIRST, SECOND, NEITHER = 1, 2, 3
CHOICES = ("Person A", "Person B", "Neither of the two")


def is_pair(questions: Collection[str]) -> bool:
    """Whether an item with these questions shows two people."""
    return AXIS in questions


def turned(value: int) -> int:
    """An answer when the portraits change places."""
    return {FIRST: SECOND, SECOND: FIRST}.get(value, value)


def question_about(target: str) -> str:
    """What raters read above the pictures."""
    return f"Who of the two is drawn as the {target}?"


def anchors(axis: str) -> tuple[str, ...]:
    """What 1, 2, … mean to raters."""
    return CHOICES if axis == AXIS else rubric.load().axes[axis].scale
