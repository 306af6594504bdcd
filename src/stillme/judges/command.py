"""A program as a judge: `use = "command"`, `run = "python rate.py {source} {edited} {instruction}"`; it prints JSON."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from stillme.core.programs.program import Program, ProgramParameters, write_picture
from stillme.core.protocols import Judge, JudgeCapabilities
from stillme.core.types import Abstained, Assessment, Failed, Json, Pair, Portrait, Prompt
from stillme.judges.stated_scores import StatedScores, WrongScores, ratings_of

PLACEHOLDERS = ("source", "source2", "edited", "instruction", "epoch")


class JudgeCommandParameters(StatedScores, ProgramParameters):
    """Which program judges, and what it answers."""


class CommandJudge(Judge):
    """A program of your own, in any language, that prints its scores as JSON: `run` is its command line."""

    Parameters = JudgeCommandParameters

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

    def close(self) -> None:
        """Kill what still runs."""
        self._program.close()

    def judge_one(self, pair: Pair) -> Assessment:
        """Start the program once."""
        with tempfile.TemporaryDirectory(prefix="stillme-") as name:
            scratch = Path(name)
            values: dict[str, object] = {"source2": "", "instruction": pair.prompt.text, "epoch": pair.epoch}
            for place, picture in zip(("source", "source2"), pair.sources, strict=False):
                values[place] = write_picture(picture.path, scratch / f"{place}.png")
            values["edited"] = write_picture(pair.edited.path, scratch / "edited.png")
            finished = self._program.call(values, scratch)
        if isinstance(finished, Failed):
            return self.alike(finished)
        if (words := finished.refusal) is not None:
            return self.alike(Abstained(reason=words), raw=finished.output, cost=self._price)
        try:
            scores = ratings_of(_parsed(finished.output), axes=self.capabilities.axes, prompt=pair.prompt, who="it")
        except WrongScores as error:
            return self.alike(Failed(error=str(error), retryable=True), raw=finished.output, cost=self._price)
        return Assessment(ratings=scores, raw=finished.output, cost=self._price)


def _parsed(output: str) -> Json:
    """The whole output as JSON, or else its last line: libraries print what they like before."""
    lines = output.strip().splitlines()
    for text in (output, *lines[-1:]):
        try:
            return json.loads(text)
        except ValueError:
            continue
    raise WrongScores(f"it printed no JSON, but {lines[-1][:200]!r}" if lines else "it printed nothing; print JSON")
