"""What an audit can set of a model judge, with a preset's values as defaults."""

from __future__ import annotations

from copy import copy
from typing import Any, Literal, cast

from pydantic import Field, create_model, model_validator

from stillme.vlm import ModelSettings, Profile
from stillme.vlm.settings import known_models, preset

Disclosure = Literal["blind", "paper"]


class JudgeSettings(ModelSettings):
    """Which model judges, what it is told, and how it is asked. How an answer is delivered is no part of the key."""

    disclosure: Disclosure = "blind"
    """`paper` tells the judge the subject's race, gender and age, as the paper did."""
    order: Literal["source_first", "both"] = "source_first"
    """`both` asks every question twice, once with the edited picture first, to expose position bias."""
    delivery: Literal["now", "batch"] = Field(default="now", exclude=True)
    """`batch` hands all questions over at once and collects the answers within a day, for about half the price."""
    poll_seconds: float = Field(default=60.0, gt=0, exclude=True)
    """How often a batch is looked at."""
    batch_size: int = Field(default=1000, ge=1, le=50_000, exclude=True)
    """Questions in one batch, fewer where the provider's limit on bytes says so."""


class PresetSettings(JudgeSettings):
    """Settings that start from a preset of models.toml."""

    profile: Profile = Field(default="paper", exclude=True)
    """`paper` is the model as named; `current` is the successor that its vendor names."""


class OpenSettings(PresetSettings):
    """A preset of models.toml to start from, or a provider and a model of your own."""

    preset: str | None = Field(default=None, exclude=True)

    @model_validator(mode="before")
    @classmethod
    def _start_from_the_preset(cls, given: Any) -> Any:
        if not isinstance(given, dict) or "preset" not in given:
            return cast("Any", given)
        chosen = cast("dict[str, Any]", given)
        if chosen["preset"] not in known_models():
            raise ValueError(f"there is no preset {chosen['preset']!r}, only {', '.join(known_models())}")
        return {**preset(chosen["preset"], chosen.get("profile", "paper")), **chosen}


def settings_of(title: str, name: str) -> type[PresetSettings]:
    """The settings of a named judge: the preset's values as defaults, its successor's under the profile `current`."""
    ours = preset(name)
    theirs = {**dict.fromkeys(ours), **preset(name, "current")}

    class Following(PresetSettings):
        @model_validator(mode="before")
        @classmethod
        def _follow_the_profile(cls, given: Any) -> Any:
            if isinstance(given, dict) and cast("dict[str, Any]", given).get("profile") == "current":
                return {**theirs, **cast("dict[str, Any]", given)}
            return cast("Any", given)

    fields = PresetSettings.model_fields
    replaced: dict[str, Any] = {}
    for key, value in ours.items():
        field = copy(fields[key])
        field.default = value
        replaced[key] = (field.annotation, field)
    return create_model(f"{title}Settings", __base__=Following, __doc__=known_models()[name]["summary"], **replaced)
