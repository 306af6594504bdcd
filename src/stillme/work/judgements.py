"""Ask every judge for its missing assessments, and save them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import replace

from stillme.audit import Audit, NamedJudge
from stillme.core.errors import PicturesUnreachable
from stillme.core.protocols import Judge, expected_dollars
from stillme.core.types import UNPRICED, Assessment, Json, Pair, Request, is_unpriced
from stillme.runs.control_pairs.asking import ControlPairs
from stillme.runs.store import Store
from stillme.runs.store.rows import Done
from stillme.work.answers import Answers, Asked, Mixture
from stillme.work.edits import requests_of
from stillme.work.loop import Activity, run_sequentially, work_on
from stillme.work.recording import Calibrations
from stillme.work.stage import Session, Stage, grouped, limits_of
from stillme.work.tally import Tally
from stillme.work.tasks import Fresh, tasks_of
from stillme.work.workers import LOST_PICTURE, JudgeWorker, Placed, WorkerSpec, is_hosted


def judge(
    audit: Audit,
    store: Store,
    session: Session,
    *,
    editing: Sequence[Tally] = (),
    calibrations: Calibrations | None = None,
) -> tuple[list[Activity], list[Tally], Callable[[Request], None]]:
    """Have every judge rate every edit it has not rated: judges of one provider in turn, others at the same time.

    `editing` has the tallies of edits that are made meanwhile. The function that comes back takes each of them when it
    is saved: judges that wait for a provider rate it at once, the others when all edits are there.
    """
    asked = [named for named in audit.judges if not named.judge.capabilities.given]
    known = calibrations or {}
    works = [_Work(named, audit, store, session, editing, known.get(named.name)) for named in asked]
    providers = dict.fromkeys(work.provider for work in works)
    activities = [run_sequentially([work.steps() for work in works if work.provider == name]) for name in providers]

    def announce(request: Request) -> None:
        for work in works:
            work.fresh.put(request)

    return activities, [work.tally for work in works], announce


class _Work:
    """All questions to one judge."""

    def __init__(
        self,
        named: NamedJudge,
        audit: Audit,
        store: Store,
        session: Session,
        editing: Sequence[Tally],
        calibration: Mapping[str, Json] | None,
    ) -> None:
        self._named, self._audit, self._store, self._session = named, audit, store, session
        self._editing = editing
        self._judge = named.judge
        self.provider = self._judge.provider
        # What computes on this machine would take its processor from editors that do so, too.
        idle = all(is_hosted(editor.editor) for editor in audit.editors)
        self.fresh = Fresh(open_=bool(editing) and (bool(self.provider) or idle))
        self._existing = store.newest()[0] if self.fresh.is_open else None
        """The last edit before any was made meanwhile."""
        self.tally = Tally(f"judge {named.name}", 0)
        self._control_pairs = ControlPairs(named, audit, store, session.options.say, calibration)
        self._answers = Answers(named, store, self._control_pairs)
        self._mixture = Mixture(named, audit, store, self._control_pairs, session, self.tally)

    def steps(self) -> Activity:
        self._count()
        while self._still_editing and not self.fresh.is_open:
            yield
        judge = self._judge
        with closing(judge):
            limits = limits_of(self._audit.config.executor, judge.capabilities.concurrency, self._named.time_limit)
            batches = self._batches(judge.capabilities.batch)
            return (
                yield from work_on(
                    worker_spec_of(self._named, self._store),
                    JudgeWorker(judge, self._store.pictures),
                    lambda worker: asking(worker, judge, self._store, self._answers, self._mixture),
                    batches,
                    limits=limits,
                    session=self._session,
                    tally=self.tally,
                )
            )

    @property
    def _still_editing(self) -> bool:
        return any(tally.ended is None for tally in self._editing) and not self._session.should_end()

    def _count(self) -> None:
        if self._session.options.limit is not None:
            self.tally.total = self._named.record().asked * sum(1 for _ in self._limited())
            return
        coming = sum(tally.total for tally in self._editing) if self._still_editing else 0
        pictures = self._store.count_pictures([editor.editor.spec.key for editor in self._audit.editors])
        questions = self._named.record().asked * max(pictures, coming)
        self.tally.total = questions + self._control_pairs.due_after(questions)

    def _batches(self, size: int) -> Iterator[Sequence[Asked] | None]:
        """What there is, then what comes while edits are made; None where there is nothing yet."""
        handed_out = 0
        for batch in grouped(self._missing(up_to=self._existing), size):
            handed_out += len(batch)
            yield batch
        while self._still_editing or self.fresh:
            for batch in grouped(self._missing(self.fresh.take(), count=False), size):
                handed_out += len(batch)
                yield batch
            yield None
        self._count()
        if self.fresh.overflowed:
            while self.tally.saved < handed_out:
                yield None  # what is under way has no row yet and would be asked again
            yield from grouped(self._missing(count=False), size)
        if self._session.options.limit is None:
            yield from grouped(self._mixture.rest(), size)

    def _missing(
        self, requests: Iterable[Request] | None = None, *, up_to: int | None = None, count: bool = True
    ) -> Iterator[Asked]:
        if self._session.options.limit is not None and requests is None:
            requests = self._limited()
        tally = self.tally if count else Tally("", 0)
        tasks = tasks_of(self._named, self._audit, self._store, self._session, tally, requests, up_to=up_to)
        return iter(tasks) if self._session.options.limit is not None else self._mixture.among(tasks)

    def _limited(self) -> Iterator[Request]:
        for editor in self._audit.editors:
            yield from requests_of(self._audit, editor, self._session)


def worker_spec_of(named: NamedJudge, store: Store) -> WorkerSpec | None:
    """What a judge needs in another process; None for one that was built in Python."""
    if named.recipe is None:
        return None
    return WorkerSpec(
        recipe=named.recipe,
        pictures=store.pictures.place,
        jobs=store.jobs.file,
        gpus=named.judge.gpus,
        is_hosted=is_hosted(named.judge),
    )


def asking(
    worker: Placed[Pair, Assessment],
    judge: Judge,
    store: Store,
    answers: Answers,
    mixture: Mixture | None = None,
    *,
    done_word: str = "judged",
) -> Stage[Asked, Assessment]:
    """Questions to a judge, and its answers saved; `mixture` counts them where control pairs are among them."""

    def perform(tasks: Sequence[Asked]) -> Sequence[Assessment]:
        pairs = [task.pair for task in tasks]
        if mixture:
            mixture.send(tasks)
        return worker.perform(pairs)

    def save(finished: Sequence[Done[Asked, Assessment]]) -> None:
        for done in finished:
            if done.result.failure and done.result.failure.status == LOST_PICTURE:
                # The next run then sees that it is missing, without reading every picture.
                with suppress(PicturesUnreachable):  # such as where deleting is not allowed
                    store.pictures.set_aside(done.task.pair.edited.sha256)
        answers.save([replace(done, result=_noted(done)) for done in finished])

    return Stage(
        perform=perform,
        failed=worker.failed,
        ends_calls=worker.ends_calls,
        failure=lambda assessment: assessment.failure,
        label=lambda assessment: "failed" if assessment.failure else done_word,
        cost=lambda assessment: assessment.cost,
        unpriced=lambda assessment: is_unpriced(assessment.effective),
        save=save,
        name="judge",
        key=lambda task: task.key,
        keep=store.add_attempts,
        expected=expected_dollars(judge),
        halted=lambda: answers.stopped,
    )


def _noted(done: Done[Asked, Assessment]) -> Assessment:
    """The assessment, which says so where one of its tries may have been charged at an unknown price."""
    assessment = done.result
    return replace(assessment, effective={**assessment.effective, **UNPRICED}) if done.unpriced else assessment
