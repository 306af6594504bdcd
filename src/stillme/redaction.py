"""Keep keys and tokens out of what is stored: servers and programs repeat them in their messages."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable

_SECRET_NAME = re.compile(r"(?:^|_)(?:api_?key|key|token|secret|password|passwd|credentials?)(?:_|$)", re.IGNORECASE)
_SHORTEST = 8
"""Characters of a value that is replaced; fewer would spoil ordinary words."""
_BEARER = re.compile(r"\b(bearer|basic)\s+[\w.~+/=-]{8,}", re.IGNORECASE)
_SIGNED = re.compile(
    r"([?&](?:sig|signature|token|key|api_key|apikey|se|x-(?:amz|goog)-\w+(?:-\w+)*)=)[^&\s\"'<>]+", re.I
)


def redacted(text: str, also: Iterable[str] = ()) -> str:
    """The text with `…` for secrets of the environment, values of `also`, bearer tokens and signed query strings.

    Redact before you shorten: half a key is a secret, too.
    """
    named = (value.strip() for name, value in os.environ.items() if _SECRET_NAME.search(name))
    values = {*(value for value in named if len(value) >= _SHORTEST), *filter(None, also)}
    for value in sorted(values, key=len, reverse=True):
        text = text.replace(value, "…")
    return _SIGNED.sub(r"\1…", _BEARER.sub(r"\1 …", text))
