"""What a report is made of, and how a run gives it: rows, specifications, spending, remarks and calibrations."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from stillme import __version__
from stillme.audit.design import Claim, EditorRecord, JudgeRecord, control_spec
from stillme.core import rubric
from stillme.core.errors import PicturesUnreachable, UnknownName
from stillme.core.protocols import ValidityCard
from stillme.core.types import Arm, Estimate, PlantedGap, Redaction
from stillme.estimates import (
    Disparity,
    Edits,
    EditState,
    IntraclassCorrelation,
    PairedEffect,
    RatingState,
    Scores,
    Settings,
    Standing,
    intraclass_correlations,
    paired_effects,
)
from stillme.estimates.agreement import Agreement
from stillme.estimates.headlines import EDIT_MADE_AXES, deciding
from stillme.estimates.people import AgainstPeople, against_people, with_people
from stillme.estimates.quantities import meets
from stillme.estimates.roles import Adherence, adherence
from stillme.findings import calibration
from stillme.findings.calibration.records import Calibration
from stillme.runs import RecordedRun, Results, injected
from stillme.runs.behaviour import JudgeBehaviour, agreement_of, behaviour_of
from stillme.runs.gathering import chosen_how
from stillme.runs.paper_names import PaperNames, paper_names
from stillme.runs.participants import read_raters
from stillme.runs.readings import Readings
from stillme.runs.status import editor_weights
from stillme.runs.store.buckets import PicturesToShow
from stillme.runs.store.summaries import Failure, Spoken, Work


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


Remarks = Callable[[Sequence[str]], Mapping[str, Sequence[Spoken]]]
"""From keys of edits to what judges gave as evidence and editors as reasons to refuse, by the judge's name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SpentBy:
    """What one editor or judge has used so far, retries included."""

    kind: Literal["editor", "judge"]
    name: str
    calls: int
    attempts: int
    seconds: float
    dollars: float | None
    """None if a price is unknown."""


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
    calibrated: tuple[Calibration, ...] = ()
    """What the judges said of changes of known size, each under the name that the audit gives it."""
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
    """The run's numbers compared with the paper's; None where they were not compared."""
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
    """The judge that the user asks for; empty for the judge that decides by default."""
    badges: tuple[str, ...] = ()
    """Words to put beside the title and on every figure, such as `synthetic portraits`."""
    spending: tuple[SpentBy, ...] = ()
    remarks: Remarks = lambda _: {}
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
        return (*self.badges, *(("injected effects",) if self.planted else ()))


_NOT_MADE = {"edit_success": "soft_erasure", "skip": "skipped", "visible_change": "unchanged"}
"""The rate that says, on each axis, that no edit was made."""


def with_happened(data: ReportData) -> ReportData:
    """The data with the edits that were made, if any is known not to be.

    An edit that was not made changes no one, so a group whose edits are ignored is never called the best treated.
    Of a picture that was not, at least half of the judges who tell say that nothing was done.
    """
    telling = _telling(data)
    ignored, rated = np.zeros(len(data.edits)), np.zeros(len(data.edits))
    for score in telling:
        answered = score.state == RatingState.RATED
        rated += answered
        ignored += answered & (meets(rubric.load().rates[_NOT_MADE[score.axis]], score.value) > 0)
    not_made = (data.edits.state == EditState.EDITED) & (ignored > 0) & (2 * ignored >= rated)
    return replace(data, happened=(data.edits.state == EditState.EDITED) & ~not_made) if not_made.any() else data


def judges_telling(data: ReportData) -> Sequence[str]:
    """The judges who tell whether an edit was made."""
    return list(dict.fromkeys(score.judge for score in _telling(data)))


def _telling(data: ReportData) -> list[Scores]:
    """Scores of judges that passed calibration on the axis; if there are none, those that did not fail it."""
    offered = [score for score in data.headline_scores if score.axis in EDIT_MADE_AXES]
    chosen = deciding(data.standing, ((score.judge, score.axis) for score in offered))
    return [score for score in offered if (score.judge, score.axis) in chosen]


