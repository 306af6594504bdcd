"""From a run to what its report shows: rows, specifications, spending, remarks and calibrations."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial

from stillme import __version__, calibration
from stillme.audit import Audit, NamedEditor, NamedJudge
from stillme.calibration.limits import AxisLimits
from stillme.calibration.limits import load as load_limits
from stillme.calibration.records import EVERYONE, AxisResult, Share
from stillme.estimates import Disparity, PairedEffect, Settings, Standing, likeness, paired_effects
from stillme.estimates.agreement import AgainstPeople, Agreement, against_people, agreement, mean_of
from stillme.estimates.roles import adherence
from stillme.protocols import Vouched
from stillme.report.data import Calibrated, CalibratedAxis, Described, Dose, Redaction, Remark, ReportData, Spent, Tried
from stillme.results import Results, known_answers
from stillme.results.disputes import raters
from stillme.store import Store
from stillme.types import Arm, Estimate, Spec

EARLIER = "earlier configurations of this audit"

_SPENT = (
    ("editor", "SELECT editor, COUNT(DISTINCT key), SUM(attempts), SUM(seconds), SUM(cost) FROM edit GROUP BY editor"),
    (
        "judge",
        "SELECT judge, COUNT(DISTINCT key), SUM(attempts), SUM(seconds), SUM(cost) FROM assessment GROUP BY judge",
    ),
)
_EVIDENCE = (
    "SELECT a.edit, a.judge, j.axis, j.reason FROM assessment a JOIN judgement j ON j.assessment = a.id "
    "WHERE a.final = 1 AND a.epoch = 0 AND j.reason IS NOT NULL ORDER BY a.id, j.axis"
)
_OWN_WORDS = "SELECT key, message FROM edit WHERE final = 1 AND message IS NOT NULL ORDER BY id"


def report_data(
    loaded: Audit,
    store: Store,
    gathered: Results,
    found: Sequence[Estimate],
    *,
    settings: Settings,
    standing: Standing,
    redact: Redaction = "none",
) -> ReportData:
    """Everything that the page and the figures show."""
    return ReportData(
        title=loaded.config.title,
        audit_hash=loaded.hash,
        version=__version__,
        edits=gathered.edits,
        scores=gathered.scores,
        estimates=tuple(found),
        settings=settings,
        image_path=store.pictures.find,
        folder=loaded.folder,
        editors=tuple(_editor(named) for named in loaded.editors),
        judges=tuple(_judge(named) for named in loaded.judges),
        standing=standing,
        calibrated=tuple(_calibrated(loaded)),
        headline_judges=_combining(loaded, gathered),
        badges=("synthetic portraits",) if loaded.config.portraits.source == "synthetic" else (),
        mitigation=tuple(_mitigation(gathered, settings)),
        roles=tuple(adherence(gathered.edits, gathered.scores, settings)),
        agreement=tuple(_agreement(loaded, gathered, settings)),
        against_people=tuple(_against_people(loaded, gathered, settings)),
        likeness=tuple(likeness(gathered.edits, gathered.scores, settings)),
        planted=tuple(known_answers.gaps(loaded, gathered)),
        spent=tuple(_spent(loaded, store)),
        remarks=partial(_remarks, loaded, store),
        redact=redact,
    )


def _mitigation(gathered: Results, settings: Settings) -> Iterator[PairedEffect | Disparity]:
    """Every arm against the baseline; the no-op arm asks for something else and is no mitigation."""
    arms = gathered.edits.arms
    for arm in arms:
        if arm not in (Arm.BASELINE, Arm.NOOP) and Arm.BASELINE in arms:
            yield from paired_effects(gathered.edits, gathered.scores, settings, arm=arm)


def _agreement(loaded: Audit, gathered: Results, settings: Settings) -> list[Agreement]:
    """The audit's judges among themselves, on the scales."""
    said = raters(loaded, gathered)
    return agreement(gathered.edits, said, settings) if len({score.judge for score in said}) > 1 else []


