"""How a run's judges behave: what they add to the numbers, how far they agree, which edits people should see."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from stillme.audit.design import JudgeRecord
from stillme.core import rubric
from stillme.core.files import write_csv
from stillme.core.types import Interval, Json
from stillme.estimates import Scores, behaviour, holm, numbers
from stillme.estimates.agreement import Agreement, agreement
from stillme.estimates.behaviour import Behaviour
from stillme.estimates.people import disagreement
from stillme.judges.ensemble import PRIORITIES, Flag, agreed, flag, primary_of
from stillme.runs.control_pairs.reading import ControlPairAnswers, answered_by
from stillme.runs.gathering import Results, ensemble_name
from stillme.runs.run import RecordedRun
from stillme.runs.status import ModelNames, model_names

MUCH_MISSING = 0.05
"""The share of combined scores that lack a judge above which a reader is warned."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Combination:
    """The judges behind the combined scores."""

    name: str
    rule: str
    judges: tuple[str, ...]
    primary: str
    """The judge of Eq. 3 that decides where two are more than a point apart; empty under other rules."""
    unblinded: tuple[str, ...]
    """Those that see the portraits' labels."""

    @property
    def mixed(self) -> bool:
        """Whether blind judges are combined with unblinded ones."""
        return 0 < len(self.unblinded) < len(self.judges)


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgeBehaviour:
    """What is known of the judges' own part in a run's numbers."""

    coverage: tuple[Behaviour, ...] = ()
    models: tuple[ModelNames, ...] = ()
    combination: Combination | None = None
    control_pairs: tuple[ControlPairAnswers, ...] = ()
    """To pairs of known truth, hidden among the questions."""
    confidence: float = 0.95

    @property
    def incomplete(self) -> Mapping[str, float]:
        """By axis: the share of combined scores that lack a judge."""
        return {
            share.axis: share.outcome.value
            for share in self.coverage
            if share.measure == "incomplete" and share.scope == "all" and isinstance(share.outcome, Interval)
        }

    @property
    def warnings(self) -> list[str]:
        """Combined scores that lack a judge: too many, or not equally many in every group."""
        return [*self._much_missing(), *self._unequally_missing()]

    def _much_missing(self) -> Iterator[str]:
        axes = [axis for axis, share in self.incomplete.items() if share > MUCH_MISSING]
        if axes:
            most = max(self.incomplete[axis] for axis in axes)
            yield (
                f"{numbers.percent(most)} of the combined scores lack a judge ({_most_of(axes)}): "
                f"{listed(self._lacking(axes))}."
            )

    def _lacking(self, axes: Sequence[str]) -> list[str]:
        """The judges that gave no score, and for which share where it is largest."""
        lacking: dict[str, float] = {}
        for share in self.coverage:
            if share.measure == "no_score" and share.scope == "all" and share.axis in axes:
                value = share.outcome.value if isinstance(share.outcome, Interval) else 0.0
                lacking[share.judge] = max(value, lacking.get(share.judge, 0.0))
        return [f"{judge} gave none for {numbers.percent(value)}" for judge, value in lacking.items() if value]

    def _unequally_missing(self) -> Iterator[str]:
        tested = {
            (share.axis, share.factor): share.groups_p
            for share in self.coverage
            if share.measure == "incomplete" and share.groups_p is not None
        }
        adjusted = dict(zip(tested, holm(list(tested.values())), strict=True))
        for factor in dict.fromkeys(factor for _, factor in adjusted):
            unequal = {axis: p for (axis, by), p in adjusted.items() if by == factor and p < 1 - self.confidence}
            if unequal:
                yield (
                    f"Combined scores lack a judge more often in some groups of {numbers.factor_name(factor)} than in "
                    f"others ({_most_of(list(unequal))}; {numbers.p_value(max(unequal.values()))}). They are left "
                    "out, so what is left may compare unlike edits."
                )


def listed(names: Sequence[str]) -> str:
    """`a, b and c`."""
    return " and ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else names)


def _most_of(axes: Sequence[str]) -> str:
    return listed([f"“{numbers.title(axis)}”" for axis in axes])


def behaviour_of(run: RecordedRun) -> JudgeBehaviour:
    """What the report says."""
    return JudgeBehaviour(
        coverage=tuple(coverage(run)),
        models=tuple(model_names(run)),
        combination=combination(run),
        control_pairs=tuple(answered_by(run.store, run.judges)),
        confidence=run.settings.confidence,
    )


def position_bias(run: RecordedRun) -> list[Behaviour]:
    """Of models that saw both orders."""
    return behaviour.position_bias(run.results.edits, run.results.repeats, run.settings)


