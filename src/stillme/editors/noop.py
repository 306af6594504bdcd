"""The editor that edits nothing: a floor for measurements and a peer for speed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import ClassVar

from pydantic import BaseModel

from stillme.protocols import Capabilities, Needs, Parameters, spec_of
from stillme.types import Edited, EditOutcome, Request


class Noop:
    """Returns the portrait as it is, byte for byte."""

    Parameters: ClassVar[type[BaseModel]] = Parameters
    needs: ClassVar[Needs] = Needs()

    def __init__(self, parameters: BaseModel) -> None:
        self.spec = spec_of("noop", "1", parameters)
        self.capabilities = Capabilities(inputs=1, batching="per_item", batch=16, seed="exact")

    def edit(self, requests: Sequence[Request]) -> Iterator[EditOutcome]:
        """The first portrait of each request."""
        for request in requests:
            yield Edited(image=request.portraits[0].image.read())

    def close(self) -> None:
        """Nothing is held."""
