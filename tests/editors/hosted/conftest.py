"""Keys that open nothing, portraits, and running servers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from google.oauth2.credentials import Credentials

from stillme.core.protocols import Editor
from stillme.core.types import EditOutcome, Portrait, Request
from tests.editors.hosted.loopback import Loopback
from tests.editors.hosted.providers import Provider
from tests.pictures import noise
from tests.records import portrait, request

KEY = "hf_sk-loopback-0123456789"


@pytest.fixture(autouse=True)
def _keys(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("OPENAI", "GEMINI", "AZURE_OPENAI", "BFL", "DASHSCOPE"):
        monkeypatch.setenv(f"{name}_API_KEY", KEY)
    for name in ("FAL_KEY", "REPLICATE_API_TOKEN", "COMFYUI_TOKEN"):
        monkeypatch.setenv(name, KEY)
    monkeypatch.setattr("google.auth.default", lambda **_: (Credentials(token=KEY), "people"))
    monkeypatch.delenv("GOOGLE_API_KEY", raising=False)


@pytest.fixture
def people(tmp_path: Path) -> list[Portrait]:
    """Three portraits with something to see in each."""
    files = [noise(tmp_path / f"p{index}.png", 16, 16, seed=index) for index in range(3)]
    return [
        replace(portrait(file.path.stem, group=group), image=file) for file, group in zip(files, "aba", strict=True)
    ]


class Desk:
    """An editor at its provider's loopback server."""

    def __init__(self, server: Loopback, editor: Editor, people: list[Portrait]) -> None:
        self.server, self.editor, self.people = server, editor, people

    def request(self, *, portraits: int = 1, seed: int = 0) -> Request:
        return replace(request(seed=seed, editor=self.editor.spec), portraits=tuple(self.people[:portraits]))

    def ask(self, **what: Any) -> EditOutcome:
        (outcome,) = self.editor.edit([self.request(**what)])
        return outcome


@pytest.fixture
def at(people: list[Portrait], loopback: Callable[..., Loopback]) -> Iterator[Callable[..., Desk]]:
    """Open a provider and build its editor: `at(OPENAI, timeout=1)`."""
    with ExitStack() as open_ones:

        def build(provider: Provider, /, **parameters: Any) -> Desk:
            server = loopback(provider.behave)
            editor = provider.build(server.url, **parameters)
            open_ones.callback(editor.close)
            return Desk(server, editor, people)

        yield build
