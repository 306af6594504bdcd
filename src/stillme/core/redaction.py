"""Keep keys, tokens and signed links out of what is stored or logged: servers and programs repeat them."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from typing import cast

from stillme.core.types import Json

_MAX_CHARACTERS = 600
"""Characters kept of a message: some servers answer with a whole web page."""
_SECRET_NAME = re.compile(r"(?:^|_)(?:api_?key|key|token|secret|password|passwd|credentials?)(?:_|$)", re.IGNORECASE)
_SHORTEST_KEY = 4
"""Characters of a given key; replacing fewer would spoil ordinary words."""
_SHORTEST_SECRET = 8
"""Characters of a variable's value, and of a key cut short, from which on they are replaced."""
_TOKEN = re.compile(r"\b(Bearer|Key|Token|Basic)\s+(?=\S*\d)[\w.~+/=:-]{8,}", re.IGNORECASE)
_STATED = re.compile(r"(api[-_]?key[\"']?\s*[:=]\s*[\"']?)[^\s\"'&@,}…]+", re.IGNORECASE)
_CREDENTIALS = re.compile(r"(https?://)[^\s/@\"'<>]+@")
_QUERY = re.compile(r"(https?://[^\s\"'<>?]+|\bGET \S*)\?[^\s\"'<>]+")
"""A link's query may hold a key, or a signature that opens a picture to anyone."""


def redacted(text: str, *keys: str) -> str:
    """The text with `…` for these keys, secrets of the environment, tokens, credentials and queries of links.

    Redact before you shorten: half a key is a secret, too.
    """
    named = (value.strip() for name, value in os.environ.items() if _SECRET_NAME.search(name))
    values = {key for key in keys if len(key) >= _SHORTEST_KEY}
    for value in sorted(
        {*values, *(value for value in named if len(value) >= _SHORTEST_SECRET)}, key=len, reverse=True
    ):
        text = text.replace(value, "…")
    for value in sorted(values, key=len, reverse=True):
        # Some servers repeat a key cut short.
        for length in range(len(value) - 1, _SHORTEST_SECRET - 1, -1):
            text = text.replace(value[:length], "…")
    text = _QUERY.sub(r"\1?…", _CREDENTIALS.sub(r"\1…@", text))
    return _STATED.sub(r"\1…", _TOKEN.sub(r"\1 …", text))


def without_secrets(value: Json, *keys: str) -> Json:
    """The same with every text in it redacted."""
    match value:
        case str():
            return redacted(value, *keys)
        case list():
            return [without_secrets(entry, *keys) for entry in cast("list[Json]", value)]
        case Mapping():
            entries = cast("Mapping[str, Json]", value)
            return {name: without_secrets(entry, *keys) for name, entry in entries.items()}
        case _:
            return value


def shortened(text: str) -> str:
    """One line of limited length."""
    line = " ".join(text.split())
    return line if len(line) <= _MAX_CHARACTERS else f"{line[:_MAX_CHARACTERS]}…"
