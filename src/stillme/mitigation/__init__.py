"""Mitigate identity changes through the prompt: the feature prompt, its placebo, and the linter for both.

    match feature_prompt("anna.jpg"):
        case FeaturePrompt(sentence=sentence):
            instruction = combined("Dress the person as a doctor.", sentence)
        case NoFeaturePrompt(reason=reason):
            ...

A feature prompt describes what can be seen in a portrait (the paper's Appendix F) and asks the editor to keep it. It
names no demographic group: `lint` finds such words, and an answer that keeps using them is rejected.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from stillme.core.deferred import deferred

if TYPE_CHECKING:
    from stillme.mitigation.arms import combined, require_paired
    from stillme.mitigation.features import FeaturePrompt, NoFeaturePrompt
    from stillme.mitigation.labels import lint
    from stillme.mitigation.measured import feature_prompt

__all__ = ["FeaturePrompt", "NoFeaturePrompt", "combined", "feature_prompt", "lint", "require_paired"]

__getattr__ = deferred(
    __name__,
    arms=("combined", "require_paired"),
    measured=("feature_prompt",),
    features=("FeaturePrompt", "NoFeaturePrompt"),
    labels=("lint",),
)
