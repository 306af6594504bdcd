"""Ask every judge for its missing assessments, and save them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import closing

from stillme.audit import Audit, NamedJudge
from stillme.judges.model import ModelJudge
from stillme.protocols import Judge
from stillme.stages.batched import judge_in_batches
from stillme.stages.loop import Done, Ended, Stage, Tally, Terms, grouped, in_turn, limits_of, run
from stillme.stages.tasks import Task, tasks_of
from stillme.store import AssessmentRow, Store
from stillme.types import Assessment, Failed, Pair


def judge(audit: Audit, store: Store, terms: Terms) -> tuple[Ended, list[Tally]]:
    """Have every judge rate every edit it has not rated, one judge after the other."""
    asked = [named for named in audit.judges if not named.judge.capabilities.given]
    return in_turn(_work_of(named, audit, store, terms) for named in asked)


def _work_of(named: NamedJudge, audit: Audit, store: Store, terms: Terms) -> tuple[Tally, Callable[[], Ended]]:
    pictures = store.count_pictures([editor.editor.spec.key for editor in audit.editors])
    tally = Tally(f"judge {named.name}", named.record().asked * pictures, cost=store.totals().cost)

    def begin() -> Ended:
        can = named.judge.capabilities
        with closing(named.judge):
            if isinstance(named.judge, ModelJudge):
                ended = _in_batches(named.judge, lambda: tasks_of(named, audit, store, tally), store, terms, tally)
                if ended:
                    return ended
            tasks = tasks_of(named, audit, store, tally)
            limits = limits_of(audit.config.executor, can.concurrency)
            return run(_stage(named.judge, store), grouped(tasks, can.batch), limits=limits, terms=terms, tally=tally)

    return tally, begin


def _in_batches(
    judge: ModelJudge, tasks: Callable[[], Iterable[Task]], store: Store, terms: Terms, tally: Tally
) -> Ended | None:
    """How the batches ended; None if there are none, or if the rest is asked directly."""
    if judge.settings.delivery == "batch":
        return judge_in_batches(judge, tasks(), store, terms, tally, submit=True)
    if store.tickets.open(judge.spec.key):
        # Submitted by an earlier run: collected first, or its questions would be paid for twice.
        ended = judge_in_batches(judge, tasks(), store, terms, tally, submit=False)
        tally.already = -tally.done  # what was just collected is counted among the done
        return None if ended is Ended.COMPLETE else ended
    return None


def _stage(judge: Judge, store: Store) -> Stage[Task, Assessment]:
    def save(finished: Sequence[Done[Task, Assessment]]) -> None:
        store.add_assessments(
            [
                AssessmentRow(
                    key=done.task.key,
                    edit=done.task.pair.edit,
                    epoch=done.task.pair.epoch,
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
        name="judge",
        key=lambda task: task.key,
        keep=store.attempts.add,
    )


def _assessments(judge: Judge, pairs: Sequence[Pair]) -> list[Assessment]:
    """One assessment per pair, whatever the judge does."""
    assessments: list[Assessment] = []
    try:
        for assessment in judge.judge(pairs):
            assessments.append(assessment)
            if len(assessments) == len(pairs):
                break
        error = f"{judge.spec.use!r} gave {len(assessments)} assessments for {len(pairs)} pairs"
    except Exception as broken:
        # A judge should return Failed; one that raises has failed too, and a retry may succeed.
        error = f"{type(broken).__name__}: {broken}"
    failed = Failed(error=error, retryable=True)
    lost = Assessment(ratings=dict.fromkeys(judge.capabilities.axes, failed))
    return [*assessments, *([lost] * (len(pairs) - len(assessments)))]
