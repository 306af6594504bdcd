"""Files that a killed run leaves behind: drafts that never got their name."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from pathlib import Path

_DRAFT = re.compile(r"\..+\.[0-9a-f]{12}")
"""As `files.whole` names them."""
_STALE_SECONDS = 3600.0
"""A draft that is younger may still be written, by a worker that the run knows nothing of."""


def leftovers(folder: Path, *, deep: bool = True) -> Iterator[Path]:
    """Stale drafts in a run folder; with `deep`, also among the pictures."""
    places = [folder, *(folder / "images").glob("*/")] if deep else [folder]
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
