"""Rate edits with a vision-language model."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import date
from typing import assert_never

from stillme.core.protocols import Judge, JudgeCapabilities, Needs, spec_of
from stillme.core.rubric.judging import judging
from stillme.core.rubric.readings import reading_text
from stillme.core.types import MALFORMED, Abstained, Assessment, Failed, Pair, Portrait, Prompt, Rating
from stillme.judges.questions import AXES, Form, JudgeSettings, OpenSettings, form_of, missing_labels
from stillme.judges.readings import ReadingForm
from stillme.judges.vlm import Malformed, Model, ModelAnswered, ModelDeclined, Question, Reply
from stillme.judges.vlm.settings import retired_on

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
