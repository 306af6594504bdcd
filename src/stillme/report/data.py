"""What a report is made of."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from stillme.estimates import Disparity, Edits, Likeness, PairedEffect, Scores, Settings, Standing
from stillme.estimates.agreement import AgainstPeople, Agreement
from stillme.estimates.roles import Adherence
from stillme.protocols import ValidityCard
from stillme.types import Arm, Estimate, PlantedGap

Redaction = Literal["none", "blur", "omit"]
"""Portraits as they are, as a dozen blurred patches of colour, or not at all."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Described:
    """An editor or a judge: the name that the audit gives it, and what it is."""

    name: str
    text: str
    cards: tuple[ValidityCard, ...] = ()
    """How far to trust it, instrument by instrument."""
    use: str = ""
    """The plugin and its version."""
    parameters: str = ""
    """As JSON, defaults filled in."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Remark:
    """What a judge gave as evidence, or an editor as its reason to refuse."""

    who: str
    axis: str
    """Empty for an editor's own words."""
    text: str


Remarks = Callable[[Sequence[str]], Mapping[str, Sequence[Remark]]]
"""From keys of edits to what was said of them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Spent:
    """What one editor or judge has taken until now, retries included."""

    kind: Literal["editor", "judge"]
    name: str
    calls: int
    attempts: int
    seconds: float
    dollars: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Tried:
    """A share of known pairs in one group of portraits, with its 95 % interval."""

    group: str
    value: float
    low: float
    high: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Dose:
    """A known change of one size, and the share of pairs in which it was noticed, by group."""

    amount: float
    noticed: tuple[Tried, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class CalibratedAxis:
    """What a judge did on changes of known size, on one axis."""

    axis: str
    verdict: str
    false_alarms: tuple[Tried, ...]
    """By skin-tone group, everyone first."""
    noticed: tuple[Tried, ...]
    curve: tuple[Dose, ...]
    """From the smallest change to the largest; empty where the change has no size."""
    most_alarms: float
    """The limit for false alarms."""
    least_noticed: float
    """The limit for changes that must be noticed."""
    smallest: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Calibrated:
    """One judge's calibration."""

    judge: str
    portraits: str
    pairs: int
    axes: tuple[CalibratedAxis, ...]


def _nothing_said(_keys: Sequence[str]) -> Mapping[str, Sequence[Remark]]:
    return {}


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
    folder: Path | None = None
    """Where the page will lie; pictures under it can be opened in full from the page."""
    editors: tuple[Described, ...] = ()
    judges: tuple[Described, ...] = ()
    standing: Standing = field(default_factory=lambda: dict[str, dict[str, str]]())
    """What calibration says of each judge and axis; whoever is absent is marked as not calibrated."""
    calibrated: tuple[Calibrated, ...] = ()
    mitigation: tuple[PairedEffect | Disparity, ...] = ()
    """What other arms change against the baseline, edit by edit."""
    roles: tuple[Adherence, ...] = ()
    """How often role instructions are drawn as the stereotype has it."""
    agreement: tuple[Agreement, ...] = ()
    """How far judges agree with one another."""
    against_people: tuple[AgainstPeople, ...] = ()
    """How far judges agree with people."""
    likeness: tuple[Likeness, ...] = ()
    """How alike the edits of one portrait are."""
    planted: tuple[PlantedGap, ...] = ()
    """What known-answer editors planted and what was found of it."""
    headline_judges: tuple[str, ...] = ()
    """Judges that the first screen and the figures go by where they answer, such as an ensemble; empty for all."""
    badges: tuple[str, ...] = ()
    """Words to put beside the title and on every figure, such as `synthetic portraits`."""
    spent: tuple[Spent, ...] = ()
    remarks: Remarks = _nothing_said
    redact: Redaction = "none"
    picture_bytes: int = 5_400_000
    """The most that thumbnails may add to the page."""

    @property
    def plain_arm(self) -> str:
        """The arm that the first screen and the figures are about: the others are compared with it."""
        arms = self.edits.arms
        return Arm.BASELINE if Arm.BASELINE in arms or not arms else arms[0]

    @property
    def headlines(self) -> tuple[Estimate, ...]:
        """The estimates that the first screen and the figures are made from."""
        answered = {each.quantity for each in self.estimates if each.judge in self.headline_judges}
        return tuple(
            each
            for each in self.estimates
            if each.arm == self.plain_arm
            if not each.judge or each.judge in self.headline_judges or each.quantity not in answered
        )

    @property
    def headline_scores(self) -> tuple[Scores, ...]:
        """The scores behind them."""
        answered = {each.axis for each in self.scores if each.judge in self.headline_judges}
        return tuple(each for each in self.scores if each.judge in self.headline_judges or each.axis not in answered)

    @property
    def marks(self) -> tuple[str, ...]:
        """What must be said beside the title and on every figure."""
        return (*self.badges, *(("planted effects",) if self.planted else ()))
