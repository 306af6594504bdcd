"""Ask every judge for its missing assessments, and save them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, replace

from stillme.audit import Audit, NamedJudge
from stillme.core.errors import PicturesUnreachable
from stillme.core.protocols import Judge, expected_dollars
from stillme.core.types import UNPRICED, Assessment, Pair, Request, is_unpriced
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
    tallies = [Tally(f"judge {named.name}", 0) for named in asked]
    known = calibrations or {}
    # What computes on this machine would take its processor from editors that do so, too.
    idle = all(is_hosted(editor.editor) for editor in audit.editors)
    fresh = [Fresh(open_=bool(editing) and (bool(named.judge.provider) or idle)) for named in asked]
    newest = store.newest()[0]

    def activity_of(named: NamedJudge, tally: Tally, coming: Fresh) -> Activity:
        control_pairs = ControlPairs(named, audit, store, session.options.say, known.get(named.name))
        answers = Answers(named, store, control_pairs)
        mixture = Mixture(named, audit, store, control_pairs, session, tally)
        questions = _Questions(named, audit, store, session, tally, editing, coming, control_pairs, mixture)
        questions.count()
        while questions.may_come and not coming.is_open:
            yield
        can = named.judge.capabilities
        with closing(named.judge):
            return (
                yield from work_on(
                    worker_spec_of(named, store),
                    JudgeWorker(named.judge, store.pictures),
                    lambda worker: asking(worker, named.judge, store, answers, mixture),
                    questions.batches(can.batch, up_to=newest if coming.is_open else None),
                    limits=limits_of(audit.config.executor, can.concurrency, named.time_limit),
                    session=session,
                    tally=tally,
                )
            )

    by_provider: dict[str, list[Activity]] = {}
    for named, tally, coming in zip(asked, tallies, fresh, strict=True):
        by_provider.setdefault(named.judge.provider, []).append(activity_of(named, tally, coming))

    def announce(request: Request) -> None:
        for coming in fresh:
            coming.put(request)

    return [run_sequentially(activities) for activities in by_provider.values()], tallies, announce


@dataclass(frozen=True, slots=True)
class _Questions:
    """The questions to one judge that have no answer yet."""

    named: NamedJudge
    audit: Audit
    store: Store
    session: Session
    tally: Tally
    editing: Sequence[Tally]
    fresh: Fresh
    control_pairs: ControlPairs
    mixture: Mixture

    @property
    def may_come(self) -> bool:
        """Whether edits are still being made."""
        return any(tally.ended is None for tally in self.editing) and not self.session.should_end()

    def count(self) -> None:
        """Tell the tally how many there are, those of edits that are still to be made included."""
        asked = self.named.record().asked
        if self.session.options.limit is not None:
            self.tally.total = asked * sum(1 for _ in self._limited())
            return
        coming = sum(tally.total for tally in self.editing) if self.may_come else 0
        pictures = self.store.count_pictures([editor.editor.spec.key for editor in self.audit.editors])
        questions = asked * max(pictures, coming)
        self.tally.total = questions + self.control_pairs.due_after(questions)

    def batches(self, size: int, *, up_to: int | None) -> Iterator[Sequence[Asked] | None]:
        """Those about edits up to this one, then about what comes while edits are made; None where nothing is there."""
        handed_out = 0
        for batch in grouped(self._missing(up_to=up_to), size):
            handed_out += len(batch)
            yield batch
        while self.may_come or self.fresh:
            for batch in grouped(self._missing(self.fresh.take(), count=False), size):
                handed_out += len(batch)
                yield batch
            yield None
        self.count()
        if self.fresh.overflowed:
            while self.tally.saved < handed_out:
                yield None  # what is under way has no row yet and would be asked again
            yield from grouped(self._missing(count=False), size)
        if self.session.options.limit is None:
            yield from grouped(self.mixture.rest(), size)

    def _missing(
        self, requests: Iterable[Request] | None = None, *, up_to: int | None = None, count: bool = True
    ) -> Iterator[Asked]:
        limited = self.session.options.limit is not None
        if limited and requests is None:
            requests = self._limited()
        tally = self.tally if count else Tally("", 0)
        tasks = tasks_of(self.named, self.audit, self.store, self.session, tally, requests, up_to=up_to)
        return iter(tasks) if limited else self.mixture.among(tasks)

    def _limited(self) -> Iterator[Request]:
        for editor in self.audit.editors:
            yield from requests_of(self.audit, editor, self.session)


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
