"""What a calibration found, kept by the judge's exact specification."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from enum import StrEnum
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any

from stillme.audit.design import Design, JudgeRecord
from stillme.core.files import data_folder, write_json
from stillme.core.rubric import load_limits
from stillme.core.tables import aligned
from stillme.core.types import Json, Spec
from stillme.estimates.headlines import CONTROL_PAIRS, PEOPLE, Standing, blind_on, within
from stillme.runs import RecordedRun
from stillme.runs.control_pairs.reading import answered_by
from stillme.runs.gathering import ensemble_name

if TYPE_CHECKING:
    from stillme.audit import Audit

EVERYONE = "everyone"
_ALL = "", ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Moved:
    """One axis under one variant, against the same pairs as they are."""

    asked: int
    scored: int
    mean: float | None
    """How far scores move, on average; None where no pair was scored both times."""
    largest: float | None

    def __str__(self) -> str:
        if self.mean is None or self.largest is None:
            return f"scored {self.scored} of {self.asked}"
        return f"{self.mean:.2f} (at most {self.largest:g})"


Stress = Mapping[str, Mapping[str, Moved]]
"""By axis and variant."""


def stress_table(moved: Stress) -> Iterator[str]:
    """For people."""
    if not moved:
        return
    forms = list(next(iter(moved.values())))
    yield "Stress check: how far scores move, on average, when the same pair is shown in another form"
    rows = ([axis, *(str(by_form[form]) for form in forms)] for axis, by_form in moved.items())
    yield from aligned(rows, ("axis", *forms))


class CalibrationVerdict(StrEnum):
    """Whether an axis keeps its limits."""

    PASSED = "passed"
    PARTLY = "partly"
    """Passed on some skin tones; on the others the judge cannot tell."""
    FAILED = "failed"
    UNTESTED = "untested"
    """No pair of known truth moves this axis, or the judge gave no answer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ShareOfPortraits:
    """A rate, or a mean, over source pictures; each limit of its interval holds with 95 %."""

    value: float
    low: float
    high: float
    portraits: int

    def stays_below(self, most: float, *, first_look: bool) -> bool:
        """Whether false alarms are few enough: by the limit of their interval, at a first look by the rate alone."""
        return self.value <= most if first_look else self.high <= most + load_limits().slack.false_alarm


@dataclass(frozen=True, slots=True, kw_only=True)
class Noticed:
    """A known change of one size, and how often it was noticed."""

    amount: float
    share: ShareOfPortraits


@dataclass(frozen=True, slots=True, kw_only=True)
class AxisResult:
    """One axis in one skin-tone group, or in everyone."""

    false_alarm: ShareOfPortraits | None
    """How often "changed" is said where nothing did."""
    nulls: dict[str, ShareOfPortraits]
    """The same by kind of null edit: a judge may be right after a crop and wrong after a tone curve."""
    sensitivity: ShareOfPortraits | None
    """How often a change that must be noticed is noticed."""
    bias: ShareOfPortraits | None
    """Answer minus truth, on average, where both have one unit."""
    faceless: ShareOfPortraits | None
    """How often there is an answer where there is no face to answer about."""
    smallest: float | None
    """The smallest change from which on at least 80 % are noticed."""
    answered: float
    """The share of pairs with an answer; the rest are abstentions and failures."""
    curve: tuple[Noticed, ...] = ()
    """From the smallest change to the largest."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Calibration:
    """A judge's results on every axis it answers."""

    judge: str
    key: str
    """Of the judge's specification: another version or parameter is another judge."""
    limits: str
    """The version of the limits."""
    portraits: str
    """Which portraits it was tried on."""
    pairs: int
    axes: dict[str, dict[str, AxisResult]]
    verdicts: dict[str, CalibrationVerdict]
    by_tone: dict[str, dict[str, CalibrationVerdict]]
    """Axis to skin-tone group to verdict."""
    first_look: bool = False
    """Whether few portraits were tried, so that rates decided and not the limits of their intervals."""
    stress: Stress = field(default_factory=dict[str, Mapping[str, Moved]])
    """How far scores move when the same pair is shown in another form; empty where that was not tried."""

    @property
    def passed(self) -> bool:
        """Whether no tested axis failed."""
        tested = {verdict for verdict in self.verdicts.values() if verdict is not CalibrationVerdict.UNTESTED}
        return tested == {CalibrationVerdict.PASSED}

    def as_json(self) -> dict[str, Any]:
        """For files and `--json`."""
        return asdict(self) | {"passed": self.passed}

    def as_text(self) -> str:
        """A table for people."""
        head = f"{self.judge} on {self.pairs:,} pairs of known truth ({self.portraits})"
        rows = [
            _row(axis, group, result, self.verdicts[axis] if group == EVERYONE else self.by_tone[axis].get(group))
            for axis, groups in self.axes.items()
            for group, result in groups.items()
        ]
        stress = ["", *stress_table(self.stress)] if self.stress else []
        first_look = [_FIRST_LOOK] if self.first_look else []
        return "\n".join([head, *first_look, "", *aligned(rows, _HEADS), *self._invalid(), *stress])

    def invalid_after(self, axis: str, group: str) -> tuple[str, ...]:
        """The kinds of null edit after which an axis cannot be trusted in a group."""
        return tuple(
            kind
            for kind, share in self.axes[axis][group].nulls.items()
            if kind not in load_limits().shown
            if not share.stays_below(load_limits().axes[axis].false_alarm, first_look=self.first_look)
        )

    def _invalid(self) -> Iterator[str]:
        for axis, groups in self.axes.items():
            by_kind: dict[str, list[str]] = {}
            for group in groups:
                for kind in self.invalid_after(axis, group) if group != EVERYONE else ():
                    by_kind.setdefault(kind, []).append(group)
            if by_kind:
                named = "; ".join(f"{kind} ({', '.join(tones)})" for kind, tones in by_kind.items())
                yield f"{axis}: not valid after {named}"


