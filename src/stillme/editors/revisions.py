"""Which checkpoint is behind an address that stays the same: only the user knows."""


def revision_note(place: str) -> str:
    """What to say of an editor whose audit names no revision."""
    return (
        f"`revision` is not set, so a new checkpoint behind {place} will not be noticed, nor its edits "
        'made again; write revision = "…" in its parameters and change it with the checkpoint'
    )