def repeatability(run: RecordedRun) -> list[Behaviour]:
    """Of models that were asked the same more than once."""
    return behaviour.repeatability(run.results.edits, run.results.repeats, run.settings)


def disclosure_effect(run: RecordedRun) -> list[Behaviour]:
    """Of models that judge both blind and unblinded, and are otherwise the same."""
    scores = {(score.judge, score.axis): score for score in run.results.scores}
    pairs = [
        (scores[blind.name, axis], scores[unblinded.name, axis])
        for blind, unblinded in blind_and_unblinded(run.judges)
        for axis in blind.capabilities.axes
        if (unblinded.name, axis) in scores
    ]
    return behaviour.disclosure_effect(run.results.edits, pairs, run.settings)


def blind_and_unblinded(judges: Sequence[JudgeRecord]) -> Iterator[tuple[JudgeRecord, JudgeRecord]]:
    """Judges that differ only in whether they see the labels."""
    models = [judge for judge in judges if judge.capabilities.kind == "model"]
    for unblinded in models:
        for blind in models:
            if unblinded.unblinded and not blind.unblinded and _but_disclosure(unblinded) == _but_disclosure(blind):
                yield blind, unblinded


def _but_disclosure(judge: JudgeRecord) -> tuple[str, Mapping[str, Json]]:
    spec = judge.spec
    return spec.version, {name: value for name, value in spec.parameters.items() if name != "disclosure"}


def coverage(run: RecordedRun) -> list[Behaviour]:
    """Of the combined scores: how many lack a judge."""
    return behaviour.coverage(run.results.edits, ensemble_name(run.design), _parts(run), run.settings)


def _parts(run: RecordedRun) -> list[Scores]:
    combinable = {axis.name for axis in rubric.load().axes.values() if axis.is_asked}
    return [
        score
        for name in run.design.analysis.combined
        for score in run.results.scores
        if score.judge == name and score.axis in combinable
    ]


