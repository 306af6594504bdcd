"""Dummy keys, images, and models with their loopback servers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from stillme.core.types import ImageFile
from stillme.judges.vlm import Model
from tests.editors.hosted.loopback import Loopback, serving
from tests.vlm.servers import Script, Scripted, WireFormat, set_keys, write_images


@pytest.fixture(autouse=True)
def _keys(monkeypatch: pytest.MonkeyPatch) -> None:
    set_keys(monkeypatch)


@pytest.fixture
def images(tmp_path: Path) -> list[ImageFile]:
    """Two different images."""
    return write_images(tmp_path, 24, 24)


class ServedModel:
    """A model and its provider's loopback server."""

    def __init__(self, server: Loopback, wire: WireFormat, model: Model) -> None:
        self.server, self.wire, self.model = server, wire, model


@pytest.fixture
def serve() -> Iterator[Callable[..., ServedModel]]:
    """Start a provider with scripted answers: `serve(GEMINI, {"score": 4}, timeout=1)`."""
    with ExitStack() as stack:

        def build(wire: WireFormat, *answers: Any, script: Script | None = None, **settings: Any) -> ServedModel:
            handler = wire.handler(script or Scripted(list(answers)))
            server = stack.enter_context(serving(handler))
            model = Model(wire.settings(server.url, **settings))
            stack.callback(model.close)
            return ServedModel(server, wire, model)

        yield build
