"""A web address as a judge: `use = "http"`, with a template of what is sent and the paths of the scores."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, cast

from stillme.core.endpoints import ApiServer, EndpointParameters
from stillme.core.http.replies import CallDeclined, CallFailed, Reply, Usage
from stillme.core.images.sending import encode_as_png
from stillme.core.json_paths import follow
from stillme.core.placeholders import fill_json
from stillme.core.protocols import Judge, JudgeCapabilities, Needs
from stillme.core.redaction import shortened
from stillme.core.types import UNPRICED, Abstained, Assessment, Failed, Json, Pair, Portrait, Prompt
from stillme.judges.stated_scores import NO_REASON, StatedScores, WrongScores, ratings_of

PLACEHOLDERS = (
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
        yield from self._settings.template_problems(PLACEHOLDERS, ("edited",))
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