def combination(run: RecordedRun) -> Combination | None:
    """Who is combined and how; None where there is no ensemble."""
    analysis = run.design.analysis
    if not any(score.kind == "ensemble" for score in run.results.scores):
        return None
    return Combination(
        name=ensemble_name(run.design),
        rule=analysis.rule,
        judges=analysis.combined,
        primary=primary_of(analysis.rule, analysis.combined),
        unblinded=tuple(judge.name for judge in run.judges if judge.name in analysis.combined and judge.unblinded),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Gaps:
    """Of the edits that every combined judge has answered: how many lack a judge's score. Counted in the ledger."""

    edits: int
    """Edits with at least one score."""
    incomplete: int
    by_judge: Mapping[str, int]
    """The judges that gave no score, and for how many of these edits."""

    def __str__(self) -> str:
        judges = ", ".join(f"{name} {count:,}" for name, count in self.by_judge.items())
        share = numbers.percent(self.incomplete / self.edits)
        warning = "warning: " if self.incomplete > MUCH_MISSING * self.edits else ""
        return f"{warning}{share} of {self.edits:,} combined scores lack a judge (no score by {judges})"


def gaps(run: RecordedRun) -> Gaps | None:
    """Where judges gave no score, counted without gathering the run; None where every combined score has all judges."""
    judges = [judge for name in run.design.analysis.combined if (judge := run.design.judge(name))]
    if len(judges) < 2:
        return None
    patterns = run.store.scoring_patterns([judge.spec.key for judge in judges], run.plan)
    scored = {pattern: count for pattern, count in patterns.items() if any(pattern)}
    incomplete = sum(count for pattern, count in scored.items() if not all(pattern))
    lacking = {
        judge.name: sum(count for pattern, count in scored.items() if not pattern[place])
        for place, judge in enumerate(judges)
    }
    by_judge = {name: count for name, count in lacking.items() if count}
    return Gaps(edits=sum(scored.values()), incomplete=incomplete, by_judge=by_judge) if incomplete else None


FOLDER = "judges"
_FLAGGED = ("priority", "portrait", "prompt", "editor", "arm", "axis", "judge", "score", "edit")
_AGREEMENT = (
    *("axis", "measure", "factor", "group", "value", "low", "high", "not_estimable"),
    *("judges", "edits", "ratings", "portraits"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Dispute:
    """One edit on which judges are too far apart."""

    row: int
    """Index into the results."""
    flag: Flag


def between(run: RecordedRun) -> list[Dispute]:
    """Edits that people should look at, the most urgent first."""
    differences = dict(_differences(raters(run)))
    disputes: list[Dispute] = []
    for row in range(len(run.results.edits)):
        raised = flag({axis: float(difference[row]) for axis, difference in differences.items()})
        if raised:
            disputes.append(Dispute(row=row, flag=raised))
    return sorted(disputes, key=_urgency)


def _urgency(dispute: Dispute) -> tuple[int, float]:
    return PRIORITIES.index(dispute.flag.priority), -max(dispute.flag.differences.values())


def raters(run: RecordedRun) -> list[Scores]:
    """Scores of the audit's own judges on the scales and on who is the target, without people and ensembles."""
    own = {judge.name for judge in run.judges} - run.design.people
    rated = {axis.name for axis in rubric.load().axes.values() if axis.is_asked}
    return [score for score in run.results.scores if score.judge in own and score.axis in rated]


def disagreements(run: RecordedRun) -> NDArray[np.float64]:
    """For each edit how far models' answers on the scales are apart, on average over the scales; NaN if not known."""
    nominal = rubric.load().is_nominal
    answers: dict[str, list[NDArray[np.float64]]] = {}
    repeats = {(repeat.judge, repeat.axis): repeat.value for repeat in run.results.repeats}
    for score in raters(run):
        if not nominal(score.axis):
            again = repeats.get((score.judge, score.axis))
            answers.setdefault(score.axis, []).extend([score.value] if again is None else [*again])
    apart = np.full(len(run.results.edits), np.nan)
    tables = [disagreement(given) for given in answers.values() if len(given) > 1]
    if tables:
        table = np.stack(tables)
        known = ~np.isnan(table).all(axis=0)
        apart[known] = np.nanmean(table[:, known], axis=0)
    return apart


def agreement_of(run: RecordedRun) -> list[Agreement]:
    """How far the audit's judges agree with one another, and its people among themselves."""
    edits, settings = run.results.edits, run.settings
    return [
        *agreement(edits, raters(run), settings),
        *agreement(edits, run.results.people, settings, among="people"),
    ]


def write_judges(run: RecordedRun) -> list[Path]:
    """Write judges/flagged.csv and judges/agreement.csv into tables; nothing where there is only one judge."""
    scores = raters(run)
    if len({score.judge for score in scores}) < 2:
        return []
    tables = run.folder / "tables" / FOLDER
    tables.mkdir(parents=True, exist_ok=True)
    return [
        write_csv(tables / "flagged.csv", _FLAGGED, _flagged(run.results, scores, between(run))),
        write_csv(
            tables / "agreement.csv",
            _AGREEMENT,
            map(_agreement_row, agreement(run.results.edits, scores, run.settings)),
        ),
    ]


def _differences(scores: Sequence[Scores]) -> Iterator[tuple[str, NDArray[np.float64]]]:
    """For every axis the largest difference between two judges; 0 where fewer than two gave a score, or all agree."""
    for axis in dict.fromkeys(score.axis for score in scores):
        given = np.stack([score.value for score in scores if score.axis == axis])
        high = np.where(np.isnan(given), -np.inf, given).max(axis=0)
        low = np.where(np.isnan(given), np.inf, given).min(axis=0)
        difference = np.where(np.isfinite(high), high - low, 0.0)
        if rubric.load().is_nominal(axis):
            for row in np.flatnonzero(difference):
                difference[row] *= agreed(given[~np.isnan(given[:, row]), row].tolist()) is None
        yield axis, difference


def _flagged(results: Results, scores: Sequence[Scores], disputes: Sequence[Dispute]) -> Iterator[dict[str, str]]:
    edits = results.edits
    for dispute, score in itertools.product(disputes, scores):
        if score.axis in dispute.flag.differences and not np.isnan(score.value[dispute.row]):
            row = dispute.row
            yield {
                "priority": dispute.flag.priority,
                "portrait": edits.portraits[int(edits.portrait[row])].id,
                "prompt": edits.prompts[int(edits.prompt[row])].id,
                "editor": edits.editors[int(edits.editor[row])],
                "arm": edits.arms[int(edits.arm[row])],
                "axis": score.axis,
                "judge": score.judge,
                "score": f"{score.value[row]:.9g}",
                "edit": edits.keys[row],
            }


def _agreement_row(agreement: Agreement) -> dict[str, str]:
    row = {
        "axis": agreement.axis,
        "measure": agreement.measure,
        "factor": agreement.factor or "everyone",
        "group": agreement.group or "all",
        "judges": str(agreement.raters),
        "edits": str(agreement.items),
        "ratings": str(agreement.ratings),
        "portraits": str(agreement.portraits),
    }
    outcome = agreement.outcome
    if not isinstance(outcome, Interval):
        return row | {"not_estimable": outcome.reason}
    return row | {name: numbers.machine(getattr(outcome, name)) for name in ("value", "low", "high")}
