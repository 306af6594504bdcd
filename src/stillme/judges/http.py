"""A web address as a judge: `use = "http"`, with a template of what is sent and the paths of the scores."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar, Literal, cast

from pydantic import BaseModel, Field

from stillme.core.endpoints import Endpoint, EndpointParameters, Refusing, encoded
from stillme.core.errors import UnreadableImage
from stillme.core.http.replies import Reply
from stillme.core.json_paths import follow
from stillme.core.protocols import JudgeCapabilities, Needs, spec_of
from stillme.core.types import Abstained, Assessment, Failed, Json, Pair, Portrait, Prompt, Rating
from stillme.judges.stated_scores import WrongScores, ratings_of

PLACEHOLDERS = (
    *("source", "source_data_uri", "source2", "source2_data_uri", "edited", "edited_data_uri"),
    *("instruction", "epoch"),
)


class HttpJudgeParameters(EndpointParameters):
    """A server that judges, and where its answer holds the scores."""

    axes: tuple[str, ...] = Field(min_length=1)
    """The axes that it answers for every pair: the rubric's, or names of your own."""
    kind: Literal["model", "instrument", "person", "ensemble"] = "model"
    """Only models are combined to an ensemble, unless the audit names its judges."""
    answer: str = ""
    """Path of the scores, as an object or as text that holds one, such as `choices.0.message.content`."""
    paths: dict[str, str] = {}
    """Below `answer`, the path of an axis that has another name there, such as `{ skin_tone = "skin.score" }`."""


class HttpJudge:
    """Any server that takes JSON and returns scores: by `url`, `template` and `answer`."""

    Parameters: ClassVar[type[BaseModel]] = HttpJudgeParameters
    needs: ClassVar[Needs] = Needs(modules=("httpx2",), extra="hosted")

    def __init__(self, parameters: HttpJudgeParameters) -> None:
        self._endpoint = Endpoint(parameters)
        self._settings = parameters
        self.spec = spec_of("http", "1", parameters)
        self.capabilities = JudgeCapabilities(
            kind=parameters.kind, axes=parameters.axes, concurrency=parameters.concurrency
        )

    def problems(self, portraits: Sequence[Portrait], prompts: Sequence[Prompt]) -> Iterator[str]:
        """Placeholders that are unknown or missing, paths of other axes, and keys that are missing or sent openly."""
        yield from self._endpoint.address.template_problems(PLACEHOLDERS, ("edited",))
        yield from self._endpoint.address.problems()
        for axis in self._settings.paths:
            if axis not in self._settings.axes:
                yield f"`paths.{axis}` is for an axis that `axes` does not list; add it there, or remove the path"

    @property
    def provider(self) -> str:
        """The server's address."""
        return self._endpoint.address.server

    def expected_dollars(self) -> float | None:
        """The price that the audit gives; None if unknown."""
        return self._endpoint.address.price

    def judge(self, pairs: Sequence[Pair]) -> Iterator[Assessment]:
        """One call per pair."""
        for pair in pairs:
            yield self._assessment(pair)

    def close(self) -> None:
        """Close the connections. The next call opens them again."""
        self._endpoint.close()

    def _assessment(self, pair: Pair) -> Assessment:
        values: dict[str, object] = {
            "source2": None,
            "source2_data_uri": None,
            "instruction": pair.prompt.text,
            "epoch": pair.epoch,
        }
        try:
            for place, source in zip(("source", "source2"), pair.sources, strict=False):
                values |= encoded(place, source.path)
            values |= encoded("edited", pair.edited.path)
        except (UnreadableImage, OSError) as error:
            return self._alike(Failed(error=str(error), retryable=False))
        answer = self._endpoint.ask(values)
        match answer:
            case Failed():
                return self._alike(answer)
            case Refusing():
                return self._alike(Abstained(reason=answer.message), charged=answer.charged)
            case Reply():
                return self._rated(answer, pair.prompt)

    def _rated(self, reply: Reply, prompt: Prompt) -> Assessment:
        raw = self._endpoint.redacted(reply.text)
        try:
            ratings = ratings_of(self._scores(reply), axes=self.capabilities.axes, prompt=prompt, who="the server")
        except WrongScores as error:
            failed = self._endpoint.failed(f"{error}; the answer: {self._endpoint.shown(reply.text) or 'empty'}")
            return self._alike(failed, raw=raw, charged=True)
        return Assessment(
            ratings=ratings, raw=raw, effective=self._endpoint.unknown_cost, cost=self._endpoint.address.price or 0.0
        )

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

    def _alike(self, rating: Rating, *, raw: str | None = None, charged: bool = False) -> Assessment:
        cost = rating.cost if isinstance(rating, Failed) else (self._endpoint.address.price or 0.0) * charged
        effective = dict(self._endpoint.unknown_cost) if charged else dict[str, Json]()
        ratings = dict.fromkeys(self.capabilities.axes, rating)
        return Assessment(ratings=ratings, raw=raw, effective=effective, cost=cost)


def _object_in(text: str) -> Json:
    """The JSON object inside a text: models put a fence or a sentence around it."""
    try:
        return json.loads(text[text.index("{") : text.rindex("}") + 1])
    except ValueError:
        return None
