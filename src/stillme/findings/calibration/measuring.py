"""From answers on known changes to sensitivity, false alarms, bias and the smallest change noticed."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields

import numpy as np
from numpy.typing import NDArray

from stillme.core.rubric import AxisLimits, load_limits
from stillme.core.types import Portrait, Prompt, Spec
from stillme.estimates.intervals import t_quantile, wilson
from stillme.findings.calibration import honest
from stillme.findings.calibration.records import (
    EVERYONE,
    AxisResult,
    Calibration,
    CalibrationVerdict,
    Noticed,
    ShareOfPortraits,
)
from stillme.runs import Results

Flags = NDArray[np.bool_]
Values = NDArray[np.float64]

_CONFIDENCE = 0.90
"""Of two-sided intervals, so that each limit alone holds with 95 %."""
_NOTICED = 0.8


@dataclass(frozen=True, slots=True, kw_only=True)
class _Answers:
    """One axis's answers, with the kind and size of the change behind each."""

    value: Values
    kind: NDArray[np.str_]
    amount: Values
    portrait: NDArray[np.int32]
    """The source picture: the unit of every interval."""
    turned: Flags
    """Whether a change of this source counts with the other sign."""

    @property
    def signed(self) -> Values:
        """The amounts, in the direction of the axis."""
        return np.where(self.turned, -self.amount, self.amount)

    def where(self, keep: Flags) -> _Answers:
        return _Answers(**{one.name: getattr(self, one.name)[keep] for one in fields(self)})

    def of_kinds(self, kinds: Sequence[str]) -> _Answers:
        return self.where(np.isin(self.kind, kinds))


def calibration_of(
    judge: str,
    spec: Spec,
    results: Results,
    groups: Mapping[str, str],
    portraits: str,
    *,
    first_look: bool = False,
) -> Calibration:
    """Compare a judge's answers with the truth that the names of prompts and honest edits carry.

    `groups` gives the skin-tone group of each portrait id. A first look decides by rates, everything else by the
    limits of their intervals.
    """
    edits, scores = results.edits, results.scores
    codes: list[int] = edits.prompt.tolist()
    kinds = _kinds(results)
    sizes = [_size(prompt) for prompt in edits.prompts]
    amounts = np.array([sizes[code] for code in codes])
    source = _source_pictures(edits.portraits)
    by_portrait = np.array([groups[portrait.id] for portrait in edits.portraits])
    axes: dict[str, dict[str, AxisResult]] = {}
    verdicts: dict[str, CalibrationVerdict] = {}
    by_tone: dict[str, dict[str, CalibrationVerdict]] = {}
    for axis, limits in load_limits().axes.items():
        score = next((score for score in scores if score.axis == axis and score.judge == judge), None)
        if score is None:
            continue
        answers = _Answers(
            value=score.value,
            kind=np.array(kinds),
            amount=amounts,
            portrait=source[edits.portrait],
            turned=_turned(edits.portraits, limits)[edits.portrait],
        )
        axes[axis] = {EVERYONE: _result(answers, limits)}
        for group in load_limits().groups:
            inside = by_portrait[edits.portrait] == group
            if inside.any():
                axes[axis][group] = _result(answers.where(inside), limits)
        everyone, *groups_of = (_validated(result, limits, first_look) for result in axes[axis].values())
        by_tone[axis] = dict(zip(list(axes[axis])[1:], groups_of, strict=True))
        verdicts[axis] = _verdict(everyone, groups_of)
    return Calibration(
        judge=judge,
        key=spec.key,
        limits=load_limits().version,
        portraits=portraits,
        pairs=len(edits),
        axes=axes,
        verdicts=verdicts,
        by_tone=by_tone,
        first_look=first_look,
    )


def _kinds(results: Results) -> list[str]:
    """What was changed in each edit: as its editor or prompt names it, or as the planted editor says that it did."""
    edits, honest_kinds = results.edits, honest.load().kinds
    editors: list[int] = edits.editor.tolist()
    asked: list[int] = edits.prompt.tolist()
    kinds = [
        edits.editors[editor] if edits.editors[editor] in honest_kinds else edits.prompts[prompt].subcategory
        for editor, prompt in zip(editors, asked, strict=True)
    ]
    planted = next((truth.value for truth in results.truths if truth.axis == "skip"), None)
    if planted is None:
        return kinds
    said = {1.0: "made", 2.0: "skipped"}
    return [said.get(float(truth), kind) for truth, kind in zip(planted, kinds, strict=True)]


def _size(prompt: Prompt) -> float:
    """The amount in the prompt's name, as in `skin+4`; 0 where it names none."""
    try:
        return float(prompt.id.removeprefix(prompt.subcategory) or 0)
    except ValueError:
        return 0.0


def _source_pictures(portraits: Sequence[Portrait]) -> NDArray[np.int32]:
    """For each portrait the number of its picture: one that two audits share is one source."""
    numbers: dict[str, int] = {}
    return np.array([numbers.setdefault(one.id, len(numbers)) for one in portraits], dtype=np.int32)


def _turned(portraits: Sequence[Portrait], limits: AxisLimits) -> Flags:
    oriented = limits.oriented
    return np.array(
        [oriented is not None and who.attributes.get(oriented.attribute) == oriented.negative for who in portraits],
        dtype=np.bool_,
    )


def null_kinds(limits: AxisLimits) -> tuple[str, ...]:
    """The kinds of edit that leave an axis alone: those of its limits, and the honest ones it must be silent about."""
    kinds = honest.load().kinds
    if limits.subject == "visible":
        silent = [name for name, kind in kinds.items() if kind.visible is False]
    else:
        silent = [name for name, kind in kinds.items() if limits.subject in kind.silent]
    return tuple(dict.fromkeys((*limits.same, *silent)))


