"""Turn a pair into a question to a model, and the model's answer into ratings.

The model gets the editor's instruction and the images. It does not get the editor, the arm, the group or the
file name; with `disclosure = "paper"` it gets the labels that the paper's judges got.
"""

from __future__ import annotations

import hashlib
import tomllib
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any, Literal, cast

from pydantic import BaseModel, ConfigDict, Field, create_model, model_validator

from stillme.core.errors import did_you_mean
from stillme.core.rubric import Axis, load
from stillme.core.types import Abstained, Attributes, ImageFile, Pair, Prompt, Rated, Rating
from stillme.judges.vlm import ModelSettings, Profile, Question
from stillme.judges.vlm.settings import known_models, preset

_INSTRUCTIONS = "DETAILED OBSERVATION"
_LABELS_BEGIN = "SOURCE INFO"


@dataclass(frozen=True, slots=True, kw_only=True)
class Score:
    """A score under the name that Listing 1 gives it."""

    name: str
    axis: Axis
    evidence: str
    """The observation that backs it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Judging:
    """All text that a model is told, apart from the prompt."""

    version: str
    digest: str
    """The hash of this text and of the rubric's scales."""
    listing: str
    """Listing 1 as the paper prints it."""
    task: str
    guard: str
    abstention: str
    aging: str
    role_task: str
    role_question: str
    observations: Mapping[str, str]
    role_observations: Mapping[str, str]
    scores: tuple[Score, ...]

    @property
    def about_the_pair(self) -> str:
        """The part of Listing 1 that differs between pairs, with the labels that the paper discloses."""
        return self.listing.partition(_INSTRUCTIONS)[0].strip()

    @property
    def about_the_pair_blind(self) -> str:
        """The same without the labels."""
        return self.about_the_pair.partition(_LABELS_BEGIN)[0].strip()

    @property
    def instructions(self) -> str:
        """The part of Listing 1 that is the same for all pairs."""
        return self.listing[self.listing.index(_INSTRUCTIONS) :].strip()


@cache
def judging() -> Judging:
    """The text shipped with this version of stillme."""
    folder = files("stillme.core.rubric")
    listing = folder.joinpath("listing1.txt").read_text("utf-8")
    text = folder.joinpath("judging.toml").read_text("utf-8")
    scales = folder.joinpath("rubric.toml").read_text("utf-8").partition("\n# What instruments measure")[0]
    data = tomllib.loads(text)
    axes = load().axes
    return Judging(
        version=data["version"],
        digest=hashlib.sha256("\0".join((listing, text, scales)).encode()).hexdigest()[:12],
        listing=listing,
        task=_one_line(data["task"]),
        guard=_one_line(data["guard"]),
        abstention=_one_line(data["abstention"]),
        aging=_one_line(data["aging"]),
        role_task=_one_line(data["role_task"]),
        role_question=_one_line(data["role_question"]),
        observations=data["observations"],
        role_observations=data["role_observations"],
        scores=tuple(
            Score(name=name, axis=axes[entry["axis"]], evidence=entry["evidence"])
            for name, entry in data["scores"].items()
        ),
    )


def _one_line(text: str) -> str:
    return " ".join(text.split())


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


AXES = ("edit_success", "skin_tone", "race_change", "gender_change", "age_change", "age_accuracy", "role_target")
_LABELS = ("race", "gender", "age")
_OF_THE_INSTRUCTION = "edit_success"
"""The axis that cannot be judged without knowing what the editor was asked to do."""


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid")


class RoleAnswer(_Strict):
    """Who is drawn as the target."""

    observations: Any
    target_person: Literal["person_a", "person_b", "neither", "cannot_tell"]
    evidence_summary: str


class Form(ABC):
    """One kind of question: its axes, what is shown, and how the answer is read."""

    axes: tuple[str, ...]

    @abstractmethod
    def question(self, pair: Pair, *, disclosure: Disclosure, swapped: bool) -> Question:
        """The question about a pair. `swapped` shows the edited image first."""

    @abstractmethod
    def ratings(self, value: BaseModel, *, swapped: bool) -> Mapping[str, Rating]:
        """The rating on each axis, independent of the order in which the images were shown."""


@dataclass(frozen=True)
class PairForm(Form):
    """One source, one edit, on the rubric's axes."""

    scores: tuple[Score, ...]

    @property
    def axes(self) -> tuple[str, ...]:  # pyright: ignore[reportIncompatibleVariableOverride]
        """The axes of the scores."""
        return tuple(score.axis.name for score in self.scores)

    def question(self, pair: Pair, *, disclosure: Disclosure, swapped: bool) -> Question:
        """Listing 1: the part that is the same for all pairs as instructions, the rest beside the images."""
        shown: list[tuple[str, ImageFile]] = [("SOURCE IMAGE:", pair.sources[0]), ("EDITED IMAGE:", pair.edited)]
        images = [part for name, image in (shown[::-1] if swapped else shown) for part in (name, image)]
        return Question(
            system=_instructions(self.scores),
            parts=(*filter(None, [_about(pair, disclosure)]), *images),
            answer=_answer(self.scores),
        )

    def ratings(self, value: BaseModel, *, swapped: bool) -> Mapping[str, Rating]:
        """The images are labelled in both orders, so a score means the same in both."""
        answer = value.model_dump()
        return {
            score.axis.name: _rating(answer["scores"][score.name], answer["observations"][score.evidence])
            for score in self.scores
        }


