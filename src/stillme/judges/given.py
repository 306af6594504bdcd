"""Judges whose answers are given: by people, by an import, by a script.

    [[judges]]
    use = "imported"
    name = "our raters"
    epochs = 3
    [judges.parameters]
    source = "raters, spring 2026"
    kind = "person"
    axes = ["edit_success", "skin_tone"]

The rows of raters and of an import are in the ledger under the judge's specification, so it is never asked.
"""

from __future__ import annotations

from typing import Literal

from pydantic import Field, field_validator

from stillme.core import rubric
from stillme.core.errors import did_you_mean
from stillme.core.protocols import Judge, JudgeCapabilities, Parameters, spec_of
from stillme.core.types import Abstained, Assessment, Failed, Pair, Rated, Rating, digest


class PeopleParameters(Parameters):
    """None: the study says who was asked what."""


class People(Judge):
    """Ratings by people, from a human study; `epochs` is the largest number of ratings per edit."""

    Parameters = PeopleParameters

    def __init__(self, parameters: PeopleParameters) -> None:
        self.spec = spec_of("people", rubric.load().version, parameters)
        asked = tuple(name for name, axis in rubric.load().axes.items() if axis.is_asked)
        self.capabilities = JudgeCapabilities(kind="person", axes=asked, given=True)

    def judge_one(self, pair: Pair) -> Assessment:
        """Abstain: `stillme study close` adds the ratings."""
        return self.alike(Abstained(reason="no one has rated this edit in a study"))


class ImportedParameters(Parameters):
    """Where the scores come from, and their axes."""

    source: str = Field(min_length=1)
    """Where the scores come from. Another source is another judge."""
    kind: Literal["model", "instrument", "person"] = "model"
    """People are compared with the other judges and never averaged with them."""
    axes: tuple[str, ...] = Field(min_length=1)
    """The axes that are scored, by their names in the rubric."""

    @field_validator("axes")
    @classmethod
    def _are_known(cls, axes: tuple[str, ...]) -> tuple[str, ...]:
        known = rubric.load().axes
        for axis in axes:
            if axis not in known:
                raise ValueError(f"there is no axis {axis!r}.{did_you_mean(axis, known)} Known: {', '.join(known)}")
        # In a fixed order, so that the same axes have the same key.
        return tuple(name for name in known if name in axes)


class Imported(Judge):
    """Scores made elsewhere, imported with `stillme import rows`."""

    Parameters = ImportedParameters

    def __init__(self, parameters: ImportedParameters) -> None:
        super().__init__(parameters)
        self.source = parameters.source
        self.capabilities = JudgeCapabilities(kind=parameters.kind, axes=parameters.axes, given=True)

    def judge_one(self, pair: Pair) -> Assessment:
        """Abstain: the scores are in the ledger."""
        return self.alike(Abstained(reason=f"{self.source!r} has no imported score for this edit"))


class ScriptedParameters(Parameters):
    """What the scripted judge answers."""

    scores: dict[str, float] = {
        "edit_success": 5,
        "skin_tone": 3,
        "race_change": 1,
        "gender_change": 1,
        "age_change": 3,
    }
    """The answer on each axis."""
    outcome: Literal["rate", "abstain", "fail"] = "rate"
    share: float = Field(default=0.0, ge=0, le=1)
    """The share of pairs, selected by hash, that get `otherwise` instead of `outcome`."""
    otherwise: Literal["rate", "abstain", "fail"] = "abstain"


class Scripted(Judge):
    """Gives every pair the same scripted answer; for tests and speed measurements."""

    Parameters = ScriptedParameters

    def __init__(self, parameters: ScriptedParameters) -> None:
        super().__init__(parameters)
        self._parameters = parameters
        self.capabilities = JudgeCapabilities(kind="model", axes=tuple(parameters.scores), batch=16)

    def judge_one(self, pair: Pair) -> Assessment:
        """The same answer for every pair."""
        return Assessment(ratings={axis: self._answer(axis, pair) for axis in self._parameters.scores})

    def _answer(self, axis: str, pair: Pair) -> Rating:
        script = self._parameters
        selected = script.share > 0 and int(digest([pair.edit, pair.epoch])[:8], 16) / 2**32 < script.share
        match script.otherwise if selected else script.outcome:
            case "rate":
                return Rated(score=script.scores[axis])
            case "abstain":
                return Abstained(reason="scripted")
            case "fail":
                return Failed(error="scripted", retryable=False)
