"""What rows are about (specifications, portraits, prompts, instructions): saved once, and then known by key."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable
from dataclasses import asdict

from stillme.core.types import Json, Portrait, Prompt, Spec, digest

_MOST = 10_000
"""Records known to be in the ledger; a bound, so that memory stays flat."""


class Remembered:
    """Saves a record at its first use, and gives its key."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        self._known: dict[int, tuple[str, object]] = {}

    def forget(self) -> None:
        """A transaction was rolled back: what it saved is not there."""
        self._known.clear()

    def spec(self, spec: Spec) -> str:
        """A specification's key."""
        return self._remember("spec", spec, lambda: (spec.key, spec.use, spec.version, as_json(spec.parameters)))

    def portrait(self, portrait: Portrait) -> str:
        """A portrait's key."""
        return self._remember("portrait", portrait, lambda: _keyed(_portrait_values(portrait)))

    def prompt(self, prompt: Prompt) -> str:
        """A prompt's key."""
        return self._remember("prompt", prompt, lambda: _keyed(tuple(asdict(prompt).values())))

    def instruction(self, text: str) -> str:
        """An instruction's key."""
        return self._remember("instruction", text, lambda: _keyed((text,)))

    def _remember(self, table: str, thing: object, row: Callable[[], tuple[Json, ...]]) -> str:
        """Save a record once and return its key. The object is kept alive, so that its `id` is not reused."""
        known = self._known.get(id(thing))
        if known is None:
            values = row()
            marks = ",".join("?" * len(values))
            self._connection.execute(f"INSERT OR IGNORE INTO {table} VALUES ({marks})", values)
            if len(self._known) >= _MOST:
                self._known.clear()
            self._known[id(thing)] = known = values[0], thing
        return known[0]


def _keyed(values: tuple[Json, ...]) -> tuple[Json, ...]:
    return digest(values), *values


def _portrait_values(portrait: Portrait) -> tuple[Json, ...]:
    attributes = as_json(dict(portrait.attributes))
    return portrait.id, portrait.image.sha256, attributes, portrait.label_origin, portrait.licence, portrait.block


def as_json(value: Json) -> str:
    """JSON as the ledger keeps it."""
    return json.dumps(value, sort_keys=True, ensure_ascii=False)
