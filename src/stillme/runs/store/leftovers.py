"""Files that a killed run leaves behind: drafts that never got their name."""

from __future__ import annotations

import contextlib
import re
import time
from collections.abc import Iterator
from pathlib import Path

from stillme.runs.store.pictures import UNFINISHED

_DRAFT = re.compile(r"\..+\.[0-9a-f]{12}")
"""As `files.whole` names them."""
_STALE_SECONDS = 3600.0
"""A younger draft may still be written: tables and reports need no lock."""


def clean_up_unfinished(folder: Path) -> None:
    """Remove what the run at work has not finished. Only for its one writer, before its workers begin or when they end.

    A worker that outlives its run fails when it gives its picture a name, and nobody waits for it.
    """
    unfinished = folder / "images" / UNFINISHED
    with contextlib.suppress(OSError):  # gone meanwhile, or on media that cannot be written to
        for path in unfinished.iterdir():
            path.unlink(missing_ok=True)
        unfinished.rmdir()


def leftovers(folder: Path, *, deep: bool = True) -> Iterator[Path]:
    """Stale drafts in a run folder; with `deep`, also among the pictures."""
    places = [folder, folder / "tables", *(folder / "tables").glob("*/")]
    places += (folder / "images").glob("*/") if deep else ()
    for place in places:
        for path in place.iterdir() if place.is_dir() else ():
            if _DRAFT.fullmatch(path.name) and path.is_file() and _age(path) > _STALE_SECONDS:
                yield path


def clean_up(folder: Path, *, deep: bool = False) -> int:
    """Remove them; returns how many."""
    found = list(leftovers(folder, deep=deep))
    for path in found:
        path.unlink(missing_ok=True)
    return len(found)


def _age(path: Path) -> float:
    try:
        return time.time() - path.stat().st_mtime
    except FileNotFoundError:
        return 0.0