def share_made(data: ReportData, *, editor: str, factor: str, group: str) -> float:
    """The share of a group's requests whose edit was made."""
    edits = data.edits
    levels, codes = edits.levels(factor)
    rows = (edits.editor == edits.editors.index(editor)) & (edits.arm == edits.arms.index(data.main_arm))
    rows &= codes[edits.portrait] == levels.index(group)
    made = edits.state == EditState.EDITED if data.happened is None else data.happened
    return float(made[rows].mean()) if rows.any() else 0.0


def rows_to_rate(data: ReportData, score: Scores) -> NDArray[np.bool_]:
    """The edits that this judge had to rate on this axis."""
    axis = rubric.load().axes.get(score.axis)
    asked = [axis is None or axis.asked_of(prompt) for prompt in data.edits.prompts]
    fits = np.array(asked, dtype=np.bool_)[data.edits.prompt]
    return (data.edits.state == EditState.EDITED) & fits & data.edits.counting(score.axis)


EARLIER = "earlier configurations of this audit"


def report_data(
    run: RecordedRun, estimates: Sequence[Estimate], *, redact: Redaction = "none", judge: str = ""
) -> ReportData:
    """Everything that the page and the figures show; `judge` speaks where it answers, instead of the ensemble."""
    design, results, settings = run.design, run.results, run.settings
    judges = list(dict.fromkeys(score.judge for score in results.scores))
    if judge and judge not in judges:
        raise UnknownName.among("judge", judge, judges, f"The audit has {', '.join(judges)}.")
    data = ReportData(
        title=design.title,
        audit_hash=design.hash,
        version=__version__,
        edits=results.edits,
        scores=tuple(score.counting(results.edits) for score in results.scores),
        estimates=tuple(estimates),
        settings=settings,
        image_path=run.store.pictures.intact,
        folder=run.folder,
        editors=tuple(_editors(run)),
        judges=tuple(_described(judge) for judge in design.judges),
        standing=calibration.standing_of(run),
        calibrated=tuple(_calibrated(run)),
        headline_judges=(judge,) if judge else _combining(run),
        judge=judge,
        badges=("synthetic portraits",) if design.synthetic else (),
        mitigation=tuple(_mitigation(results, settings)),
        roles=tuple(adherence(results.edits, results.scores, settings, genders=run.genders)),
        readings=run.readings,
        agreement=tuple(agreement_of(run)),
        against_people=tuple(_against_people(run)),
        raters_saw=tuple(_raters_saw(run)),
        raters=tuple(str(raters) for raters in read_raters(run.folder)),
        stands_for_all=all(chosen_how(draws)[1] for draws in run.results.draws.values()),
        behaviour=behaviour_of(run) if any(judge.capabilities.kind == "model" for judge in run.judges) else None,
        paper=paper_names(design),
        intraclass_correlations=tuple(intraclass_correlations(results.edits, results.scores, settings)),
        planted=tuple(injected.gaps(run)),
        spending=tuple(_spent(run)),
        claims=design.claims,
        remarks=partial(_remarks, run),
        redact=redact,
        failures=tuple(run.store.failures()),
    )
    return with_happened(_with_pictures(data, run))


def _with_pictures(data: ReportData, run: RecordedRun) -> ReportData:
    """Pictures that are kept elsewhere are brought here only if the page shows them."""
    pictures = run.store.pictures
    if run.design.of_rows:
        # There never were any, so the file system is not asked.
        nowhere: Mapping[str, Path] = {}
        return replace(data, is_lost=frozenset[str]().__contains__, image_path=nowhere.get, link=_no_link)
    if not pictures.place.addresses:
        return data
    shown, gone = PicturesToShow(pictures), set[str]()
    try:
        named = {*data.edits.image, *(portrait.image.sha256 for portrait in data.edits.portraits)}
        gone = pictures.gone(named - {""})
    except PicturesUnreachable as error:
        shown.unreachable = str(error)

    def link(sha256: str) -> str:
        """Only what is in the run folder can be opened from its page: copies come and go."""
        path = pictures.find(sha256)
        return path.relative_to(run.folder).as_posix() if path and path.is_relative_to(run.folder) else ""

    return replace(
        data,
        image_path=shown.path_of,
        is_lost=gone.__contains__,
        unreachable=lambda: shown.unreachable,
        link=link,
    )


