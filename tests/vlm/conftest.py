"""Keys that open nothing, pictures, and models at their loopback servers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from stillme.types import ImageFile
from stillme.vlm import Model
from tests.editors.hosted.loopback import Loopback, serving
from tests.vlm.servers import Script, Scripted, Speaker

KEY = "sk-loopback-0123456789"


@pytest.fixture(autouse=True)
def _keys(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("OPENAI_API_KEY", "GEMINI_API_KEY", "ANTHROPIC_API_KEY"):
        monkeypatch.setenv(name, KEY)
    monkeypatch.delenv("GOOGLE_API_KEY", raising=False)
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")


@pytest.fixture
def pictures(tmp_path: Path) -> list[ImageFile]:
    """Two pictures with something to see in each."""
    made = []
    for index in range(2):
        file = tmp_path / f"Black_woman_{index}.png"
        Image.fromarray(np.random.default_rng(index).integers(0, 255, (40, 24, 3), dtype=np.uint8)).save(file)
        made.append(ImageFile.of(file))
    return made


class Desk:
    """A model at its provider's loopback server."""

    def __init__(self, server: Loopback, speaker: Speaker, model: Model) -> None:
        self.server, self.speaker, self.model = server, speaker, model


@pytest.fixture
def at() -> Iterator[Callable[..., Desk]]:
    """Open a provider that answers by a script: `at(GEMINI, {"score": 4}, timeout=1)`."""
    with ExitStack() as open_ones:

        def build(speaker: Speaker, *answers: Any, script: Script | None = None, **settings: Any) -> Desk:
            behave = speaker.behave(script or Scripted(list(answers)))
            server = open_ones.enter_context(serving(behave))
            model = Model(speaker.settings(server.url, **settings))
            open_ones.callback(model.close)
            return Desk(server, speaker, model)

        yield build
