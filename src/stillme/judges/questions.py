"""A pair as a question to a model, and the model's answer as ratings.

The model is told what was asked of the editor and shown the pictures. It is told nothing of the editor, the arm, the
group or the file; with `disclosure = "paper"` it gets the labels that the paper's judges got.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, create_model

from stillme.judges.settings import Disclosure
from stillme.rubric.judging import Score, judging
from stillme.types import Abstained, Attributes, ImageFile, Pair, Prompt, Rated, Rating
from stillme.vlm import Question

AXES = ("edit_success", "skin_tone", "race_change", "gender_change", "age_change", "age_accuracy", "role_target")
_LABELS = ("race", "gender", "age")


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid")


class RoleAnswer(_Strict):
    """Who is drawn as the target."""

    observations: Any
    target_person: Literal["person_a", "person_b", "neither", "cannot_tell"]
    evidence_summary: str


class Form(ABC):
    """One kind of question: which axes it covers, what is shown, and how the answer is read."""

    axes: tuple[str, ...]

    @abstractmethod
    def question(self, pair: Pair, *, disclosure: Disclosure, swapped: bool) -> Question:
        """The question about a pair. `swapped` shows the edited picture first."""

    @abstractmethod
    def ratings(self, value: BaseModel, *, swapped: bool) -> Mapping[str, Rating]:
        """What the answer says on each axis, whichever way the pictures were shown."""


@dataclass(frozen=True)
class PairForm(Form):
    """One source, one edit, the rubric's axes."""

    scores: tuple[Score, ...]

    @property
    def axes(self) -> tuple[str, ...]:  # pyright: ignore[reportIncompatibleVariableOverride]
        """The axes of the scores."""
        return tuple(score.axis.name for score in self.scores)

    def question(self, pair: Pair, *, disclosure: Disclosure, swapped: bool) -> Question:
        """Listing 1: what stands the same for all pairs as instructions, the rest beside the pictures."""
        shown: list[tuple[str, ImageFile]] = [("SOURCE IMAGE:", pair.sources[0]), ("EDITED IMAGE:", pair.edited)]
        pictures = [part for name, image in (shown[::-1] if swapped else shown) for part in (name, image)]
        return Question(
            system=_instructions(self.scores),
            parts=(_about(pair, disclosure), *pictures),
            answer=_answer(self.scores),
        )

    def ratings(self, value: BaseModel, *, swapped: bool) -> Mapping[str, Rating]:
        """Source and edit are named in both orders, so a score means the same in both."""
        said = value.model_dump()
        return {
            score.axis.name: _rating(said["scores"][score.name], said["observations"][score.evidence])
            for score in self.scores
        }


class RoleForm(Form):
    """Two sources, one scene: who is drawn as the target?

    The instruction is not shown, as its pronoun says whom the stereotype expects; so whether it was carried out is not
    asked. With `disclosure = "paper"` the model reads it.
    """

    axes = ("role_target",)

    def question(self, pair: Pair, *, disclosure: Disclosure, swapped: bool) -> Question:
        """The people in the order of the request, or, swapped, in the other order under the other names."""
        words = judging()
        first, second = pair.sources[::-1] if swapped else pair.sources
        people = ["PERSON A:", first, "PERSON B:", second]
        scene = ["EDITED IMAGE:", pair.edited]
        pictures = [*scene, *people] if swapped else [*people, *scene]
        told = f"EDIT INSTRUCTION: {pair.prompt.text}\n" if disclosure == "paper" else ""
        asked = words.role_question.format(target=pair.prompt.target)
        return Question(
            system=f"{words.role_task}\n\n{words.guard}",
            parts=(f"{told}QUESTION: {asked}", *pictures),
            answer=_role_answer(),
        )

    def ratings(self, value: BaseModel, *, swapped: bool) -> Mapping[str, Rating]:
        """1 is the first person of the request, 2 the second, whoever was shown as A."""
        said = value.model_dump()
        scene = said["observations"]["scene"]
        match said["target_person"]:
            case "person_a" | "person_b" as who:
                place = 1 if (who == "person_a") != swapped else 2
                return {"role_target": Rated(score=place, evidence=said["evidence_summary"])}
            case "neither":
                return {"role_target": Abstained(reason=f"neither is drawn as the target: {scene}")}
            case _:
                return {"role_target": Abstained(reason=f"it cannot be told who is drawn as the target: {scene}")}


def form_of(prompt: Prompt, sources: int) -> Form:
    """The kind of question that a prompt calls for. Aging is also asked about its target age."""
    if prompt.target is not None and sources == 2:
        return RoleForm()
    return PairForm(
        tuple(
            score
            for score in judging().scores
            if not score.axis.only or (score.axis.only == prompt.subcategory and prompt.years is not None)
        )
    )


def missing_labels(labels: Attributes) -> list[str]:
    """Which of the labels that the paper gives away a portrait does not have."""
    return [name for name in _LABELS if not labels.get(name)]


def _about(pair: Pair, disclosure: Disclosure) -> str:
    words = judging()
    labels = {name: (pair.labels or {}).get(name, "") for name in _LABELS}
    template = words.about_the_pair if disclosure == "paper" else words.about_the_pair_blind
    lines = [template.format(prompt=pair.prompt.text, **labels)]
    if pair.prompt.years is not None:
        lines.append(words.aging.format(years=pair.prompt.years))
    return "\n".join(lines)


@cache
def _instructions(scores: tuple[Score, ...]) -> str:
    words = judging()
    scales = "\n\n".join(_scale(score) for score in scores)
    return "\n\n".join([words.task, words.guard, words.instructions, f"SCORES:\n\n{scales}", words.abstention])


def _scale(score: Score) -> str:
    steps = "\n".join(f"{number}: {meaning}" for number, meaning in enumerate(score.axis.scale, start=1))
    return f"{score.name}: {score.axis.title}. {score.axis.question}\n{steps}"


@cache
def _answer(scores: tuple[Score, ...]) -> type[BaseModel]:
    """The schema of Listing 1. Observations stand first: a model writes in the order of the schema."""
    given = {score.name: (int | None, Field(ge=1, le=5, description=score.axis.question)) for score in scores}
    return create_model(
        "Evaluation",
        __base__=_Strict,
        observations=(_observed("Observations", judging().observations), ...),
        scores=(create_model("Scores", __base__=_Strict, **_fields(given)), ...),
        evidence_summary=(str, ...),
    )


@cache
def _role_answer() -> type[BaseModel]:
    observed = _observed("RoleObservations", judging().role_observations)
    return create_model("RoleEvaluation", __base__=RoleAnswer, observations=(observed, ...))


def _observed(name: str, headings: Mapping[str, str]) -> type[BaseModel]:
    fields = {key: (str, Field(description=heading)) for key, heading in headings.items()}
    return create_model(name, __base__=_Strict, **_fields(fields))


def _fields(given: Mapping[str, Any]) -> dict[str, Any]:
    return dict(given)


def _rating(score: int | None, observed: str) -> Rating:
    if score is None:
        return Abstained(reason=f"the model could not judge it: {observed}")
    return Rated(score=score, evidence=observed)
