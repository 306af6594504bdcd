"""The editor that edits nothing: a floor for measurements, and a baseline for speed."""

from __future__ import annotations

from stillme.core.protocols import Capabilities, Editor
from stillme.core.types import Edited, EditOutcome, Request


class Noop(Editor):
    """Returns the portrait as it is, byte for byte."""

    capabilities = Capabilities(batching="per_item", batch=16, seed="exact")

    def edit_one(self, request: Request) -> EditOutcome:
        """The portrait of the request."""
        return Edited(image=request.portraits[0].image.read())
