"""What a set of portraits can be grouped by: its factors, and who counts as a man or a woman in role prompts."""

from __future__ import annotations

from collections.abc import Sequence

from stillme.audit.design import RolesRecord
from stillme.core.types import Portrait

PAPERS_LABELS = ("race", "gender", "age")
"""The paper's factors, in its order, which its judges and raters were told."""
_GENDERS = (("masculine", "feminine"), ("male", "female"), ("man", "woman"), ("men", "women"), ("m", "f"))
_REFERENCE = "White"
"""The group that the paper compares the others with."""


def levels_of(portraits: Sequence[Portrait]) -> dict[str, list[str]]:
    """The values of every attribute, in the order in which they first occur."""
    levels: dict[str, dict[str, None]] = {}
    for portrait in portraits:
        for attribute, level in portrait.attributes.items():
            levels.setdefault(attribute, {})[level] = None
    return {attribute: list(values) for attribute, values in levels.items()}


def factors_like_papers(portraits: Sequence[Portrait]) -> list[str]:
    """The attributes that group portraits, the paper's first and in its order; a crossing of others is left out."""
    # Measured numbers group no one, as they differ on nearly every portrait.
    names = [
        name
        for name, levels in levels_of(portraits).items()
        if 2 <= len(levels) <= max(2, len(portraits) // 2) and not _numeric(levels)
    ]
    kept = [name for name in names if sum(_determines(portraits, name, other) for other in names) < 3]
    return sorted(kept, key=lambda name: PAPERS_LABELS.index(name) if name in PAPERS_LABELS else len(PAPERS_LABELS))


def reference_of(portraits: Sequence[Portrait], factor: str) -> str:
    """The paper's reference group where there is one, else the first."""
    levels = levels_of(portraits)[factor]
    return _REFERENCE if _REFERENCE in levels else levels[0]


def lacking_labels(portraits: Sequence[Portrait]) -> list[str]:
    """Of race, gender and age, which the paper told its judges, those that some portrait lacks."""
    return [name for name in PAPERS_LABELS if not all(portrait.attributes.get(name) for portrait in portraits)]


def genders_of(portraits: Sequence[Portrait]) -> RolesRecord | None:
    """The first attribute whose values are words for men and for women; None where there is none."""
    for attribute, levels in levels_of(portraits).items():
        words = {level.lower(): level for level in levels}
        for male, female in _GENDERS:
            if male in words and female in words:
                return RolesRecord(gender=attribute, male=words[male], female=words[female])
    return None


def _determines(portraits: Sequence[Portrait], name: str, other: str) -> bool:
    """Whether one attribute determines the other; every attribute determines itself."""
    pairs = {(portrait.attributes.get(name), portrait.attributes.get(other)) for portrait in portraits}
    return len(pairs) == len({level for level, _ in pairs})


def _numeric(levels: Sequence[str]) -> bool:
    return all(level.lstrip("-").replace(".", "", 1).isdigit() for level in levels)
