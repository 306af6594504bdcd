"""The settings of a model judge, with a preset's values as defaults."""

from __future__ import annotations

from typing import Any, Literal, cast

from pydantic import Field, model_validator

from stillme.core.errors import did_you_mean
from stillme.judges.vlm import ModelSettings, Profile
from stillme.judges.vlm.settings import known_models, preset

Disclosure = Literal["blind", "paper"]


class JudgeSettings(ModelSettings):
    """Which model judges, what it is told, and how it is asked."""

    disclosure: Disclosure = "blind"
    """`paper` tells the judge the subject's race, gender and age, as the paper did."""
    order: Literal["source_first", "both"] = "source_first"
    """`both` asks every question twice, once with the edited image first, to expose position bias."""
    reads: tuple[str, ...] = Field(default=(), exclude=True)
    """Set by [readings]: the words for apparent race. The model is then asked about single pictures, and blind."""


class PresetSettings(JudgeSettings):
    """Settings that start from a preset of models.toml."""

    profile: Profile = Field(default="paper", exclude=True)
    """`paper` is the model as named; `current` is the successor that its vendor names."""


class OpenSettings(PresetSettings):
    """A preset of models.toml to start from, or any provider and model."""

    preset: str | None = Field(default=None, exclude=True)

    @model_validator(mode="before")
    @classmethod
    def _apply_preset(cls, given: Any) -> Any:
        if not isinstance(given, dict) or "preset" not in given:
            return cast("Any", given)
        values = cast("dict[str, Any]", given)
        name = values["preset"]
        if name not in known_models():
            known = known_models()
            raise ValueError(f"there is no preset {name!r}.{did_you_mean(str(name), known)} Known: {', '.join(known)}")
        return {**preset(name, values.get("profile", "paper")), **values}