def _against_people(loaded: Audit, gathered: Results, settings: Settings) -> Iterator[AgainstPeople]:
    """Every other judge against the mean of the people who rated the same edits."""
    people = {named.name for named in loaded.judges if named.judge.capabilities.kind == "person"}
    for axis in dict.fromkeys(score.axis for score in gathered.scores if score.judge in people):
        rated = mean_of([score for score in gathered.scores if score.axis == axis and score.judge in people])
        for score in gathered.scores:
            if score.axis == axis and score.judge not in people:
                yield from against_people(gathered.edits, score, rated, settings, by_editor=False)


def _combining(loaded: Audit, gathered: Results) -> tuple[str, ...]:
    """Judges that are made of the audit's own: where one answers, it speaks for them."""
    own = {named.name for named in loaded.judges}
    return tuple(dict.fromkeys(score.judge for score in gathered.scores if score.judge not in own))


def _editor(named: NamedEditor) -> Described:
    return _described(named.name, named.editor, named.editor.spec)


def _judge(named: NamedJudge) -> Described:
    cards = tuple(named.judge.cards()) if isinstance(named.judge, Vouched) else ()
    return replace(_described(named.name, named.judge, named.judge.spec), cards=cards)


def _described(name: str, plugin: object, spec: Spec) -> Described:
    return Described(
        name=name,
        text=(type(plugin).__doc__ or "").partition("\n")[0],
        use=f"{spec.use} {spec.version}",
        parameters=json.dumps(dict(spec.parameters), sort_keys=True, ensure_ascii=False) if spec.parameters else "",
    )


def _spent(loaded: Audit, store: Store) -> Iterator[Spent]:
    """One line per editor and judge of this configuration, and one for what others in the same folder took."""
    names = {
        "editor": {named.editor.spec.key: named.name for named in loaded.editors},
        "judge": {named.judge.spec.key: named.name for named in loaded.judges},
    }
    for kind, query in _SPENT:
        rows = {spec: numbers for spec, *numbers in store.query(query)}
        known = [spec for spec in names[kind] if spec in rows]
        earlier = sorted(set(rows) - set(known))
        for name, specs in [*((names[kind][spec], [spec]) for spec in known), (EARLIER, earlier)]:
            if specs:
                calls, attempts, seconds, dollars = (sum(each) for each in zip(*(rows[s] for s in specs), strict=True))
                yield Spent(
                    kind="editor" if kind == "editor" else "judge",
                    name=name,
                    calls=calls,
                    attempts=attempts,
                    seconds=seconds,
                    dollars=dollars,
                )


def _remarks(loaded: Audit, store: Store, keys: Sequence[str]) -> Mapping[str, Sequence[Remark]]:
    """What judges gave as evidence for these edits, and what editors said when they declined."""
    wanted = set(keys)
    names = {named.judge.spec.key: named.name for named in loaded.judges}
    found: dict[str, list[Remark]] = {}
    for key, message in store.query(_OWN_WORDS):
        if key in wanted:
            found.setdefault(key, []).append(Remark(who="editor", axis="", text=message))
    for key, judge, axis, reason in store.query(_EVIDENCE):
        if key in wanted and judge in names:
            found.setdefault(key, []).append(Remark(who=names[judge], axis=axis, text=reason))
    return found


def _calibrated(loaded: Audit) -> Iterator[Calibrated]:
    for named in loaded.judges:
        known = calibration.find(named.judge.spec)
        if known is not None:
            limits = load_limits().axes
            yield Calibrated(
                judge=named.name,
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
        noticed=_tried({group: result.sensitivity for group, result in groups.items()}),
        curve=tuple(_doses(groups)),
        most_alarms=limits.false_alarm,
        least_noticed=limits.sensitivity,
        smallest=groups[EVERYONE].smallest if EVERYONE in groups else None,
    )


def _doses(groups: Mapping[str, AxisResult]) -> Iterator[Dose]:
    for amount in sorted({each.amount for result in groups.values() for each in result.curve}):
        shares = {
            group: next((each.share for each in result.curve if each.amount == amount), None)
            for group, result in groups.items()
        }
        yield Dose(amount=amount, noticed=_tried(shares))


def _tried(shares: Mapping[str, Share | None]) -> tuple[Tried, ...]:
    return tuple(
        Tried(group=group, value=share.value, low=share.low, high=share.high)
        for group, share in shares.items()
        if share is not None
    )