_FIRST_LOOK = "A first look: rates of a few portraits decide. It validates nothing; run without --quick."


def save(calibration: Calibration) -> Path:
    """Keep a calibration where every audit on this machine finds it."""
    _home().mkdir(parents=True, exist_ok=True)
    return write_json(_home() / f"{calibration.key}.json", calibration.as_json())


def find(spec: Spec) -> Calibration | None:
    """The calibration of exactly this judge: this machine's own, else the one shipped with stillme."""
    shipped = Path(str(files("stillme.findings.calibration").joinpath("shipped")))
    for folder in (_home(), shipped):
        file = folder / f"{spec.key}.json"
        if file.is_file():
            return read(json.loads(file.read_text("utf-8")))
    return None


def _home() -> Path:
    return data_folder() / "calibrations"


def read(data: Mapping[str, Any]) -> Calibration:
    """The calibration that `as_json` wrote."""
    return _reader()(data)


@cache
def _reader() -> Callable[[Mapping[str, Any]], Calibration]:
    # Tables of a run without calibrations do not wait for pydantic.
    from pydantic import TypeAdapter

    return TypeAdapter(Calibration).validate_python


_HEADS = ("axis", "group", "false alarms", "noticed", "bias", "no face", "smallest", "verdict")


def _row(axis: str, group: str, result: AxisResult, verdict: CalibrationVerdict | None) -> tuple[str, ...]:
    return (
        *(axis if group == EVERYONE else "", group, _percent(result.false_alarm), _percent(result.sensitivity)),
        f"{result.bias.value:+.2f} [{result.bias.low:+.2f}, {result.bias.high:+.2f}]" if result.bias else "",
        *(f"{result.faceless.value:.0%}" if result.faceless else "", f"{result.smallest:g}" if result.smallest else ""),
        str(verdict or CalibrationVerdict.UNTESTED),
    )


def _percent(share: ShareOfPortraits | None) -> str:
    return f"{share.value:.0%} [{share.low:.0%}, {share.high:.0%}]" if share else ""


def calibration_of_judge(judge: JudgeRecord) -> Calibration | None:
    """What was recorded of a judge's calibration with the run, else what this machine knows."""
    return read(judge.calibration) if judge.calibration else find(judge.spec)


