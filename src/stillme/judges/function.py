"""A function as a judge: `use = "python:my_module:rate"`, where `def rate(source, edited, instruction)` is enough."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any, cast

from pydantic import Field, ValidationError, model_validator

from stillme.core import images
from stillme.core.errors import InvalidParameters, Refusal
from stillme.core.functions import Function, FunctionParameters, name_of
from stillme.core.protocols import Judge, JudgeCapabilities
from stillme.core.rubric import AXES
from stillme.core.types import Abstained, Assessment, Failed, Pair, Portrait, Prompt, Rating
from stillme.judges.readings import ratings_of_reading
from stillme.judges.stated_scores import NO_REASON, Kind, StatedScores, WrongScores, ratings_of

SUPPLIED = ("source", "sources", "edited", "instruction", "prompt", "epoch")
"""What a function may ask for, by the names of its parameters."""
SUPPLIED_TO_READERS = ("image", "sha256", "epoch")
"""What a function may ask for that reads single pictures; by the hash it finds readings that were made elsewhere."""


class JudgeFunctionParameters(StatedScores, FunctionParameters):
    """Which function judges, and what it answers."""

    reads: tuple[str, ...] = Field(default=(), exclude=True)
    """Set by [readings]: the words for apparent race. The function is then `def read(image)` and says what one picture
    shows, as a dict of `race`, `gender` (masculine, feminine, androgynous) and `age`; None is what it cannot tell."""

    @model_validator(mode="before")
    @classmethod
    def _readers_answer_the_axes_of_readings(cls, given: Any) -> Any:
        if isinstance(given, dict) and cast("dict[str, Any]", given).get("reads"):
            return {**cast("dict[str, Any]", given), "axes": AXES}
        return cast("Any", given)


class FunctionJudge(Judge):
    """A Python function of your own: `python:my_module:rate` or `python:./rate.py:rate`."""

    Parameters = JudgeFunctionParameters
    shorthand = "function"
    runs_foreign_code = True

    def __init__(self, parameters: JudgeFunctionParameters, function: Callable[..., Any] | None = None) -> None:
        self._function = Function.of(parameters, function)
        self._reads = parameters.reads
        spec = self._function.spec(parameters)
        reads = {"reads": list(self._reads)} if self._reads else {}
        self.spec = replace(spec, parameters={**spec.parameters, **reads})
        self.capabilities = JudgeCapabilities(
            kind=parameters.kind, axes=parameters.axes, concurrency=parameters.concurrency
        )

    @classmethod
    def of(
        cls,
        function: Callable[..., Any],
        name: str | None = None,
        *,
        axes: Sequence[str],
        kind: Kind = "model",
        **settings: Any,
    ) -> FunctionJudge:
        """A judge from a function at hand. `settings` are those of audit.toml: `arguments`, `version`, …"""
        name, given = name or name_of(function), {"axes": tuple(axes), "kind": kind, **settings}
        try:
            return cls(JudgeFunctionParameters.model_validate({"function": name, **given}), function)
        except ValidationError as error:
            raise InvalidParameters(f"The judge {name!r}", error, JudgeFunctionParameters, given) from None

    def problems(self, portraits: Sequence[Portrait], prompts: Sequence[Prompt]) -> Iterator[str]:
        """Parameters of the function that are not supplied, and arguments that it does not have."""
        yield from self._function.problems(SUPPLIED_TO_READERS if self._reads else SUPPLIED)

    def judge_one(self, pair: Pair) -> Assessment:
        """Call the function once."""
        sources = [images.read_picture(source.path) for source in pair.sources]
        edited = images.read_picture(pair.edited.path)
        pictures = (
            {"image": edited, "sha256": pair.edited.sha256}
            if self._reads
            else {"source": sources[0], "sources": sources, "edited": edited}
        )
        words = {} if self._reads else {"instruction": pair.prompt.text, "prompt": pair.prompt.text}
        supplied = {**pictures, **words, "epoch": pair.epoch}
        try:
            answer = self._function(supplied)
        except Refusal as refusal:
            return self.alike(Abstained(reason=str(refusal) or NO_REASON))
        except (Exception, SystemExit) as error:
            return self.alike(Failed(error=f"{type(error).__name__}: {error}", retryable=True))
        try:
            ratings = self._ratings(answer, pair)
        except WrongScores as error:
            # Not final: with a fixed `version`, a corrected function has the same key.
            return self.alike(Failed(error=str(error), retryable=True, retry_after=0.0))
        return Assessment(ratings=ratings, raw=json.dumps(answer, default=str, ensure_ascii=False))

    def _ratings(self, answer: object, pair: Pair) -> dict[str, Rating]:
        who = repr(self._function.name)
        if self._reads:
            return ratings_of_reading(answer, self._reads, who=who)
        return ratings_of(answer, axes=self.capabilities.axes, prompt=pair.prompt, who=who)
