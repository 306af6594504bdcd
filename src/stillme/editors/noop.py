"""The editor that edits nothing: a floor for measurements, and a baseline for speed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import ClassVar

from pydantic import BaseModel

from stillme.core.protocols import Capabilities, Needs, Parameters, spec_of
from stillme.core.types import Edited, EditOutcome, Failed, Request


class Noop:
    """Returns the portrait as it is, byte for byte."""

    Parameters: ClassVar[type[BaseModel]] = Parameters
    needs: ClassVar[Needs] = Needs()

    def __init__(self, parameters: BaseModel) -> None:
        self.spec = spec_of("noop", "1", parameters)
        self.capabilities = Capabilities(inputs=1, batching="per_item", batch=16, seed="exact")

    def edit(self, requests: Sequence[Request]) -> Iterator[EditOutcome]:
        """The portrait of each request."""
        for request in requests:
            yield _same(request)

    def close(self) -> None:
        """Nothing is held."""


def _same(request: Request) -> EditOutcome:
    portrait, *more = request.portraits
    if more:
        return Failed(error=f"takes one portrait, not {len(request.portraits)}", retryable=False)
    try:
        return Edited(image=portrait.image.read())
    except OSError as error:
        return Failed(error=f"cannot read portrait {portrait.id!r}: {error}", retryable=False)
