"""Settings on a command line: NAME.KEY=VALUE, or KEY=VALUE where only one can be meant."""

from __future__ import annotations

import tomllib
from collections.abc import Sequence
from typing import Any

from stillme.core.errors import StillmeError


def settings_by_name(texts: Sequence[str], names: Sequence[str], option: str) -> dict[str, dict[str, Any]]:
    """The settings of each name. Values are TOML where they can be, else text: `steps=28`, `model=qwen`."""
    settings: dict[str, dict[str, Any]] = {name: {} for name in names}
    for text in texts:
        place, equals, value = text.partition("=")
        name, _, key = place.strip().rpartition(".")
        if not name and len(settings) == 1:
            (name,) = settings
        if not (equals and key and name in settings):
            forms = " or ".join(f"{known}.KEY=VALUE" for known in settings)
            raise StillmeError(f"{option} {text}: write {forms}.")
        try:
            settings[name][key] = tomllib.loads(f"value = {value}")["value"]
        except tomllib.TOMLDecodeError:
            # Text needs no quotes on a command line.
            settings[name][key] = value.strip()
    return settings
