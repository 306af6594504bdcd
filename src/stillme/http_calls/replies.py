"""What a server answered, whatever its status."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from functools import cached_property

from stillme.types import Json


@dataclass(frozen=True)
class Reply:
    """A server's answer with any status."""

    status: int
    headers: Mapping[str, str]
    content: bytes

    @cached_property
    def body(self) -> Json:
        """The parsed JSON; None if it is not JSON."""
        try:
            return json.loads(self.content)
        except ValueError:
            return None

    @property
    def text(self) -> str:
        """The content as text."""
        return self.content.decode(errors="replace")


def retry_after(headers: Mapping[str, str]) -> float | None:
    """Seconds to wait, if the server gives them: as a number, in milliseconds, or as a date."""
    named = {name.lower(): value.strip() for name, value in headers.items()}
    try:
        if milliseconds := named.get("retry-after-ms"):
            return max(0.0, float(milliseconds) / 1000)
        if not (value := named.get("retry-after")):
            return None
        if value.replace(".", "", 1).isdigit():
            return float(value)
        return max(0.0, parsedate_to_datetime(value).timestamp() - time.time())
    except (ValueError, TypeError):
        return None
