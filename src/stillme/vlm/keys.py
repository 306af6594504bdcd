"""API keys: read from the environment, and kept out of every message."""

from __future__ import annotations

import os

from stillme import redaction
from stillme.errors import StillmeError
from stillme.vlm.settings import ModelSettings


def key_of(settings: ModelSettings) -> str:
    """The key from the environment, or a placeholder for a server that needs none."""
    if not (name := settings.key_name):
        return "none"
    key = _key(name)
    if key and key.isascii():
        return key
    problem = "contains characters that no key has" if key else "is not set"
    raise StillmeError(f"{name} {problem}: run `export {name}=…` with your key.")


def redacted(text: str, settings: ModelSettings) -> str:
    """A provider's words without the key, which some repeat when they reject it. Redact before you truncate."""
    return redaction.redacted(text, _key(settings.key_name) if settings.key_name else "")


def _key(name: str) -> str:
    return os.environ.get(name, "").strip()
