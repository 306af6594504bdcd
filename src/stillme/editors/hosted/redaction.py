"""What is stored of a provider's words: no key, no token, no signed link, and not a whole web page."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import cast

from stillme.types import Json

_MAX_CHARACTERS = 600
"""Characters kept of a message: some servers answer with a whole web page."""
_SHORTEST_KEY = 4
"""Characters; replacing fewer would spoil ordinary words."""
_SHORTEST_BEGINNING = 8
"""Characters from which on the beginning of a key is removed, too: some servers repeat a key cut short."""
_TOKEN = re.compile(r"\b(Bearer|Key|Token|Basic)\s+(?=\S*\d)[\w.~+/=:-]{8,}")
_QUERY = re.compile(r"(https?://[^\s\"'<>?]+)\?[^\s\"'<>]+")
"""A link's query may hold a signature that opens the picture to anyone."""
_CREDENTIALS = re.compile(r"(https?://)[^\s/@\"'<>]+@")


def redacted(text: str, key: str = "") -> str:
    """The text without the key, other tokens, credentials and queries in links."""
    if len(key) >= _SHORTEST_KEY:
        text = text.replace(key, "…")
        for length in range(len(key) - 1, _SHORTEST_BEGINNING - 1, -1):
            if (beginning := key[:length]) in text:
                text = text.replace(beginning, "…")
    return _TOKEN.sub(r"\1 …", _QUERY.sub(r"\1?…", _CREDENTIALS.sub(r"\1…@", text)))


def without_secrets(value: Json, key: str = "") -> Json:
    """The same with every text in it redacted."""
    match value:
        case str():
            return redacted(value, key)
        case list():
            return [without_secrets(entry, key) for entry in cast("list[Json]", value)]
        case Mapping():
            entries = cast("Mapping[str, Json]", value)
            return {name: without_secrets(entry, key) for name, entry in entries.items()}
        case _:
            return value


def shortened(text: str) -> str:
    """One line of limited length. Redact first: half a key would not be recognised."""
    line = " ".join(text.split())
    return line if len(line) <= _MAX_CHARACTERS else f"{line[:_MAX_CHARACTERS]}…"