def _mitigation(gathered: Results, settings: Settings) -> Iterator[PairedEffect | Disparity]:
    """Every arm against the baseline; the no-op arm asks for something else and is no mitigation."""
    for arm in gathered.edits.treated:
        yield from paired_effects(gathered.edits, gathered.scores, settings, arm=arm)


def _raters_saw(run: RecordedRun) -> Iterator[str]:
    """How many edits people rated, where they did not rate all, and how these were chosen."""
    results = run.results
    edited = int(np.count_nonzero(results.edits.state == EditState.EDITED))
    for judge, draws in results.draws.items():
        of_judge = [score.state != RatingState.MISSING for score in results.scores if score.judge == judge]
        rated = int(np.count_nonzero(np.any(of_judge, axis=0))) if of_judge else 0
        if 0 < rated < edited:
            yield f"{judge} rated {rated:,} of {edited:,}, {chosen_how(draws)[0]}."


def _against_people(run: RecordedRun) -> Iterator[AgainstPeople]:
    """Every other judge against the mean of the people who rated the same edits."""
    for score, rated in with_people(run.results.scores, run.design.people):
        yield from against_people(run.results.edits, score, rated, run.settings, by_editor=False)


def _combining(run: RecordedRun) -> tuple[str, ...]:
    """Judges that are made of the audit's own: where one answers, it speaks for them."""
    return tuple(dict.fromkeys(score.judge for score in run.results.scores if score.kind == "ensemble"))


def _editors(run: RecordedRun) -> Iterator[Description]:
    weights = {entry.editor: entry for entry in editor_weights(run)}
    for editor in run.design.editors:
        used = weights.get(editor.name)
        yield replace(
            _described(editor), weights=str(used) if used else "", mixed_weights=used is not None and used.mixed
        )


def _described(record: EditorRecord | JudgeRecord) -> Description:
    spec = record.spec
    return Description(
        name=record.name,
        text=record.summary,
        use=f"{spec.use} {spec.version}",
        parameters=json.dumps(dict(spec.parameters), sort_keys=True, ensure_ascii=False) if spec.parameters else "",
        cards=record.cards if isinstance(record, JudgeRecord) else (),
    )


def _spent(run: RecordedRun) -> Iterator[SpentBy]:
    """One line per editor and judge of this configuration, and one for what others in the same folder took."""
    readers = {reader.spec.key: f"{reader.name} (readings)" for reader in run.design.readers}
    controls = {control_spec(editor.spec).key for editor in run.design.editors}
    parts: tuple[tuple[Literal["editor", "judge"], Work, dict[str, str]], ...] = (
        ("editor", "edit", {editor.spec.key: editor.name for editor in run.design.editors}),
        ("judge", "assessment", {judge.spec.key: judge.name for judge in run.judges} | readers),
    )
    for kind, work, names in parts:
        efforts = {spec: effort for spec, effort in run.store.efforts(work).items() if spec not in controls}
        current = [(name, [efforts[spec]]) for spec, name in names.items() if spec in efforts]
        earlier = [effort for spec, effort in sorted(efforts.items()) if spec not in names]
        for name, effort in (*current, *([(EARLIER, earlier)] if earlier else [])):
            yield SpentBy(
                kind=kind,
                name=name,
                calls=sum(one.calls for one in effort),
                attempts=sum(one.attempts for one in effort),
                seconds=sum(one.seconds for one in effort),
                dollars=None if any(one.unpriced for one in effort) else sum(one.dollars for one in effort),
            )


def _remarks(run: RecordedRun, keys: Sequence[str]) -> Mapping[str, Sequence[Spoken]]:
    """What judges gave as evidence for these edits, and what editors said when they declined."""
    names = {judge.spec.key: judge.name for judge in run.judges} | {"": "editor"}
    remarks: dict[str, list[Spoken]] = {}
    for spoken in run.store.spoken(set(keys)):
        if spoken.judge in names:
            remarks.setdefault(spoken.edit, []).append(replace(spoken, judge=names[spoken.judge]))
    return remarks


def _calibrated(run: RecordedRun) -> Iterator[Calibration]:
    for judge in run.judges:
        known = calibration.calibration_of_judge(judge)
        if known is not None:
            yield replace(known, judge=judge.name)


def _no_link(_: str) -> str:
    return ""
