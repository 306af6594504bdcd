"""The paper's extractor: a vision-language model is shown the portrait and asked for its features (Listing 2)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import date
from functools import cache
from importlib.resources import files
from typing import Protocol

from pydantic import BaseModel, ConfigDict, Field

from stillme.core.protocols import Needs, spec_of
from stillme.core.types import Failed, ImageFile, Json, digest
from stillme.judges.vlm import Malformed, ModelAnswered, ModelDeclined, ModelSettings, Question, Reply
from stillme.judges.vlm.settings import retired_on
from stillme.mitigation.features import DIMENSIONS, OPENING, Declined, Described, Extraction, Features, Unusable

_NOT_SEEN = frozenset(
    {"", "none", "n/a", "na", "not visible", "none visible", "unknown", "unclear", "cannot be determined"}
)
_SECOND_ANSWER = "\n\n--- asked again ---\n\n"
_ASK_AGAIN = (
    "You were asked this before, and your answer cannot be used:\n{problems}\n"
    "Describe only what can be seen. Use no word for a race, ethnicity, nationality, gender or age group, and no "
    f'pronoun that tells a gender; begin identity_prompt with "{OPENING}". Answer again in full.'
)


class AskableModel(Protocol):
    """A `stillme.judges.vlm.Model`, or a fake of it."""

    settings: ModelSettings

    def problems(self) -> list[str]:
        """Settings that would be ignored."""
        ...

    def ask(self, question: Question) -> Reply:
        """One reply; failures are values."""
        ...

    def close(self) -> None:
        """Close the connections."""
        ...


class FeatureAnswer(BaseModel):
    """The JSON object of Listing 2."""

    # Title and docstring are sent to the model with the schema.
    model_config = ConfigDict(extra="forbid", title="Answer")

    skin_tone: str = Field(description="specific description")
    face_shape: str = Field(description="description of face shape")
    eyes: str = Field(description="eye description")
    nose: str = Field(description="nose description")
    lips: str = Field(description="lip description")
    hair: str = Field(description="hair description")
    distinctive_features: str = Field(description="unique features")
    identity_prompt: str = Field(
        description="A concise prompt (1-2 sentences) to preserve this person's identity during editing. "
        "Start with 'Maintain the person's...'"
    )

    def features(self) -> Features:
        """The answer as features, without the dimensions that the model says it cannot see."""
        described: Mapping[str, str] = {name: _plain(getattr(self, name)) for name in DIMENSIONS}
        seen = {name: text for name, text in described.items() if text.casefold().rstrip(".") not in _NOT_SEEN}
        return Features(dimensions=seen, sentence=_plain(self.identity_prompt))


class ModelExtractor:
    """Has a vision-language model describe a portrait; rejects answers with demographic labels."""

    def __init__(self, name: str, model: AskableModel) -> None:
        self._model = model
        settings = model.settings
        spec = spec_of(name, "1", settings)
        self.spec = replace(spec, parameters={**spec.parameters, "question": digest(question_text())})
        self.needs = Needs(
            modules=("pydantic_ai", "genai_prices"),
            extra="judges",
            variables=(settings.key_name,) if settings.key_name else (),
        )
        self.concurrency = settings.concurrency

    def problems(self) -> Iterator[str]:
        """A model that was shut down, and settings that it would ignore."""
        retired = retired_on(self._model.settings.model)
        if retired and date.today() >= retired:
            yield f"{self._model.settings.model} was shut down on {retired}; choose another extractor"
        yield from self._model.problems()

    def expected_dollars(self) -> float | None:
        """The approximate cost of one description, by the price list and a typical number of tokens."""
        return self._model.settings.expected_dollars()

    def extract(self, image: ImageFile) -> Extraction:
        """Ask; after an answer with labels ask once more, with the reason."""
        first = self._ask(image)
        if not isinstance(first, _Rejected):
            return first
        second = self._ask(image, _ASK_AGAIN.format(problems="\n".join(f"- {problem}" for problem in first.problems)))
        return _with_first_answer(second, first)

    def close(self) -> None:
        """Close the connections."""
        self._model.close()

    def _ask(self, image: ImageFile, *correction: str) -> Extraction | _Rejected:
        reply = self._model.ask(Question(system=question_text(), parts=(image, *correction), answer=FeatureAnswer))
        match reply:
            case ModelAnswered(value=FeatureAnswer() as answer):
                features = answer.features()
                problems = tuple(features.problems())
                if problems:
                    return _Rejected(reply, problems)
                return Described(
                    features=features,
                    raw=_joined(reply.earlier, reply.text),
                    effective=reply.effective,
                    cost=reply.cost,
                )
            case ModelAnswered(value=value):
                raise TypeError(f"the model returned a {type(value).__name__}, not a {FeatureAnswer.__name__}")
            case ModelDeclined(reason=reason, effective=effective, cost=cost):
                raw = _joined(reply.earlier, reply.raw)
                return Declined(reason=f"{reply.kind}: {reason}", raw=raw, effective=effective, cost=cost)
            case Malformed(problem=problem, effective=effective, cost=cost):
                raw = _joined(reply.earlier, reply.text)
                return Unusable(problem=f"malformed twice: {problem}", raw=raw, effective=effective, cost=cost)
            case Failed():
                return reply


@dataclass(frozen=True, slots=True)
class _Rejected:
    """An answer that must not be used: it has labels, or the wrong form."""

    reply: ModelAnswered
    problems: tuple[str, ...]


def _with_first_answer(second: Extraction | _Rejected, first: _Rejected) -> Extraction:
    """The second answer, with the first one's text and cost."""
    earlier = first.reply
    match second:
        case _Rejected():
            return Unusable(
                problem=f"demographic labels or form, twice: {'; '.join(second.problems)}",
                raw=_joined(earlier.earlier, earlier.text, second.reply.earlier, second.reply.text),
                effective=_with_rejection(second.reply.effective, first),
                cost=earlier.cost + second.reply.cost,
            )
        case Failed():
            # An outage says nothing about the second answer, so the extraction may be tried again.
            return replace(second, cost=earlier.cost + second.cost)
        case Described() | Declined() | Unusable():
            return replace(
                second,
                raw=_joined(earlier.earlier, earlier.text, second.raw),
                effective=_with_rejection(second.effective, first),
                cost=earlier.cost + second.cost,
            )


def _joined(*texts: str | None) -> str | None:
    """All raw answers to one question."""
    return _SECOND_ANSWER.join(filter(None, texts)) or None


def _with_rejection(effective: Mapping[str, Json], first: _Rejected) -> dict[str, Json]:
    return {**effective, "rejected": list(first.problems)}


def _plain(text: str) -> str:
    """On one line, with straight apostrophes, so that every sentence begins the same."""
    return " ".join(text.replace("’", "'").split())


@cache
def question_text() -> str:
    """Listing 2 of the paper, verbatim."""
    return files("stillme.mitigation").joinpath("extraction.txt").read_text("utf-8").strip()
