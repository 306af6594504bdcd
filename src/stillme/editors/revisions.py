"""Which checkpoint is behind an address that stays the same: only the user knows."""

from __future__ import annotations

from collections.abc import Iterator


def revision_note(revision: str, place: str) -> Iterator[str]:
    """What to say of an editor whose audit names no revision."""
    if not revision:
        yield (
            f"`revision` is not set, so a new checkpoint behind {place} will not be noticed, nor its edits "
            'made again; write revision = "…" in its parameters and change it with the checkpoint'
        )
