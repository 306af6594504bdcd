"""What stillme keeps for this user between runs: `STILLME_HOME`, or the user's own data and cache folders."""

from __future__ import annotations

import json
import os
from contextlib import suppress
from pathlib import Path
from typing import cast

from stillme.core.files import write_json

_RECENT = 50
"""Runs that are remembered."""


def data_folder() -> Path:
    """For what cannot be had again for nothing, such as calibrations."""
    return _folder("XDG_DATA_HOME", Path(".local") / "share")


def cache_folder() -> Path:
    """For what only saves time."""
    return _folder("XDG_CACHE_HOME", Path(".cache"))


def remember_run(folder: Path) -> None:
    """Note where a run is, so that `stillme plan` can look up how long its edits took."""
    others = [path for path in recent_runs() if path != folder.resolve()]
    # A note that cannot be written costs an estimate, not a run.
    with suppress(OSError):
        cache_folder().mkdir(parents=True, exist_ok=True)
        write_json(_notes(), [str(path) for path in (folder.resolve(), *others)][:_RECENT])


def recent_runs() -> list[Path]:
    """Where runs were made on this machine, the latest first; those that are gone are left out."""
    with suppress(OSError, ValueError):
        noted = json.loads(_notes().read_text("utf-8"))
        if isinstance(noted, list):
            return [Path(path) for path in cast("list[str]", noted) if Path(path).is_dir()]
    return []


def _folder(variable: str, below: Path) -> Path:
    if chosen := os.environ.get("STILLME_HOME"):
        return Path(chosen)
    return Path(os.environ.get(variable) or Path.home() / below) / "stillme"


def _notes() -> Path:
    return cache_folder() / "runs.json"
