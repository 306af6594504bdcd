"""How to run, as opposed to what: one record from the command to the loop."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from stillme.core.types import Redaction
from stillme.work.shards import Shard
from stillme.work.tally import Tally


def _ignore(_: Any) -> None:
    pass


@dataclass(frozen=True, slots=True, kw_only=True)
class RunOptions:
    """What a user may say about a run beside its audit."""

    out: Path | None = None
    """The run's folder, where it is not the audit's."""
    wait: float = 0.0
    """Seconds to wait for another process that is writing."""
    allow_changes: bool = False
    """Go on although audit.toml changed and work is done again."""
    only_failed: bool = False
    """Do only what was tried before and failed."""
    allow_failures: bool = False
    """Go on although the first answers all fail alike."""
    allow_unknown_cost: bool = False
    """Go on although a price is unknown, so that the budget cannot be kept."""
    remake: bool = False
    """Make edits again whose picture is lost, also where that costs money."""
    shard: Shard | None = None
    """The part of the grid to do; None for all."""
    limit: int | None = None
    """How many requests of each editor to do, from the first on; None for all."""
    watch: Callable[[Tally], None] = _ignore
    say: Callable[[str], None] = _ignore
    redact: Redaction = "none"
    """Whether the report shows portraits."""
    judge: str = ""
    """Whose scores the report's first screen and drawings show; empty for the ensemble's, else every judge's."""
