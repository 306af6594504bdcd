"""API keys: read from the environment, and kept out of every message."""

from __future__ import annotations

from stillme.core import redaction
from stillme.core.addresses import key_in, key_problem
from stillme.core.errors import StillmeError
from stillme.judges.vlm.settings import ModelSettings


def key_of(settings: ModelSettings) -> str:
    """The key from the environment, or a placeholder for a server that needs none."""
    if not (name := settings.key_name):
        return "none"
    if problem := key_problem(name):
        raise StillmeError(f"{problem}.")
    return key_in(name)


def redacted(text: str, settings: ModelSettings) -> str:
    """A provider's words without the key, which some repeat when they reject it. Redact before you truncate."""
    return redaction.redacted(text, key_in(settings.key_name))