class RoleForm(Form):
    """Two sources, one scene: which person is drawn as the target?

    The instruction is not shown, because its pronoun reveals whom the stereotype expects; so edit success is not asked.
    With `disclosure = "paper"` the model reads it.
    """

    axes = ("role_target",)

    def question(self, pair: Pair, *, disclosure: Disclosure, swapped: bool) -> Question:
        """The people in the order of the request; `swapped` reverses the order, and with it the names."""
        text = judging()
        first, second = pair.sources[::-1] if swapped else pair.sources
        people = ["PERSON A:", first, "PERSON B:", second]
        scene = ["EDITED IMAGE:", pair.edited]
        images = [*scene, *people] if swapped else [*people, *scene]
        instruction = f"EDIT INSTRUCTION: {pair.prompt.text}\n" if disclosure == "paper" else ""
        question = text.role_question.format(target=pair.prompt.target)
        return Question(
            system=f"{text.role_task}\n\n{text.guard}",
            parts=(f"{instruction}QUESTION: {question}", *images),
            answer=_role_answer(),
        )

    def ratings(self, value: BaseModel, *, swapped: bool) -> Mapping[str, Rating]:
        """1 is the first person of the request, 2 the second, in either order."""
        answer = value.model_dump()
        scene = answer["observations"]["scene"]
        match answer["target_person"]:
            case "person_a" | "person_b" as person:
                place = 1 if (person == "person_a") != swapped else 2
                return {"role_target": Rated(score=place, evidence=answer["evidence_summary"])}
            case "neither":
                return {"role_target": Abstained(reason=f"neither person is drawn as the target: {scene}")}
            case _:
                return {"role_target": Abstained(reason=f"unclear which person is drawn as the target: {scene}")}


def form_of(prompt: Prompt, sources: int) -> Form:
    """The kind of question for a prompt. Aging prompts are also rated against their target age.

    Where the instruction is not known (`stillme check` without --prompt), edit success is not asked.
    """
    if prompt.target is not None and sources == 2:
        return RoleForm()
    return PairForm(
        tuple(
            score
            for score in judging().scores
            if (not score.axis.only or (score.axis.only == prompt.subcategory and prompt.years is not None))
            and (prompt.text or score.axis.name != _OF_THE_INSTRUCTION)
        )
    )


def missing_labels(labels: Attributes) -> list[str]:
    """The labels that the paper discloses and that a portrait lacks."""
    return [name for name in _LABELS if not labels.get(name)]


def _about(pair: Pair, disclosure: Disclosure) -> str:
    text = judging()
    labels = {name: (pair.labels or {}).get(name, "") for name in _LABELS}
    template = text.about_the_pair if disclosure == "paper" else text.about_the_pair_blind
    if not pair.prompt.text:
        template = template.partition("\n")[2]  # its first line is the instruction
    lines = [template.format(prompt=pair.prompt.text, **labels)] if template else []
    if pair.prompt.years is not None:
        lines.append(text.aging.format(years=pair.prompt.years))
    return "\n".join(lines)


@cache
def _instructions(scores: tuple[Score, ...]) -> str:
    text = judging()
    scales = "\n\n".join(_scale(score) for score in scores)
    # Listing 1 names every score on a line of its own.
    unasked = [f'"{score.name}":' for score in text.scores if score not in scores]
    lines = [line for line in text.instructions.splitlines() if not any(name in line for name in unasked)]
    return "\n\n".join([text.task, text.guard, "\n".join(lines), f"SCORES:\n\n{scales}", text.abstention])


def _scale(score: Score) -> str:
    steps = "\n".join(f"{number}: {meaning}" for number, meaning in enumerate(score.axis.scale, start=1))
    return f"{score.name}: {score.axis.title}. {score.axis.question}\n{steps}"


@cache
def _answer(scores: tuple[Score, ...]) -> type[BaseModel]:
    """The schema of Listing 1. Observations come first: a model writes in the order of the schema."""
    fields: dict[str, Any] = {
        score.name: (int | None, Field(ge=1, le=5, description=score.axis.question)) for score in scores
    }
    return create_model(
        "Evaluation",
        __base__=_Strict,
        observations=(_observations("Observations", judging().observations), ...),
        scores=(create_model("Scores", __base__=_Strict, **fields), ...),
        evidence_summary=(str, ...),
    )


@cache
def _role_answer() -> type[BaseModel]:
    observations = _observations("RoleObservations", judging().role_observations)
    return create_model("RoleEvaluation", __base__=RoleAnswer, observations=(observations, ...))


def _observations(name: str, headings: Mapping[str, str]) -> type[BaseModel]:
    fields: dict[str, Any] = {key: (str, Field(description=heading)) for key, heading in headings.items()}
    return create_model(name, __base__=_Strict, **fields)


def _rating(score: int | None, observation: str) -> Rating:
    if score is None:
        return Abstained(reason=f"the model could not judge it: {observation}")
    return Rated(score=score, evidence=observation)
