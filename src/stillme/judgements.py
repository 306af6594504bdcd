"""The second long stage: every edit that a judge has not seen yet is shown to it."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass

from stillme.audit import Audit, NamedJudge
from stillme.errors import StillmeError
from stillme.protocols import Judge
from stillme.store import AssessmentRow, Store
from stillme.types import Assessment, Failed, ImageFile, Pair, Request
from stillme.work import Done, Ended, Stage, Tally, Terms, grouped, in_turn, missing, run

_LOOK_AHEAD = 500


@dataclass(frozen=True, slots=True)
class _Question:
    """An assessment that the audit wants, before it is known whether it is there."""

    key: str
    request: Request
    image: str
    epoch: int


@dataclass(frozen=True, slots=True, kw_only=True)
class _Task:
    key: str
    pair: Pair


def judge(audit: Audit, store: Store, terms: Terms) -> tuple[Ended, list[Tally]]:
    """Have every judge rate every edit it has not rated, one judge after the other."""
    return in_turn(_work_of(named, audit, store, terms) for named in audit.judges)


def _work_of(named: NamedJudge, audit: Audit, store: Store, terms: Terms) -> tuple[Tally, Callable[[], Ended]]:
    pictures = store.count_pictures([editor.editor.spec.key for editor in audit.editors])
    tally = Tally(f"judge {named.name}", named.asked * pictures, cost=store.totals().cost)

    def begin() -> Ended:
        can = named.judge.capabilities
        wanted = _questions(audit, store, named)
        questions = missing(wanted, lambda question: question.key, store.finished_assessments, tally)
        tasks = (_Task(key=asked.key, pair=_pair(named, audit, store, asked)) for asked in questions)
        with closing(named.judge):
            limits = audit.limits(can.concurrency)
            return run(_stage(named.judge, store), grouped(tasks, can.batch), limits=limits, terms=terms, tally=tally)

    return tally, begin


def _questions(audit: Audit, store: Store, named: NamedJudge) -> Iterator[_Question]:
    """One question per epoch for every edit of the audit that has a picture."""
    requests = (request for editor in audit.editors for request in audit.requests(editor))
    while chunk := list(itertools.islice(requests, _LOOK_AHEAD)):
        edits = store.edits([request.key for request in chunk])
        for request in chunk:
            stored = edits.get(request.key)
            if stored and stored.image:
                for key, epoch in audit.assessments(named, request, stored.image):
                    yield _Question(key, request, stored.image, epoch)


def _pair(named: NamedJudge, audit: Audit, store: Store, asked: _Question) -> Pair:
    path = store.pictures.find(asked.image)
    if path is None:
        raise StillmeError(
            f"The picture {asked.image} of {asked.request.portraits[0].id} × {asked.request.prompt.id} is missing from "
            f"{store.pictures.folder}. Put it back, or start the run again in another folder."
        )
    return audit.pair(named, asked.request, ImageFile(path=path, sha256=asked.image), asked.epoch)


def _stage(judge: Judge, store: Store) -> Stage[_Task, Assessment]:
    def save(finished: Sequence[Done[_Task, Assessment]]) -> None:
        store.add_assessments(
            [
                AssessmentRow(
                    key=done.task.key,
                    pair=done.task.pair,
                    judge=judge.spec,
                    assessment=done.result,
                    attempts=done.attempts,
                    seconds=done.seconds,
                    cost=done.cost,
                )
                for done in finished
            ]
        )

    return Stage(
        perform=lambda tasks: _assessments(judge, [task.pair for task in tasks]),
        failure=lambda assessment: assessment.failure,
        label=lambda assessment: "failed" if assessment.failure else "judged",
        cost=lambda assessment: assessment.cost,
        save=save,
    )


def _assessments(judge: Judge, pairs: Sequence[Pair]) -> list[Assessment]:
    """One assessment per pair, whatever the judge does."""
    said: list[Assessment] = []
    try:
        for assessment in judge.judge(pairs):
            said.append(assessment)
            if len(said) == len(pairs):
                break
        error = f"{judge.spec.use!r} gave {len(said)} assessments for {len(pairs)} pairs"
    except Exception as broken:
        # A judge should say Failed; one that raises has failed all the same, and the cause may pass.
        error = f"{type(broken).__name__}: {broken}"
    failed = Failed(error=error, retryable=True)
    lost = Assessment(ratings=dict.fromkeys(judge.capabilities.axes, failed))
    return [*said, *([lost] * (len(pairs) - len(said)))]
