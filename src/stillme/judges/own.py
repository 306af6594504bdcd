"""A judge of your own: a function, a program, or a web address.

- `use = "python:my_module:rate"`, where `def rate(source, edited, instruction)` is enough.
- `use = "command"`, `run = "python rate.py {source} {edited} {instruction}"`; the program prints JSON.
- `use = "http"`, with a template of what is sent and the paths of the scores.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

from pydantic import Field, ValidationError, model_validator

from stillme.core import images
from stillme.core.endpoints import ApiServer, EndpointParameters
from stillme.core.errors import InvalidParameters, Refusal
from stillme.core.functions import Function, FunctionParameters, name_of
from stillme.core.http.replies import CallDeclined, CallFailed, Reply, Usage
from stillme.core.images.sending import encode_as_png
from stillme.core.json_paths import follow
from stillme.core.placeholders import fill_json
from stillme.core.programs.program import Program, ProgramParameters, write_picture
from stillme.core.protocols import Judge, JudgeCapabilities, Needs
from stillme.core.redaction import shortened
from stillme.core.rubric import AXES
from stillme.core.types import UNPRICED, Abstained, Assessment, Failed, Json, Pair, Portrait, Prompt, Rating
from stillme.judges.stated import NO_REASON, Kind, StatedScores, WrongScores, ratings_of, ratings_of_reading

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


OF_A_PROGRAM = ("source", "source2", "edited", "instruction", "epoch")


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
        yield from self._program.problems(OF_A_PROGRAM, ("edited",))

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


OF_A_SERVER = (
    *("source", "source_data_uri", "source2", "source2_data_uri", "edited", "edited_data_uri"),
    *("instruction", "epoch"),
)


class HttpJudgeParameters(StatedScores, EndpointParameters):
    """A server that judges, and where its answer holds the scores."""

    answer: str = ""
    """Path of the scores, as an object or as text that holds one, such as `choices.0.message.content`."""
    paths: dict[str, str] = {}
    """Below `answer`, the path of an axis that has another name there, such as `{ skin_tone = "skin.score" }`."""


class HttpJudge(Judge):
    """Any server that takes JSON and returns scores: by `url`, `template` and `answer`."""

    Parameters = HttpJudgeParameters
    name = "http"
    needs = Needs(modules=("httpx2",), extra="hosted")

    def __init__(self, parameters: HttpJudgeParameters) -> None:
        super().__init__(parameters)
        self._settings = parameters
        self._server = ApiServer(parameters.url, parameters.headers, parameters)
        self.capabilities = JudgeCapabilities(
            kind=parameters.kind, axes=parameters.axes, concurrency=parameters.concurrency
        )

    def problems(self, portraits: Sequence[Portrait], prompts: Sequence[Prompt]) -> Iterator[str]:
        """Placeholders that are unknown or missing, paths of other axes, and keys that are missing or sent openly."""
        yield from self._settings.template_problems(OF_A_SERVER, ("edited",))
        yield from self._server.problems()
        for axis in self._settings.paths:
            if axis not in self._settings.axes:
                yield f"`paths.{axis}` is for an axis that `axes` does not list; add it there, or remove the path"

    @property
    def provider(self) -> str:
        """The server's address."""
        return self._server.host

    def expected_dollars(self) -> float | None:
        """The price that the audit gives; None if unknown."""
        return self._settings.dollars

    def close(self) -> None:
        """Close the connections. The next call opens them again."""
        self._server.close()

    def judge_one(self, pair: Pair) -> Assessment:
        """Ask the server once."""
        raw = None
        try:
            reply = self._reply(pair)
            raw = self._server.redacted(reply.text)
            ratings = ratings_of(self._scores(reply), axes=self.capabilities.axes, prompt=pair.prompt, who="the server")
        except CallDeclined as declined:
            reason = Abstained(reason=self._server.redacted(declined.message) or NO_REASON)
            return self.alike(reason, **(self._charged if declined.usage.images else {}))
        except CallFailed as failure:
            unknown = failure.usage.unknown and self._settings.dollars != 0
            effective: Mapping[str, Json] = UNPRICED if unknown else {}
            error = shortened(self._server.redacted(failure.failed.error))
            return self.alike(replace(failure.failed, error=error, effective=effective), effective=effective)
        except WrongScores as error:
            words = f"{error}; the answer: {shortened(raw or '') or 'empty'}"
            return self.alike(Failed(error=words, retryable=True, **self._charged), raw=raw, **self._charged)
        return Assessment(ratings=ratings, raw=raw, **self._charged)

    def _reply(self, pair: Pair) -> Reply:
        values: dict[str, object] = {"source2": None, "source2_data_uri": None}
        sources = dict(zip(("source", "source2"), pair.sources, strict=False))
        for place, image in {**sources, "edited": pair.edited}.items():
            picture = encode_as_png(image.path)
            values |= {place: picture.base64, f"{place}_data_uri": picture.data_uri}
        body = fill_json(self._settings.template, values | {"instruction": pair.prompt.text, "epoch": pair.epoch})
        reply = self._server.connected().send(self._settings.method, self._settings.url, body=body)
        for mark in self._settings.marks:
            if mark.found(reply.body) is not None:
                answered = Usage(images=1 if reply.status < 300 else 0)
                raise CallDeclined(mark.message(reply.body), signal=mark.path, usage=answered)
        return reply.require_success()

    @property
    def _charged(self) -> Mapping[str, Any]:
        """What an answered call costs."""
        dollars = self._settings.dollars
        return {"effective": UNPRICED, "cost": 0.0} if dollars is None else {"effective": {}, "cost": dollars}

    def _scores(self, reply: Reply) -> Json:
        """What the answer holds of each axis; fields that are no axis are left alone, as it is the server's format."""
        body = follow(reply.body, self._settings.answer)
        stated = _object_in(body) if isinstance(body, str) else body
        if not isinstance(stated, Mapping):
            raise WrongScores(f"there are no scores at {self._settings.answer or 'the top of the answer'!r}")
        scores: dict[str, Any] = {}
        for axis in self.capabilities.axes:
            path = self._settings.paths.get(axis, axis)
            holder, _, last = path.rpartition(".")
            parent = follow(cast("Json", stated), holder)
            # A null is an abstention; a field that is missing is a fault.
            if isinstance(parent, list) or (isinstance(parent, Mapping) and last in parent):
                scores[axis] = follow(cast("Json", parent), last)
        return scores


def _object_in(text: str) -> Json:
    """The JSON object inside a text: models put a fence or a sentence around it."""
    try:
        return json.loads(text[text.index("{") : text.rindex("}") + 1])
    except ValueError:
        return None