def standing_of(run: RecordedRun) -> Standing:
    """What calibration says of a run's judges, for the skin tones of its people; judges never calibrated are absent.

    People are not asked for a calibration: they are what judges are held against.

    An ensemble stands as its weakest member on each axis: it passed only if all of them did.
    """
    standing: dict[str, dict[str, str]] = {name: {PEOPLE: "passed"} for name in run.design.people}
    tones = _tones(run)
    for judge in run.judges:
        if known := calibration_of_judge(judge):
            standing[judge.name] = dict(_verdicts(known, tones))
    members = [judge for judge in run.judges if judge.name in run.design.analysis.combined]
    if any(judge.name in standing for judge in members):
        standing[ensemble_name(run.design)] = {
            name: _weakest([_verdict_on(standing.get(judge.name, {}), name) for judge in asked])
            for name in dict.fromkeys(name for judge in members for name in standing.get(judge.name, {}))
            if (asked := [judge for judge in members if _axis_of(name) in judge.capabilities.axes])
        }
    return standing | _caught(run, standing)


def _caught(run: RecordedRun, standing: Standing) -> dict[str, dict[str, str]]:
    """Judges whose control pairs raised the alarm in this run, and the ensemble of one: their answers do not count."""
    wrong = {answers.judge: answers.wrong_pairs for answers in answered_by(run.store, run.judges) if answers.alarm}
    members = [name for name in wrong if name in run.design.analysis.combined]
    if members:
        wrong[ensemble_name(run.design)] = f"{members[0]}: {wrong[members[0]]}"
    return {judge: {**standing.get(judge, {}), CONTROL_PAIRS: count} for judge, count in wrong.items()}


def _tones(run: RecordedRun) -> dict[tuple[str, str], frozenset[str]]:
    """By factor and level, and under `_ALL`: which skin tones these people have; without a measured one, any."""
    found: dict[tuple[str, str], set[str]] = {_ALL: set()}
    for portrait in run.design.portraits:
        measured = {tone} if (tone := run.results.tones.get(portrait.id)) else set[str]()
        for group in (_ALL, *portrait.attributes.items()):
            found.setdefault(group, set()).update(measured)
    return {group: frozenset(tones or load_limits().groups) for group, tones in found.items()}


def _verdicts(known: Calibration, tones: Mapping[tuple[str, str], frozenset[str]]) -> Iterator[tuple[str, str]]:
    for axis, tried in known.by_tone.items():
        verdict = _verdict_for(tried, tones[_ALL])
        yield axis, verdict
        for (factor, level), some in tones.items():
            if (factor, level) != _ALL and (own := _verdict_for(tried, some)) != verdict:
                yield within(axis, factor, level), own


def _verdict_for(tried: Mapping[str, CalibrationVerdict], tones: frozenset[str]) -> str:
    """The verdict for people of these skin tones."""
    by_tone = {tone: tried.get(tone, CalibrationVerdict.UNTESTED) for tone in load_limits().groups if tone in tones}
    blind = [tone for tone, verdict in by_tone.items() if verdict is not CalibrationVerdict.PASSED]
    if not blind:
        return str(CalibrationVerdict.PASSED)
    if CalibrationVerdict.PASSED in tried.values():
        return blind_on(blind)
    return str(
        CalibrationVerdict.FAILED if CalibrationVerdict.FAILED in by_tone.values() else CalibrationVerdict.UNTESTED
    )


def _axis_of(name: str) -> str:
    return name.partition("@")[0]


def _verdict_on(standing: Mapping[str, str], name: str) -> str:
    return standing.get(name) or standing.get(_axis_of(name), "untested")


def _weakest(verdicts: Sequence[str]) -> str:
    """The verdict of the judge that can tell least."""
    order = ("failed", "untested", "", "passed")
    return min(verdicts, key=lambda verdict: order.index(verdict if verdict in order else ""))


def calibrated(run: RecordedRun) -> Design:
    """The run's design with the calibrations that this machine knows, where none was recorded."""
    judges = (
        judge if judge.calibration or not (known := find(judge.spec)) else replace(judge, calibration=known.as_json())
        for judge in run.judges
    )
    return replace(run.design, judges=tuple(judges))


def known_to_this_machine(audit: Audit) -> dict[str, dict[str, Json]]:
    """By the judge's name: its calibration, to be recorded with a run."""
    known = {named.name: find(named.judge.spec) for named in audit.judges}
    return {name: calibration.as_json() for name, calibration in known.items() if calibration}
