"""Black Forest Labs' own API: FLUX.2 and FLUX.1 Kontext, over plain HTTP.

https://docs.bfl.ai/api_integration/integration_guidelines and …/api_integration/errors. A request is queued; its answer
names the address to poll, which may be another host of theirs. The link to the picture expires after ten minutes.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, ClassVar, Literal, cast
from urllib.parse import urlsplit

from pydantic import BaseModel

from stillme.editors.hosted import catalogue
from stillme.editors.hosted.catalogue import Usage
from stillme.editors.hosted.editor import Answer, Call
from stillme.editors.hosted.faults import Declined, JobGone, unexpected_answer
from stillme.editors.hosted.json_client import JsonClient, Reply, download, poll
from stillme.editors.hosted.queued import Resuming, ResumingParameters
from stillme.json_paths import dig
from stillme.protocols import Needs
from stillme.types import Json

_KNOWN = catalogue.service("bfl")
_UNDER_WAY = frozenset({"Pending", "Processing"})
_REFUSALS = {"Request Moderated": Usage(), "Content Moderated": Usage(images=1)}
"""Content is moderated after it was made, and counted as paid for; whether it is charged is not documented."""


class BflParameters(ResumingParameters):
    """A FLUX model: the name is the last part of its address, such as `flux-kontext-pro`."""

    model: str = _KNOWN.default
    base_url: str = _KNOWN.base_url
    """Also `https://api.eu.bfl.ai` or `https://api.us.bfl.ai`, to stay in a region."""
    output_format: Literal["png", "jpeg"] = "png"
    prompt_upsampling: bool = False
    """Let the service rewrite the instruction."""


class Bfl(Resuming):
    """FLUX models by Black Forest Labs."""

    Parameters: ClassVar[type[BaseModel]] = BflParameters
    needs: ClassVar[Needs] = Needs(modules=("httpx2",), extra="hosted", variables=("BFL_API_KEY",))
    service: ClassVar[str] = "bfl"
    key_variable: ClassVar[str] = "BFL_API_KEY"
    reserved: ClassVar[frozenset[str]] = frozenset({"input_image", "prompt", "prompt_upsampling", "seed"})

    def __init__(self, parameters: BflParameters) -> None:
        self._bfl = parameters
        super().__init__(parameters)
        self.capabilities = replace(self.capabilities, rewrites_prompt=parameters.prompt_upsampling)

    def _headers(self, key: str) -> Mapping[str, str]:
        return {"x-key": key}

    def _submit(self, client: JsonClient, call: Call) -> str:
        queued = _checked(client.send("POST", f"/v1/{self._bfl.model}", body=self._fields(call))).require_json()
        return "".join(place_of(dig(queued, "polling_url"), self._bfl.base_url))

    def _collect(self, client: JsonClient, job: str, call: Call) -> Answer:
        host, path = place_of(job, self._bfl.base_url)
        with self._cluster(client, host) as cluster:
            result = poll(
                lambda: _checked(cluster.send("GET", path)),
                lambda body: dig(body, "status") not in _UNDER_WAY,
                self.polling,
            )
        return self._answer(result, call)

    @contextmanager
    def _cluster(self, client: JsonClient, host: str) -> Generator[JsonClient]:
        """The host that has the job."""
        if host == client.base_url:
            yield client
            return
        cluster = JsonClient(host, self._headers(self._key(host)), timeout=self._bfl.timeout)
        try:
            yield cluster
        finally:
            cluster.close()

    def _fields(self, call: Call) -> dict[str, Any]:
        names = ["input_image", *(f"input_image_{number}" for number in range(2, len(call.pictures) + 1))]
        encoded = [picture.data_uri.partition(",")[2] for picture in call.pictures]
        return {
            "prompt": call.instruction,
            **dict(zip(names, encoded, strict=True)),
            "seed": call.seed,
            "output_format": self._bfl.output_format,
            "prompt_upsampling": self._bfl.prompt_upsampling,
            **self._bfl.extra,
        }

    def _answer(self, result: Json, call: Call) -> Answer:
        status, reasons = str(dig(result, "status")), dig(result, "details", "Moderation Reasons")
        if status in _REFUSALS:
            words = ", ".join(map(str, cast("list[Json]", reasons))) if isinstance(reasons, list) else ""
            raise Declined(words or status, signal=f"status = {status}", usage=_REFUSALS[status])
        if status != "Ready":
            raise JobGone(f"the job ended with {status!r}: {dig(result, 'details') or 'no explanation'}")
        used, seed = dig(result, "result", "prompt"), dig(result, "result", "seed")
        rewritten = {"revised_prompt": used} if used and used != call.instruction else {}
        image = download(dig(result, "result", "sample"), timeout=self._bfl.timeout, interval=self._bfl.poll_seconds)
        return Answer(image=image, effective={**({"seed": seed} if seed is not None else {}), **rewritten})


def place_of(link: Json, base_url: str) -> tuple[str, str]:
    """Host and path of queued work. The key is sent to the host that the audit names and to those of bfl.ai only."""
    text = link if isinstance(link, str) else ""
    asked, known = urlsplit(text), urlsplit(base_url)
    here = asked.netloc and (asked.scheme, asked.netloc) == (known.scheme, known.netloc)
    cluster = asked.scheme == "https" and (asked.hostname or "").endswith(".bfl.ai")
    if not (here or cluster):
        raise unexpected_answer("no link to the queued work", link)
    host = f"{asked.scheme}://{asked.netloc}"
    return host, text.removeprefix(host)


def _checked(reply: Reply) -> Reply:
    detail: Json = dig(reply.body, "detail")
    entries = cast("list[Json]", detail) if isinstance(detail, list) else [detail]
    return reply.require_success("; ".join(str(dig(entry, "msg") or entry) for entry in entries if entry))
