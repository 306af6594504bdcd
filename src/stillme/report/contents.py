"""From a run to what its report shows: rows, specifications, spending, remarks and calibrations."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Literal

import numpy as np

from stillme import __version__
from stillme.audit.design import EditorRecord, JudgeRecord, control_spec
from stillme.core.errors import PicturesUnreachable, UnknownName
from stillme.core.rubric.limits import AxisLimits
from stillme.core.rubric.limits import load as load_limits
from stillme.core.types import Arm, Estimate
from stillme.estimates import (
    Disparity,
    EditState,
    PairedEffect,
    RatingState,
    Settings,
    intraclass_correlations,
    paired_effects,
)
from stillme.estimates.people import AgainstPeople, against_people, mean_of
from stillme.estimates.roles import adherence
from stillme.findings import calibration
from stillme.findings.calibration.records import EVERYONE, AxisResult, ShareOfPortraits
from stillme.report.data import (
    Calibrated,
    CalibratedAxis,
    Description,
    Dose,
    GroupShare,
    Redaction,
    Remark,
    ReportData,
    Spending,
)
from stillme.report.happened import with_happened
from stillme.runs import Results, Run, known_answers
from stillme.runs.behaviour import behaviour_of
from stillme.runs.disputes import agreement_of
from stillme.runs.gathering import chosen_how
from stillme.runs.paper_names import paper_names
from stillme.runs.participants import read_raters
from stillme.runs.status import editor_weights
from stillme.runs.store.buckets import PicturesToShow
from stillme.runs.store.summaries import Work

EARLIER = "earlier configurations of this audit"


def report_data(run: Run, estimates: Sequence[Estimate], *, redact: Redaction = "none", judge: str = "") -> ReportData:
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
        planted=tuple(known_answers.gaps(run)),
        spending=tuple(_spent(run)),
        claims=design.claims,
        remarks=partial(_remarks, run),
        redact=redact,
        failures=tuple(run.store.failures()),
    )
    return with_happened(_with_pictures(data, run))


def _with_pictures(data: ReportData, run: Run) -> ReportData:
    """Pictures that are kept elsewhere are brought here only if the page shows them."""
    pictures = run.store.pictures
    if run.design.of_rows:
        return replace(data, is_lost=frozenset[str]().__contains__)  # there never were any
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
    arms = gathered.edits.arms
    for arm in arms:
        if arm not in (Arm.BASELINE, Arm.NOOP) and Arm.BASELINE in arms:
            yield from paired_effects(gathered.edits, gathered.scores, settings, arm=arm)


def _raters_saw(run: Run) -> Iterator[str]:
    """How many edits people rated, where they did not rate all, and how these were chosen."""
    results = run.results
    edited = int(np.count_nonzero(results.edits.state == EditState.EDITED))
    for judge, draws in results.draws.items():
        of_judge = [score.state != RatingState.MISSING for score in results.scores if score.judge == judge]
        rated = int(np.count_nonzero(np.any(of_judge, axis=0))) if of_judge else 0
        if 0 < rated < edited:
            yield f"{judge} rated {rated:,} of {edited:,}, {chosen_how(draws)[0]}."


def _against_people(run: Run) -> Iterator[AgainstPeople]:
    """Every other judge against the mean of the people who rated the same edits."""
    people, scores = run.design.people, run.results.scores
    for axis in dict.fromkeys(score.axis for score in scores if score.judge in people):
        rated = mean_of([score for score in scores if score.axis == axis and score.judge in people])
        for score in scores:
            if score.axis == axis and score.judge not in people:
                yield from against_people(run.results.edits, score, rated, run.settings, by_editor=False)


def _combining(run: Run) -> tuple[str, ...]:
    """Judges that are made of the audit's own: where one answers, it speaks for them."""
    return tuple(dict.fromkeys(score.judge for score in run.results.scores if score.kind == "ensemble"))


def _editors(run: Run) -> Iterator[Description]:
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


def _spent(run: Run) -> Iterator[Spending]:
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
            yield Spending(
                kind=kind,
                name=name,
                calls=sum(one.calls for one in effort),
                attempts=sum(one.attempts for one in effort),
                seconds=sum(one.seconds for one in effort),
                dollars=None if any(one.unpriced for one in effort) else sum(one.dollars for one in effort),
            )


def _remarks(run: Run, keys: Sequence[str]) -> Mapping[str, Sequence[Remark]]:
    """What judges gave as evidence for these edits, and what editors said when they declined."""
    names = {judge.spec.key: judge.name for judge in run.judges} | {"": "editor"}
    remarks: dict[str, list[Remark]] = {}
    for spoken in run.store.spoken(set(keys)):
        if spoken.judge in names:
            remark = Remark(who=names[spoken.judge], axis=spoken.axis, text=spoken.text)
            remarks.setdefault(spoken.edit, []).append(remark)
    return remarks


def _calibrated(run: Run) -> Iterator[Calibrated]:
    limits = load_limits().axes
    for judge in run.judges:
        known = calibration.calibration_of_judge(judge)
        if known is not None:
            yield Calibrated(
                judge=judge.name,
                portraits=known.portraits,
                pairs=known.pairs,
                axes=tuple(
                    _axis(axis, groups, str(known.verdicts[axis]), limits[axis])
                    for axis, groups in known.axes.items()
                    if axis in limits
                ),
            )


def _axis(axis: str, groups: Mapping[str, AxisResult], verdict: str, limits: AxisLimits) -> CalibratedAxis:
    return CalibratedAxis(
        axis=axis,
        verdict=verdict,
        false_alarms=_tried({group: result.false_alarm for group, result in groups.items()}),
        sensitivity=_tried({group: result.sensitivity for group, result in groups.items()}),
        curve=tuple(_doses(groups)),
        false_alarm_limit=limits.false_alarm,
        sensitivity_limit=limits.sensitivity,
        smallest=groups[EVERYONE].smallest if EVERYONE in groups else None,
    )


def _doses(groups: Mapping[str, AxisResult]) -> Iterator[Dose]:
    for amount in sorted({dose.amount for result in groups.values() for dose in result.curve}):
        shares = {
            group: next((dose.share for dose in result.curve if dose.amount == amount), None)
            for group, result in groups.items()
        }
        yield Dose(amount=amount, shares=_tried(shares))


def _tried(shares: Mapping[str, ShareOfPortraits | None]) -> tuple[GroupShare, ...]:
    return tuple(
        GroupShare(group=group, value=share.value, low=share.low, high=share.high)
        for group, share in shares.items()
        if share is not None
    )
