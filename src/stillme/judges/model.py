"""Rate edits with a vision-language model."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import date
from typing import ClassVar, assert_never

from pydantic import BaseModel

from stillme.judges.questions import AXES, Form, form_of, missing_labels
from stillme.judges.settings import JudgeSettings, OpenSettings, settings_of
from stillme.protocols import JudgeCapabilities, Needs, spec_of
from stillme.rubric.judging import judging
from stillme.types import Abstained, Assessment, Failed, Pair, Portrait, Prompt, Rating
from stillme.vlm import Answered, Declined, Malformed, Model, Question, Reply, known_models, prices
from stillme.vlm.settings import KEYS, retired_on

_VERSION = "1"
_NEEDED = ("pydantic_ai", "genai_prices")
_AGAIN = "\n\n--- asked again ---\n\n"


class ModelJudge:
    """A vision-language model behind the `Judge` protocol."""

    Parameters: ClassVar[type[BaseModel]] = JudgeSettings
    needs: ClassVar[Needs] = Needs(modules=_NEEDED, extra="judges")

    def __init__(self, name: str, parameters: JudgeSettings) -> None:
        words = judging()
        self.settings = parameters
        self.model = Model(parameters)
        self.spec = spec_of(name, f"{_VERSION}.{words.version}-{words.digest}", parameters)
        self.capabilities = JudgeCapabilities(
            kind="model",
            axes=AXES,
            concurrency=parameters.concurrency,
            labels=parameters.disclosure == "paper",
            views=2 if parameters.order == "both" else 1,
        )

    def objections(self, portraits: Sequence[Portrait], prompts: Sequence[Prompt]) -> Iterator[str]:
        """Settings that the model would ignore, a model that is gone, labels that are wanted and missing."""
        gone = retired_on(self.settings.model)
        if gone and date.today() >= gone:
            yield f'{self.settings.model} was shut down on {gone}; write profile = "current", or name another `model`'
        yield from self.model.objections()
        if self.settings.delivery == "batch":
            if self.settings.provider == "openai-chat":
                yield 'a server of one\'s own has no batch service; write delivery = "now"'
            if self.settings.service_tier:
                yield f"a batch has no `service_tier`; leave {self.settings.service_tier!r} out"
        if self.settings.disclosure == "paper":
            for portrait in portraits:
                if lacking := missing_labels(portrait.attributes):
                    yield f'disclosure = "paper" tells race, gender and age; {portrait.id} has no {", ".join(lacking)}'
                    return

    def judge(self, pairs: Sequence[Pair]) -> Iterator[Assessment]:
        """One question per pair."""
        for pair in pairs:
            yield self.assessment(pair, self.unfit(pair) or self.model.ask(self.question(pair)))

    def unfit(self, pair: Pair) -> Failed | None:
        """Why a pair cannot be shown as the settings ask."""
        lacking = missing_labels(pair.labels or {}) if self.settings.disclosure == "paper" else []
        if not lacking:
            return None
        return Failed(error=f'disclosure = "paper" needs the labels {", ".join(lacking)}', retryable=False)

    def question(self, pair: Pair) -> Question:
        """What the model is asked about a pair."""
        return _form(pair).question(pair, disclosure=self.settings.disclosure, swapped=self._swapped(pair))

    def assessment(self, pair: Pair, reply: Reply) -> Assessment:
        """What a reply says of a pair. Nothing is filled in: every axis asked is rated, abstained or failed."""
        form = _form(pair)
        match reply:
            case Answered(value=value):
                return _assessed(form.ratings(value, swapped=self._swapped(pair)), reply, _joined(reply))
            case Declined():
                declined = Abstained(reason=f"{reply.kind}: {reply.reason}")
                return _assessed(dict.fromkeys(form.axes, declined), reply, _joined(reply))
            case Malformed():
                failed = Failed(error=f"malformed twice: {reply.problem}", retryable=False)
                return _assessed(dict.fromkeys(form.axes, failed), reply, _joined(reply))
            case Failed():
                return Assessment(ratings=dict.fromkeys(form.axes, reply), cost=reply.cost)
            case never:
                assert_never(never)

    def expected_dollars(self) -> float | None:
        """What one question costs, by the price list and the usual number of tokens."""
        return prices.expected(self.settings, batch=self.settings.delivery == "batch")

    def close(self) -> None:
        """Close the connections."""
        self.model.close()

    def _swapped(self, pair: Pair) -> bool:
        return self.capabilities.views == 2 and pair.epoch % 2 == 1


class Vlm(ModelJudge):
    """Any vision-language model: `vlm:gpt-5.6-terra`, or a `provider` and a `model` of your own."""

    shorthand: ClassVar[str] = "preset"
    """`vlm:claude` sets this parameter."""

    Parameters: ClassVar[type[BaseModel]] = OpenSettings

    def __init__(self, parameters: JudgeSettings) -> None:
        super().__init__("vlm", parameters)


def named(title: str, name: str) -> type[ModelJudge]:
    """The judge class of a preset. `title` is the name that it is bound to in `named.py`."""
    about = known_models()[name]
    variables = (KEYS[about["provider"]],) if about["provider"] in KEYS else ()

    class Named(ModelJudge):
        Parameters: ClassVar[type[BaseModel]] = settings_of(title, name)
        needs: ClassVar[Needs] = Needs(modules=_NEEDED, extra="judges", variables=variables)

        def __init__(self, parameters: JudgeSettings) -> None:
            super().__init__(name, parameters)

    Named.__doc__ = about["summary"]
    Named.__name__ = Named.__qualname__ = title
    Named.__module__ = "stillme.judges.named"
    return Named


def _form(pair: Pair) -> Form:
    return form_of(pair.prompt, len(pair.sources))


def _assessed(ratings: Mapping[str, Rating], reply: Answered | Declined | Malformed, raw: str | None) -> Assessment:
    return Assessment(ratings=ratings, raw=raw, effective=reply.effective, cost=reply.cost)


def _joined(reply: Answered | Declined | Malformed) -> str | None:
    last = reply.raw if isinstance(reply, Declined) else reply.text
    return last if reply.earlier is None else f"{reply.earlier}{_AGAIN}{last or ''}"
