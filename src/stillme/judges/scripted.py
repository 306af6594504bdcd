"""A judge with scripted answers, for tests and for measuring everything around a judge."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import ClassVar, Literal

from pydantic import BaseModel, Field

from stillme.core.protocols import JudgeCapabilities, Needs, Parameters, spec_of
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


class Scripted:
    """Gives every pair the same scripted answer; for tests and speed measurements."""

    Parameters: ClassVar[type[BaseModel]] = ScriptedParameters
    needs: ClassVar[Needs] = Needs()

    def __init__(self, parameters: ScriptedParameters) -> None:
        self._parameters = parameters
        self.spec = spec_of("scripted", "1", parameters)
        self.capabilities = JudgeCapabilities(kind="model", axes=tuple(parameters.scores), batch=16)

    def judge(self, pairs: Sequence[Pair]) -> Iterator[Assessment]:
        """The same answer for every pair."""
        for pair in pairs:
            yield Assessment(ratings={axis: self._answer(axis, pair) for axis in self._parameters.scores})

    def close(self) -> None:
        """Nothing to release."""

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
