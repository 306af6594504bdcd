"""What a report is made of."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from stillme.audit.design import Claim
from stillme.core.protocols import ValidityCard
from stillme.core.types import Arm, Estimate, PlantedGap, Redaction
from stillme.estimates import (
    Disparity,
    Edits,
    IntraclassCorrelation,
    PairedEffect,
    RatingState,
    Scores,
    Settings,
    Standing,
)
from stillme.estimates.agreement import Agreement
from stillme.estimates.people import AgainstPeople
from stillme.estimates.roles import Adherence
from stillme.runs.behaviour import JudgeBehaviour
from stillme.runs.paper_names import PaperNames
from stillme.runs.readings import Readings
from stillme.runs.store.summaries import Failure


@dataclass(frozen=True, slots=True, kw_only=True)
class Description:
    """An editor or a judge: the name that the audit gives it, and what it is."""

    name: str
    text: str
    cards: tuple[ValidityCard, ...] = ()
    """How far to trust it, instrument by instrument."""
    use: str = ""
    """The plugin and its version."""
    parameters: str = ""
    """As JSON, defaults filled in."""
    weights: str = ""
    """What its edits were made with, by commit or hash."""
    mixed_weights: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Remark:
    """A judge's evidence, or an editor's reason to refuse."""

    who: str
    axis: str
    """Empty for an editor's own words."""
    text: str


Remarks = Callable[[Sequence[str]], Mapping[str, Sequence[Remark]]]
"""From keys of edits to the remarks on them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Spending:
    """What one editor or judge has used so far, retries included."""

    kind: Literal["editor", "judge"]
    name: str
    calls: int
    attempts: int
    seconds: float
    dollars: float | None
    """None if a price is unknown."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupShare:
    """A share of calibration pairs in one group of portraits, with its 95 % interval."""

    group: str
    value: float
    low: float
    high: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Dose:
    """A known change of one size, and the share of pairs in which it was noticed, by group."""

    amount: float
    shares: tuple[GroupShare, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class CalibratedAxis:
    """A judge's answers to changes of known size, on one axis."""

    axis: str
    verdict: str
    false_alarms: tuple[GroupShare, ...]
    """By skin-tone group, everyone first."""
    sensitivity: tuple[GroupShare, ...]
    curve: tuple[Dose, ...]
    """From the smallest change to the largest; empty where the change has no size."""
    false_alarm_limit: float
    sensitivity_limit: float
    smallest: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Calibrated:
    """One judge's calibration."""

    judge: str
    portraits: str
    pairs: int
    axes: tuple[CalibratedAxis, ...]


def _no_remarks(_keys: Sequence[str]) -> Mapping[str, Sequence[Remark]]:
    return {}


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportData:
    """Everything that the page shows. It carries no time of day: the same rows give the same bytes."""

    title: str
    audit_hash: str
    version: str
    """Of stillme."""
    edits: Edits
    scores: tuple[Scores, ...]
    estimates: tuple[Estimate, ...]
    settings: Settings
    image_path: Callable[[str], Path | None]
    """The file of a picture with this SHA-256, if it still exists; brought here from where it is kept."""
    is_lost: Callable[[str], bool] | None = None
    """Whether a picture exists no more, where that is known without bringing it here."""
    unreachable: Callable[[], str] = str
    """Why some pictures could not be brought here from where they are kept; empty if all could."""
    link: Callable[[str], str] | None = None
    """What to open for an edited picture in full, relative to the page; else the file, if it is under `folder`."""
    folder: Path | None = None
    """The folder of the page; pictures under it can be opened in full from the page."""
    editors: tuple[Description, ...] = ()
    judges: tuple[Description, ...] = ()
    standing: Standing = field(default_factory=lambda: dict[str, dict[str, str]]())
    """Calibration verdicts by judge and axis; judges that are absent are marked as not calibrated."""
    calibrated: tuple[Calibrated, ...] = ()
    mitigation: tuple[PairedEffect | Disparity, ...] = ()
    """What other arms change against the baseline, edit by edit."""
    roles: tuple[Adherence, ...] = ()
    """How often role instructions are drawn as the stereotype has it."""
    readings: Readings | None = None
    """What readers said of single pictures."""
    agreement: tuple[Agreement, ...] = ()
    """Agreement among judges, and among people."""
    against_people: tuple[AgainstPeople, ...] = ()
    """Agreement of judges with people."""
    raters_saw: tuple[str, ...] = ()
    """For each judge that is people and rated a part: how many edits, and how they were chosen."""
    raters: tuple[str, ...] = ()
    """For each study: how many raters count, who was excluded, and by which rule."""
    stands_for_all: bool = True
    """Whether the edits that people rated stand for the others."""
    behaviour: JudgeBehaviour | None = None
    """What the judges themselves add; None where no model judges."""
    paper: PaperNames | None = None
    """The run's numbers beside the paper's; None where they were not compared."""
    intraclass_correlations: tuple[IntraclassCorrelation, ...] = ()
    """How alike the edits of one portrait are."""
    happened: NDArray[np.bool_] | None = None
    """Rows whose edit was made, as far as judges can tell; None where no edit is known to be missing."""
    failures: tuple[Failure, ...] = ()
    """Why edits and judgements failed, the most frequent first."""
    planted: tuple[PlantedGap, ...] = ()
    """What known-answer editors planted, and what the audit recovered of it."""
    headline_judges: tuple[str, ...] = ()
    """Judges that the first screen and the figures use where they answer, such as an ensemble; empty for all."""
    judge: str = ""
    """The judge that the user asks for; empty for whoever decides by default."""
    badges: tuple[str, ...] = ()
    """Words to put beside the title and on every figure, such as `synthetic portraits`."""
    spending: tuple[Spending, ...] = ()
    remarks: Remarks = _no_remarks
    claims: tuple[Claim, ...] = ()
    """The audit's claims, and when each was recorded."""
    redact: Redaction = "none"
    picture_bytes: int = 5_400_000
    """The most that thumbnails may add to the page."""

    def lacks(self, sha256: str) -> bool:
        """Whether a picture exists no more."""
        return self.is_lost(sha256) if self.is_lost else self.image_path(sha256) is None

    @property
    def main_arm(self) -> str:
        """The arm that the first screen and the figures are about; the others are compared with it."""
        arms = self.edits.arms
        return Arm.BASELINE if Arm.BASELINE in arms or not arms else arms[0]

    @property
    def headlines(self) -> tuple[Estimate, ...]:
        """The estimates that the first screen and the figures are made from."""
        answered = {estimate.quantity for estimate in self.estimates if estimate.judge in self.headline_judges}
        return tuple(
            estimate
            for estimate in self.estimates
            if estimate.arm == self.main_arm
            if not estimate.judge or estimate.judge in self.headline_judges or estimate.quantity not in answered
        )

    @property
    def scores_success(self) -> bool:
        """Whether a judge said if edits did what was asked."""
        rated = (score.state == RatingState.RATED for score in self.scores if score.axis == "edit_success")
        return any(bool(states.any()) for states in rated)

    @property
    def headline_scores(self) -> tuple[Scores, ...]:
        """The scores behind them."""
        answered = {score.axis for score in self.scores if score.judge in self.headline_judges}
        return tuple(
            score for score in self.scores if score.judge in self.headline_judges or score.axis not in answered
        )

    @property
    def disclosures(self) -> tuple[str, ...]:
        """What every figure must say about made-up data."""
        return (*self.badges, *(("planted effects",) if self.planted else ()))
