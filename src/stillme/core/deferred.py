"""A room's public names, imported when they are first used: a command pays only for what it does."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Any


def deferred(room: str, **homes: Sequence[str]) -> Callable[[str], Any]:
    """The `__getattr__` of a room: each module with the names that it holds.

    No name may be that of a module of the room: Python gives the module as soon as anyone has imported it.
    """
    home_of = {name: f"{room}.{module}" for module, names in homes.items() for name in names}

    def find(name: str) -> Any:
        if name not in home_of:
            raise AttributeError(f"module {room!r} has no attribute {name!r}")
        return getattr(import_module(home_of[name]), name)

    return find
