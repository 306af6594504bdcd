"""What a report is made of."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from stillme.estimates import Edits, Scores, Settings, Standing
from stillme.protocols import ValidityCard
from stillme.types import Estimate, PlantedGap


@dataclass(frozen=True, slots=True, kw_only=True)
class Described:
    """An editor or a judge: the name that the audit gives it, and what it is."""

    name: str
    text: str
    cards: tuple[ValidityCard, ...] = ()
    """How far to trust it, instrument by instrument."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportData:
    """Everything that the page shows. It carries no time of day: the same rows make the same bytes."""

    title: str
    audit_hash: str
    version: str
    """Of stillme."""
    edits: Edits
    scores: tuple[Scores, ...]
    estimates: tuple[Estimate, ...]
    settings: Settings
    image_path: Callable[[str], Path | None]
    """Where an edited image with this SHA-256 lies, if it still does."""
    editors: tuple[Described, ...] = ()
    judges: tuple[Described, ...] = ()
    standing: Standing = field(default_factory=lambda: dict[str, dict[str, str]]())
    """What calibration says of each judge and axis; whoever is absent is marked as not calibrated."""
    planted: tuple[PlantedGap, ...] = ()
    """What known-answer editors planted and what was found of it."""
    headline_judges: tuple[str, ...] = ()
    """Judges that the first screen and the figures go by, such as the ensemble alone; empty for all."""
    badges: tuple[str, ...] = ()
    """Words to put beside the title, such as `synthetic portraits`."""
    pictures: int = 48
    """The most pairs that the gallery shows."""

    @property
    def headlines(self) -> tuple[Estimate, ...]:
        """The estimates that the first screen and the figures are made from."""
        judges = self.headline_judges
        return tuple(each for each in self.estimates if not judges or not each.judge or each.judge in judges)
