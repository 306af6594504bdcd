"""A judge with scripted answers, for tests and for measuring everything around a judge."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from stillme.core.protocols import Judge, JudgeCapabilities, Parameters
from stillme.core.types import Abstained, Assessment, Failed, Pair, Rated, Rating, digest


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
