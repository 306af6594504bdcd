"""Conformance checks for judges."""

from __future__ import annotations

import math
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, cast

from pydantic import BaseModel

from stillme.core import rubric
from stillme.core.protocols import Judge, JudgeCapabilities
from stillme.core.types import Abstained, Assessment, Failed, ImageFile, Pair, Portrait, Prompt, Rated, Spec
from stillme.plugins.testing.conformance import PROMPTS, cheap, described, not_plain, report, run_checks


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A judge class under test, and its inputs."""

    judge_class: type[Judge]
    parameters: Mapping[str, Any]
    portraits: Sequence[Portrait]
    prompts: Sequence[Prompt]

    def build(self) -> Judge:
        """A new judge."""
        construct = cast("Callable[[BaseModel], Judge]", self.judge_class)
        return construct(self.judge_class.Parameters.model_validate(dict(self.parameters)))

    @contextmanager
    def using(self) -> Generator[Judge]:
        """A new judge that is closed afterwards."""
        judge = self.build()
        try:
            yield judge
        finally:
            judge.close()

    def pairs(self, judge: Judge) -> list[Pair]:
        """Every portrait with every other as its edit, under every prompt."""
        labels = self.portraits[0].attributes if judge.capabilities.labels else None
        return [
            Pair(
                edit=f"{prompt.id}-{one.id}-{two.id}",
                sources=(one.image,),
                edited=two.image,
                prompt=prompt,
                labels=labels,
            )
            for prompt in self.prompts
            for one in self.portraits
            for two in self.portraits
            if one is not two
        ]


Check = Callable[[Case], Iterator[str]]


def check_judge(
    judge_class: type[Judge],
    portraits: Sequence[Portrait],
    parameters: Mapping[str, Any] | None = None,
    *,
    prompts: Sequence[Prompt] = PROMPTS,
    skip: Sequence[str] = (),
) -> None:
    """Raise an `AssertionError` with one sentence per violation. `skip` names checks that are not run."""
    report(judge_class, judge_violations(judge_class, portraits, parameters, prompts=prompts, skip=skip))


def judge_violations(
    judge_class: type[Judge],
    portraits: Sequence[Portrait],
    parameters: Mapping[str, Any] | None = None,
    *,
    prompts: Sequence[Prompt] = PROMPTS,
    skip: Sequence[str] = (),
) -> list[str]:
    """One sentence per violation; empty for a judge that conforms."""
    if len(portraits) < 2 or len(prompts) < 2:
        raise ValueError("give at least two portraits and two prompts; with one, mixed-up results go unnoticed")
    case = Case(judge_class=judge_class, parameters=parameters or {}, portraits=portraits, prompts=prompts)
    return run_checks(JUDGE_CHECKS, case, skip)


# -- what it declares -------------------------------------------------------------------------------------------------


def _described(case: Case) -> Iterator[str]:
    """Its class has what `stillme list` and audits need."""
    yield from described(case.judge_class, case.parameters)


def _cheap(case: Case) -> Iterator[str]:
    """Building it is cheap: an audit builds every judge to check its parameters."""
    yield from cheap(case.build, "pair")


def _stable(case: Case) -> Iterator[str]:
    """Its `spec` is always the same for the same parameters: it keys the results."""
    with case.using() as judge, case.using() as other:
        if not _is(judge.spec, Spec) or not judge.spec.use or not judge.spec.version:
            yield "its `spec` is not a `Spec` with a name and a version; make it with `stillme.core.protocols.spec_of`"
            return
        try:
            before = judge.spec.key
            if before != other.spec.key:
                yield "two judges with the same parameters have different `spec`s; a rerun would ask everything again"
            list(judge.judge(case.pairs(judge)[:1]))
            if replace(judge.spec).key != before:
                yield "its `spec` changes when it judges"
        except TypeError as error:
            yield f"its `spec` is not plain data ({error})"


def _sensible(case: Case) -> Iterator[str]:
    """Its capabilities are consistent."""
    capabilities = case.build().capabilities
    if not _is(capabilities, JudgeCapabilities):
        yield "its `capabilities` is not a `JudgeCapabilities`"
        return
    if min(capabilities.batch, capabilities.concurrency, capabilities.views) < 1:
        yield "`batch`, `concurrency` or `views` is below 1"
    names = [*capabilities.axes, *capabilities.partial]
    if not names:
        yield "it declares no axis; name under `axes` what it answers for every pair"
    if repeated := sorted({name for name in names if names.count(name) > 1}):
        yield f"it declares {', '.join(repeated)} twice; `partial` is for axes that are not in `axes`"


# -- what it does -----------------------------------------------------------------------------------------------------


def _answers(case: Case) -> Iterator[str]:
    """One valid assessment per pair, with a rating on every axis, and none without a pair."""
    with case.using() as judge:
        if list(judge.judge([])):
            yield "it gives assessments without pairs"
        rated = False
        pairs, size = case.pairs(judge), max(1, judge.capabilities.batch)
        for start in range(0, len(pairs), size):
            batch = pairs[start : start + size]
            assessments = list(judge.judge(batch))
            if len(assessments) != len(batch):
                yield f"it gave {len(assessments)} assessments for {len(batch)} pairs"
            for pair, assessment in zip(batch, assessments, strict=False):
                yield from _invalid(assessment, judge.capabilities, pair.prompt)
                rated = rated or any(isinstance(rating, Rated) for rating in assessment.ratings.values())
        if not rated:
            yield f"it rated nothing, so little could be checked; the first answer: {next(judge.judge(pairs[:1]))}"


def _batched(case: Case) -> Iterator[str]:
    """A batch gives the same as its pairs alone, in their order."""
    with case.using() as judge:
        if judge.capabilities.batch == 1 or not _repeats(judge, case.pairs(judge)[0]):
            return
        batch = case.pairs(judge)[: judge.capabilities.batch]
        for pair, together in zip(batch, judge.judge(batch), strict=True):
            if together.ratings != _one(judge, pair).ratings:
                yield f"{pair.edit!r} differs in a batch, or comes in another order"


def _parallel(case: Case) -> Iterator[str]:
    """As many concurrent calls as it declares give the same as sequential ones."""
    with case.using() as judge:
        calls, pairs = judge.capabilities.concurrency, case.pairs(judge)
        if calls == 1:
            return
        with ThreadPoolExecutor(max_workers=min(calls, len(pairs))) as pool:
            together = list(pool.map(_one, [judge] * len(pairs), pairs))
        exact = _repeats(judge, pairs[0])
        for pair, assessment in zip(pairs, together, strict=True):
            alone = _one(judge, pair)
            if assessment.failure and not alone.failure:
                yield f"{pair.edit!r} fails with {calls} calls at once, but not alone: {assessment.failure.error}"
            elif exact and assessment.ratings != alone.ratings:
                yield f"{pair.edit!r} differs with {calls} calls at once"


def _blind(case: Case) -> Iterator[str]:
    """It reads no labels unless it declares `labels`, and never the key of the edit."""
    with case.using() as judge:
        pair = case.pairs(judge)[0]
        if not _repeats(judge, pair):
            return
        told = {name: f"not {value}" for name, value in {"race": "x", **case.portraits[0].attributes}.items()}
        before = _one(judge, pair).ratings
        if not judge.capabilities.labels and _one(judge, replace(pair, labels=told)).ratings != before:
            yield "its ratings change with the portraits' labels; declare `labels`, or ignore them"
        if _one(judge, replace(pair, edit="f" * 32)).ratings != before:
            yield "its ratings change with the key of the edit, which names no property of a picture"


def _survives(case: Case) -> Iterator[str]:
    """An unreadable picture is a failure or an abstention, not an exception and not a score."""
    with case.using() as judge:
        pair = case.pairs(judge)[0]
        gone = ImageFile(path=pair.edited.path.with_name("no such edit.png"), sha256="0" * 64)
        try:
            assessment = _one(judge, replace(pair, edited=gone))
        except Exception as error:
            yield f"it raised {type(error).__name__} on an edit that does not exist; return `Failed` ratings"
            return
        if any(isinstance(rating, Rated) for rating in assessment.ratings.values()):
            yield "it rated an edit that does not exist; return `Failed` ratings"


def _closes(case: Case) -> Iterator[str]:
    """It can be closed at any time, and more than once."""
    for used in (False, True):
        judge = case.build()
        if used:
            list(judge.judge(case.pairs(judge)[:1]))
        try:
            judge.close()
            judge.close()
        except Exception as error:
            yield f"closing it twice raised {type(error).__name__}: {error}"


JUDGE_CHECKS: Mapping[str, Check] = {
    "described": _described,
    "cheap": _cheap,
    "stable": _stable,
    "sensible": _sensible,
    "answers": _answers,
    "batched": _batched,
    "parallel": _parallel,
    "blind": _blind,
    "survives": _survives,
    "closes": _closes,
}
"""Every check by name; its docstring says what it requires."""


# -- comparing assessments --------------------------------------------------------------------------------------------


def _one(judge: Judge, pair: Pair) -> Assessment:
    assessments = list(judge.judge([pair]))
    if len(assessments) != 1:
        raise ValueError(f"{len(assessments)} assessments for one pair")
    return assessments[0]


def _repeats(judge: Judge, pair: Pair) -> bool:
    """Whether it answers the same twice; of a judge that does not, single answers cannot be compared."""
    return _one(judge, pair).ratings == _one(judge, pair).ratings


def _invalid(assessment: object, capabilities: JudgeCapabilities, prompt: Prompt) -> Iterator[str]:
    if not isinstance(assessment, Assessment):
        yield f"{type(assessment).__name__} is not an `Assessment`"
        return
    if missing := [axis for axis in capabilities.axes if axis not in assessment.ratings and _applies(axis, prompt)]:
        yield f"it said nothing on {', '.join(missing)}; rate, abstain or fail on every axis that it declares"
    if unknown := sorted(assessment.ratings.keys() - {*capabilities.axes, *capabilities.partial}):
        yield f"it rated {', '.join(unknown)}, which it does not declare"
    for axis, rating in assessment.ratings.items():
        yield from _invalid_rating(axis, rating)
    yield from not_plain("effective", assessment.effective)
    if not (math.isfinite(assessment.cost) and assessment.cost >= 0):
        yield f"cost = {assessment.cost} is not an amount of money"


def _applies(axis: str, prompt: Prompt) -> bool:
    """Some axes are for one kind of prompt only, such as the accuracy of an aging edit."""
    known = rubric.load().axes.get(axis)
    return known is None or not known.only or known.only == prompt.subcategory


def _invalid_rating(axis: str, rating: object) -> Iterator[str]:
    match rating:
        case Rated(score=score):
            known = rubric.load().axes.get(axis)
            if not _is(score, float | int) or not math.isfinite(score):
                yield f"{axis} = {score!r} is not a finite number; abstain or fail instead"
            elif known and known.is_scale and not 1 <= score <= len(known.scale):
                yield f"{axis} = {score!r} is outside of its scale, 1 to {len(known.scale)}"
        case Abstained(reason=reason):
            if not reason:
                yield f"it abstained on {axis} without a reason"
        case Failed(error=error):
            if not error:
                yield f"it failed on {axis} without a message"
        case _:
            yield f"{type(rating).__name__} is not a rating; return Rated, Abstained or Failed"


def _is(value: object, kind: Any) -> bool:
    """`isinstance` on what a plugin declares, whose type the checker trusts and we do not."""
    return isinstance(value, kind)
