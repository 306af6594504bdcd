"""Rate edits with a vision-language model; the presets of models.toml are classes of their own."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from copy import copy
from dataclasses import replace
from datetime import date
from typing import Any, assert_never, cast

from pydantic import create_model, model_validator

from stillme.core.protocols import Judge, JudgeCapabilities, Needs, spec_of
from stillme.core.rubric import reading_text
from stillme.core.types import MALFORMED, Abstained, Assessment, Failed, Pair, Portrait, Prompt, Rating
from stillme.judges.questions import (
    AXES,
    Form,
    JudgeSettings,
    OpenSettings,
    PresetSettings,
    form_of,
    judging,
    missing_labels,
)
from stillme.judges.stated import ReadingForm
from stillme.judges.vlm import Malformed, Model, ModelAnswered, ModelDeclined, Question, Reply, known_models
from stillme.judges.vlm.settings import KEYS, preset, retired_on

_VERSION = "1"
NEEDED = ("pydantic_ai", "genai_prices")
_SECOND_ANSWER = "\n\n--- asked again ---\n\n"


class ModelJudge(Judge):
    """A vision-language model behind the `Judge` protocol."""

    Parameters = JudgeSettings
    needs = Needs(modules=NEEDED, extra="judges")

    def __init__(self, name: str, parameters: JudgeSettings) -> None:
        text = judging()
        self.settings = parameters
        self.model = Model(parameters)
        self._reading = ReadingForm(parameters.reads) if parameters.reads else None
        version = f"{text.version}-{text.digest}" if self._reading is None else f"reading-{reading_text().version}"
        spec = spec_of(name, f"{_VERSION}.{version}", parameters)
        # A judge that reads nothing has the key that it had before there were readings.
        reads = {"reads": list(parameters.reads)} if parameters.reads else {}
        self.spec = replace(spec, parameters={**spec.parameters, **reads})
        self.capabilities = JudgeCapabilities(
            kind="model",
            axes=AXES if self._reading is None else self._reading.axes,
            concurrency=parameters.concurrency,
            labels=parameters.disclosure == "paper",
            views=2 if parameters.order == "both" else 1,
        )

    def problems(self, portraits: Sequence[Portrait], prompts: Sequence[Prompt]) -> Iterator[str]:
        """Settings that the model would ignore, a model that was shut down, labels that are needed and missing."""
        retired = retired_on(self.settings.model)
        if retired and date.today() >= retired:
            yield f'{self.settings.model} was shut down on {retired}; write profile = "current" or another `model`'
        yield from self.model.problems()
        if self.settings.disclosure == "paper":
            for portrait in portraits:
                if missing := missing_labels(portrait.attributes):
                    yield (
                        f'disclosure = "paper" needs race, gender and age; {portrait.id} has no {", ".join(missing)}: '
                        'add them to the portraits, or write disclosure = "blind"'
                    )
                    return

    def judge_one(self, pair: Pair) -> Assessment:
        """Ask one question."""
        return self.assessment(pair, self.check_labels(pair) or self.model.ask(self.question(pair)))

    def check_labels(self, pair: Pair) -> Failed | None:
        """Fail a pair that lacks labels which the settings disclose; None if it can be asked."""
        missing = missing_labels(pair.labels or {}) if self.settings.disclosure == "paper" else []
        if not missing:
            return None
        return Failed(error=f'disclosure = "paper" needs the labels {", ".join(missing)}', retryable=False)

    def question(self, pair: Pair) -> Question:
        """What the model is asked about a pair."""
        return self._form(pair).question(pair, disclosure=self.settings.disclosure, swapped=self._swapped(pair))

    def assessment(self, pair: Pair, reply: Reply) -> Assessment:
        """Turn a reply into ratings. Nothing is filled in: every axis is rated, abstained or failed."""
        form = self._form(pair)
        match reply:
            case ModelAnswered(value=value):
                return _assessment(form.ratings(value, swapped=self._swapped(pair)), reply)
            case ModelDeclined():
                declined = Abstained(reason=f"{reply.kind}: {reply.reason}")
                return _assessment(dict.fromkeys(form.axes, declined), reply)
            case Malformed():
                failed = Failed(error=f"malformed twice: {reply.problem}", retryable=False, status=MALFORMED)
                return _assessment(dict.fromkeys(form.axes, failed), reply)
            case Failed():
                return Assessment(ratings=dict.fromkeys(form.axes, reply), effective=reply.effective, cost=reply.cost)
            case never:
                assert_never(never)

    @property
    def provider(self) -> str:
        """The API's address."""
        return self.settings.address

    def expected_dollars(self) -> float | None:
        """The approximate cost of one question, by the price list and a typical number of tokens."""
        return self.settings.expected_dollars(pictures=1 if self._reading else 2)

    def close(self) -> None:
        """Close the connections."""
        self.model.close()

    def _form(self, pair: Pair) -> Form:
        return self._reading or form_of(pair.prompt, len(pair.sources))

    def _swapped(self, pair: Pair) -> bool:
        return self.capabilities.views == 2 and pair.epoch % 2 == 1


class Vlm(ModelJudge):
    """Any vision-language model: `vlm:gpt-5.6-terra`, or any `provider` and `model`."""

    shorthand = "preset"
    """`vlm:claude` sets this parameter."""

    Parameters = OpenSettings

    def __init__(self, parameters: JudgeSettings) -> None:
        super().__init__("vlm", parameters)


def _assessment(ratings: Mapping[str, Rating], reply: ModelAnswered | ModelDeclined | Malformed) -> Assessment:
    raw = reply.raw if isinstance(reply, ModelDeclined) else reply.text
    if reply.earlier is not None:
        raw = f"{reply.earlier}{_SECOND_ANSWER}{raw or ''}"
    return Assessment(ratings=ratings, raw=raw, effective=reply.effective, cost=reply.cost)


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
    PresetJudge.__module__ = "stillme.judges.model"
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
