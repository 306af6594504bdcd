"""A program as a judge: `use = "command"`, `run = "python rate.py {source} {edited} {instruction}"`; it prints JSON."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import ClassVar, Literal

from pydantic import BaseModel, Field

from stillme.core.errors import UnreadableImage
from stillme.core.programs.program import Program, ProgramParameters, write_picture
from stillme.core.protocols import JudgeCapabilities, Needs
from stillme.core.types import Abstained, Assessment, Failed, Json, Pair, Portrait, Prompt, Rating
from stillme.judges.stated_scores import WrongScores, ratings_of

PLACEHOLDERS = ("source", "source2", "edited", "instruction", "epoch")


class JudgeCommandParameters(ProgramParameters):
    """Which program judges, and what it answers."""

    axes: tuple[str, ...] = Field(min_length=1)
    """The axes that it answers for every pair: the rubric's, or names of your own."""
    kind: Literal["model", "instrument", "person", "ensemble"] = "model"
    """Only models are combined to an ensemble, unless the audit names its judges."""


class CommandJudge:
    """A program of your own, in any language, that prints its scores as JSON: `run` is its command line."""

    Parameters: ClassVar[type[BaseModel]] = JudgeCommandParameters
    needs: ClassVar[Needs] = Needs()

    def __init__(self, parameters: JudgeCommandParameters) -> None:
        self._program = Program(parameters)
        self._price = parameters.price
        self.spec = self._program.spec()
        self.capabilities = JudgeCapabilities(
            kind=parameters.kind, axes=parameters.axes, concurrency=parameters.concurrency
        )

    def problems(self, portraits: Sequence[Portrait], prompts: Sequence[Prompt]) -> Iterator[str]:
        """Placeholders that are unknown or missing, and a program that is not there."""
        yield from self._program.problems(PLACEHOLDERS, ("edited",))

    def expected_dollars(self) -> float:
        """The price that the audit gives."""
        return self._price

    def judge(self, pairs: Sequence[Pair]) -> Iterator[Assessment]:
        """One start per pair."""
        for pair in pairs:
            yield self._assessment(pair)

    def close(self) -> None:
        """Kill what still runs."""
        self._program.close()

    def _assessment(self, pair: Pair) -> Assessment:
        with tempfile.TemporaryDirectory(prefix="stillme-") as name:
            scratch = Path(name)
            values: dict[str, object] = {"source2": "", "instruction": pair.prompt.text, "epoch": pair.epoch}
            try:
                for place, picture in zip(("source", "source2"), pair.sources, strict=False):
                    values[place] = write_picture(picture.path, scratch / f"{place}.png")
                values["edited"] = write_picture(pair.edited.path, scratch / "edited.png")
            except (UnreadableImage, OSError) as error:
                return self._alike(Failed(error=str(error), retryable=False))
            finished = self._program.call(values, scratch)
        if isinstance(finished, Failed):
            return self._alike(finished)
        if (words := finished.refusal) is not None:
            return self._alike(Abstained(reason=words), raw=finished.output)
        try:
            scores = ratings_of(_parsed(finished.output), axes=self.capabilities.axes, prompt=pair.prompt, who="it")
        except WrongScores as error:
            return self._alike(Failed(error=str(error), retryable=True), raw=finished.output)
        return Assessment(ratings=scores, raw=finished.output, cost=self._price)

    def _alike(self, rating: Rating, *, raw: str | None = None) -> Assessment:
        # Charged are calls that ended well, and those have an output.
        cost = 0.0 if raw is None else self._price
        return Assessment(ratings=dict.fromkeys(self.capabilities.axes, rating), raw=raw, cost=cost)


def _parsed(output: str) -> Json:
    """The whole output as JSON, or else its last line: libraries print what they like before."""
    lines = output.strip().splitlines()
    for text in (output, *lines[-1:]):
        try:
            return json.loads(text)
        except ValueError:
            continue
    raise WrongScores(f"it printed no JSON, but {lines[-1][:200]!r}" if lines else "it printed nothing; print JSON")
