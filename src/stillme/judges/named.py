"""The presets of models.toml as judge classes, for the entry points."""

from __future__ import annotations

from copy import copy
from typing import Any, cast

from pydantic import create_model, model_validator

from stillme.core.protocols import Needs
from stillme.judges.model import NEEDED, ModelJudge
from stillme.judges.questions import JudgeSettings, PresetSettings
from stillme.judges.vlm import known_models
from stillme.judges.vlm.settings import KEYS, preset


def preset_judge(title: str, name: str) -> type[ModelJudge]:
    """The judge class of a preset. `title` is its name below."""
    entry = known_models()[name]
    variables = (KEYS[entry["provider"]],) if entry["provider"] in KEYS else ()

    class PresetJudge(ModelJudge):
        Parameters = _settings_of(title, name)
        needs = Needs(modules=NEEDED, extra="judges", variables=variables)

        def __init__(self, parameters: JudgeSettings) -> None:
            super().__init__(name, parameters)

    PresetJudge.__doc__ = entry["summary"]
    PresetJudge.__name__ = PresetJudge.__qualname__ = title
    PresetJudge.__module__ = "stillme.judges.named"
    return PresetJudge


def _settings_of(title: str, name: str) -> type[PresetSettings]:
    """The settings of a preset's judge: its values as defaults, its successor's under the profile `current`."""
    defaults = preset(name)
    current = {**dict.fromkeys(defaults), **preset(name, "current")}

    class WithProfile(PresetSettings):
        @model_validator(mode="before")
        @classmethod
        def _apply_profile(cls, given: Any) -> Any:
            if isinstance(given, dict) and cast("dict[str, Any]", given).get("profile") == "current":
                return {**current, **cast("dict[str, Any]", given)}
            return cast("Any", given)

    fields = PresetSettings.model_fields
    overridden: dict[str, Any] = {}
    for key, value in defaults.items():
        field = copy(fields[key])
        field.default = value
        overridden[key] = (field.annotation, field)
    return create_model(f"{title}Settings", __base__=WithProfile, __doc__=known_models()[name]["summary"], **overridden)


Gemini3Flash = preset_judge("Gemini3Flash", "gemini-3-flash")
Gpt5Mini = preset_judge("Gpt5Mini", "gpt-5-mini")
Claude = preset_judge("Claude", "claude")
OpenAICompatible = preset_judge("OpenAICompatible", "openai-compatible")