def _result(answers: _Answers, limits: AxisLimits) -> AxisResult:
    kinds = null_kinds(limits)
    same = answers.of_kinds(kinds)
    moved = answers.of_kinds([limits.changed] if limits.changed else [])
    enough = moved.where(np.abs(moved.amount) >= limits.least)
    asked = answers.of_kinds([*kinds, limits.changed])
    by_kind = {kind: answers.of_kinds([kind]) for kind in kinds}
    nulls = {kind: _rate(_says_changed(part, limits), part) for kind, part in by_kind.items()}
    return AxisResult(
        false_alarm=_rate(_says_changed(same, limits), same),
        nulls={kind: share for kind, share in nulls.items() if share is not None},
        sensitivity=_rate(_noticed(enough, limits), enough),
        bias=_mean(moved.value - moved.amount, moved) if limits.bias is not None else None,
        faceless=_faceless(answers) if limits.faceless is not None else None,
        smallest=_smallest(moved, limits),
        answered=float(np.mean(~np.isnan(asked.value))) if len(asked.value) else 0.0,
        curve=tuple(_curve(moved, limits)),
    )


def _curve(moved: _Answers, limits: AxisLimits) -> Iterator[Noticed]:
    """The share noticed at each size of the change."""
    for amount in sorted({float(amount) for amount in moved.amount}):
        here = moved.where(moved.amount == amount)
        share = _rate(_noticed(here, limits), here)
        if share is not None:
            yield Noticed(amount=amount, share=share)


def _says_changed(answers: _Answers, limits: AxisLimits) -> Values:
    """1 where the answer says "changed", 0 where not, NaN where there is no answer."""
    off = np.abs(answers.value - limits.unchanged)
    return np.where(np.isnan(off), np.nan, off > limits.flag)


def _noticed(answers: _Answers, limits: AxisLimits) -> Values:
    said = _says_changed(answers, limits)
    if not limits.signed:
        return said
    right_way = np.sign(answers.value - limits.unchanged) == np.sign(answers.signed)
    return np.where(np.isnan(said), np.nan, said * right_way)


def _faceless(answers: _Answers) -> ShareOfPortraits | None:
    black = answers.of_kinds(["black"])
    return _rate((~np.isnan(black.value)).astype(np.float64), black)


def _smallest(moved: _Answers, limits: AxisLimits) -> float | None:
    sizes = sorted({float(size) for size in np.abs(moved.amount)} - {0.0}, reverse=True)
    smallest: float | None = None
    for size in sizes:
        noticed = _noticed(moved.where(np.abs(moved.amount) == size), limits)
        given = noticed[~np.isnan(noticed)]
        if not len(given) or given.mean() < _NOTICED:
            break
        smallest = size
    return smallest


def _rate(said: Values, answers: _Answers) -> ShareOfPortraits | None:
    """A rate over pairs, its interval as if each portrait had given one answer: never too narrow."""
    given = ~np.isnan(said)
    if not given.any():
        return None
    portraits = len(set(answers.portrait[given].tolist()))
    share = float(said[given].mean())
    low, high = wilson(share, portraits, _CONFIDENCE)
    return ShareOfPortraits(value=share, low=low, high=high, portraits=portraits)


def _mean(off: Values, answers: _Answers) -> ShareOfPortraits | None:
    """A mean over portraits' means, with Student's interval."""
    means = [
        float(np.mean(off[(answers.portrait == who) & ~np.isnan(off)]))
        for who in sorted(set(answers.portrait[~np.isnan(off)].tolist()))
    ]
    if len(means) < 2:
        return None
    centre = float(np.mean(means))
    half = t_quantile((1 + _CONFIDENCE) / 2, len(means) - 1) * float(np.std(means, ddof=1)) / math.sqrt(len(means))
    return ShareOfPortraits(value=centre, low=centre - half, high=centre + half, portraits=len(means))


def _validated(result: AxisResult, limits: AxisLimits, first_look: bool) -> CalibrationVerdict:
    """Whether a judge is validated on one group: by the limits of its intervals, or at first by the rates alone."""
    if not all(_kept(result, limits, first_look)):
        return CalibrationVerdict.FAILED
    # Without a change to notice, silence would pass.
    tested = result.sensitivity is not None or (not limits.changed and result.false_alarm is not None)
    return CalibrationVerdict.PASSED if tested else CalibrationVerdict.UNTESTED


def _verdict(everyone: CalibrationVerdict, groups: Collection[CalibrationVerdict]) -> CalibrationVerdict:
    """The verdict over all groups: a judge that works on some skins only passes partly."""
    verdicts = {everyone, *groups}
    if len(verdicts) == 1:
        return everyone
    if CalibrationVerdict.PASSED in groups:
        return CalibrationVerdict.PARTLY
    return CalibrationVerdict.FAILED


def _kept(result: AxisResult, limits: AxisLimits, first_look: bool) -> Iterator[bool]:
    """Whether each limit of an axis is kept."""
    for kind, share in result.nulls.items():
        if kind not in load_limits().shown:
            yield share.stays_below(limits.false_alarm, first_look=first_look)
    if noticed := result.sensitivity:
        low = noticed.value if first_look else noticed.low + load_limits().slack.sensitivity
        yield low >= limits.sensitivity
    if result.bias and limits.bias is not None:
        yield abs(result.bias.value) <= limits.bias
    if result.faceless and limits.faceless is not None:
        yield result.faceless.stays_below(limits.faceless, first_look=first_look)
