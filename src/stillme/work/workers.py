"""What a worker does, wherever it runs: it needs an editor or judge and a place for pictures, never the ledger."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Generic, Protocol, TypeVar, cast

from stillme.core import images
from stillme.core.errors import PicturesUnreachable, UnreadableImage
from stillme.core.protocols import Editor, Judge, expected_dollars
from stillme.core.registry import PluginRecipe
from stillme.core.types import (
    IN_WORDS,
    UNPRICED,
    Assessment,
    Edited,
    EditOutcome,
    Failed,
    Json,
    Pair,
    Portrait,
    Prompt,
    Refused,
    Request,
)
from stillme.editors import output_flags
from stillme.runs.store.buckets import pictures_at
from stillme.runs.store.jobs import Jobs
from stillme.runs.store.pictures import PicturePlace, Pictures, is_intact
from stillme.work.nonsense import checked_assessment, checked_outcome

T_contra = TypeVar("T_contra", contravariant=True)
R = TypeVar("R")


LOST_PICTURE = "lost picture"
"""The status of a judgement that was not asked for, because a picture is not what it was."""


class Worker(Protocol[T_contra, R]):
    """Performs batches. Any number of threads may ask at once, as far as the editor or judge allows."""

    def perform(self, tasks: Sequence[T_contra]) -> list[R]:
        """One result per task, in order, whatever goes wrong."""
        ...

    def failed(self, failure: Failed) -> R:
        """The result of a task that came to nothing."""
        ...

    def close(self) -> None:
        """Release memory, processes, connections."""
        ...


class Placed(Worker[T_contra, R], Protocol):
    """A worker where an executor has placed it."""

    @property
    def calls(self) -> int:
        """How many calls may be made at once."""
        ...

    @property
    def ends_calls(self) -> bool:
        """Whether it ends a call at its time limit itself; its time need not run from when it was asked."""
        ...

    @property
    def ready(self) -> bool:
        """Whether a worker can do the work, or it is known that none can."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Kept:
    """An outcome whose picture, if any, is already on disk or in its store: memory holds no images."""

    outcome: EditOutcome
    image: str | None
    unwritten: bytes = b""
    """The picture, where disk or store would not take it: it was paid for, so it is written with its row."""


class EditWorker:
    """Makes edits, and keeps their pictures."""

    def __init__(self, editor: Editor, pictures: Pictures) -> None:
        self._editor, self._pictures = editor, pictures

    def perform(self, tasks: Sequence[Request]) -> list[Kept]:
        """One result per request, whatever the editor does. It reads portraits where this machine has them."""
        found = [_resolve_portraits(request, self._pictures) for request in tasks]
        outcomes = _outcomes(self._editor, [request for request in found if isinstance(request, Request)])
        return [
            self._kept(next(outcomes), request) if isinstance(request, Request) else self.failed(request)
            for request in found
        ]

    def failed(self, failure: Failed) -> Kept:
        """Nothing came back."""
        return Kept(outcome=failure, image=None)

    def close(self) -> None:
        """Release what the editor holds."""
        self._editor.close()

    def _kept(self, outcome: EditOutcome, request: Request) -> Kept:
        """The outcome without its picture, which is on disk, but with flags of what is unusual about it."""
        if not isinstance(outcome, Edited):
            return Kept(outcome=outcome, image=None)
        try:
            sources = [portrait.image.read() for portrait in request.portraits]
        except OSError:
            sources = list[bytes]()  # a source that is gone cannot be compared with; the edit was paid for
        flags = output_flags.flags_of(outcome.image, *sources)
        if "unreadable" in flags:
            # No judge can read it, and it says nothing about the person: not an edit, whichever editor made it.
            return Kept(outcome=_unreadable(outcome), image=None)
        effective = {**outcome.effective, "flags": list(flags)} if flags else outcome.effective
        kept = Edited(image=b"", effective=effective, truth=outcome.truth, cost=outcome.cost)
        try:
            return Kept(outcome=kept, image=self._pictures.add(outcome.image))
        except (OSError, PicturesUnreachable):
            return Kept(outcome=kept, image=None, unwritten=outcome.image)


class JudgeWorker:
    """Rates pairs, after a look at whether their pictures are what they were."""

    def __init__(self, judge: Judge, pictures: Pictures) -> None:
        self._judge, self._pictures = judge, pictures

    def perform(self, tasks: Sequence[Pair]) -> list[Assessment]:
        """One assessment per pair, whatever the judge does. It is never shown a picture that is not what it was."""
        found = [fetch_pictures(pair, self._pictures) for pair in tasks]
        seen = iter(_assessments(self._judge, [pair for pair in found if isinstance(pair, Pair)]))
        return [next(seen) if isinstance(pair, Pair) else self.failed(pair) for pair in found]

    def failed(self, failure: Failed) -> Assessment:
        """The judge said nothing on any axis."""
        return Assessment(ratings=dict.fromkeys(self._judge.capabilities.axes, failure))

    def close(self) -> None:
        """Release what the judge holds."""
        self._judge.close()


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerSpec:
    """Everything a worker in another process or on another machine needs; can be pickled."""

    recipe: PluginRecipe
    pictures: PicturePlace
    """Where pictures are kept: in the run's own folder, on a shared file system, or in an object store."""
    jobs: Path
    """Where an editor's accepted jobs are remembered."""
    portraits: tuple[Portrait, ...] = ()
    """All of the audit, for an editor that needs them."""
    prompts: tuple[Prompt, ...] = ()
    weights: tuple[Mapping[str, Json], ...] = ()
    """What the editor's earlier edits were made with."""
    gpus: int = 0
    """That one worker takes."""
    ends_calls_after: float | None = None
    """The time limit of an editor that ends its calls itself; None for others."""
    is_hosted: bool = False
    """Whether it only waits for a remote service: it stays under one budget and one rate limit."""

    def worker(self) -> EditWorker | JudgeWorker:
        """Build the plugin from its recipe, and prepare it as it is prepared where the run was started."""
        plugin, pictures = self.recipe.build(), pictures_at(self.pictures)
        if self.recipe.kind == "judge":
            return JudgeWorker(cast("Judge", plugin), pictures)
        editor = cast("Editor", plugin)
        editor.set_portraits(_located(self.portraits, pictures))
        editor.set_prompts(self.prompts)
        editor.remember_in(Jobs(self.jobs))
        editor.keep_weights(self.weights)
        if self.ends_calls_after is not None:
            editor.end_calls_after(self.ends_calls_after)
        return EditWorker(editor, pictures)


@dataclass(frozen=True, slots=True)
class Inside(Generic[T_contra, R]):
    """A worker of this process, whose editor or judge the caller closes."""

    worker: Worker[T_contra, R]
    calls: int
    ends_calls: bool = False
    ready: bool = True

    def perform(self, tasks: Sequence[T_contra]) -> list[R]:
        """As the worker does."""
        return self.worker.perform(tasks)

    def failed(self, failure: Failed) -> R:
        """As the worker does."""
        return self.worker.failed(failure)

    def close(self) -> None:
        """Nothing is held."""


def is_hosted(plugin: Editor | Judge) -> bool:
    """Whether it calls a remote service, or may cost money, which is counted in one place."""
    return bool(plugin.provider) or expected_dollars(plugin) != 0.0


def fetch_pictures(pair: Pair, pictures: Pictures) -> Pair | Failed:
    """The pair with its pictures where they can be read on this machine, or why it cannot be shown to anybody."""
    try:
        sources = tuple(pictures.located(image) for image in pair.sources)
        pair = replace(pair, sources=sources, edited=pictures.located(pair.edited))
    except PicturesUnreachable as error:
        return _unreachable(error)
    return _lost_picture(pair) or pair


def _resolve_portraits(request: Request, pictures: Pictures) -> Request | Failed:
    """The request with its portraits where they can be read on this machine."""
    try:
        return replace(request, portraits=_located(request.portraits, pictures))
    except PicturesUnreachable as error:
        return _unreachable(error)


def _located(portraits: Sequence[Portrait], pictures: Pictures) -> tuple[Portrait, ...]:
    return tuple(replace(portrait, image=pictures.located(portrait.image)) for portrait in portraits)


def _unreachable(error: PicturesUnreachable) -> Failed:
    return Failed(error=str(error), retryable=True, status="pictures unreachable")


def _lost_picture(pair: Pair) -> Failed | None:
    for what, image in (("edited", pair.edited), *(("source", source) for source in pair.sources)):
        if not is_intact(image):
            how = "damaged" if image.path.exists() else "missing"
            error = f"the {what} picture {image.path.name} is {how}; put it back from a copy, or run `stillme run`"
            return Failed(error=error, retryable=False, status=LOST_PICTURE)
    return None


def _outcomes(editor: Editor, requests: Sequence[Request]) -> Iterator[EditOutcome]:
    """One per request, each as soon as it is there: its picture goes to disk before the next is made."""
    if not requests:
        return
    given = 0
    try:
        for outcome in editor.edit(requests):
            given += 1
            yield checked_outcome(outcome, editor.spec.use)
            if given == len(requests):
                return
        error = f"{editor.spec.use!r} gave {given} outcomes for {len(requests)} requests"
    except (Exception, SystemExit) as broken:
        # An editor should return Failed; one that raises has failed too, and a retry may succeed.
        error = f"{type(broken).__name__}: {broken}"
    unknown = _cost_of_raising(editor)
    yield from (Failed(error=error, retryable=True, effective=unknown) for _ in range(len(requests) - given))


def _cost_of_raising(plugin: Editor | Judge) -> Mapping[str, Json]:
    """What is charged for may have been done before it raised."""
    return {} if expected_dollars(plugin) == 0 else UNPRICED


def _unreadable(outcome: Edited) -> Failed:
    try:
        images.check(outcome.image, name="the returned file")
        reason = "the returned file is no picture"
    except UnreadableImage as error:
        reason = str(error)
    unknown = {"cost": "unknown"} if outcome.effective.get("cost") == "unknown" else {}
    return Failed(error=reason, retryable=True, retry_after=0.0, effective=unknown, cost=outcome.cost)


def _assessments(judge: Judge, pairs: Sequence[Pair]) -> list[Assessment]:
    if not pairs:
        return []
    assessments: list[Assessment] = []
    axes = judge.capabilities.axes
    try:
        for assessment in judge.judge(pairs):
            assessments.append(checked_assessment(assessment, judge.spec.use, axes))
            if len(assessments) == len(pairs):
                break
        error = f"{judge.spec.use!r} gave {len(assessments)} assessments for {len(pairs)} pairs"
    except (Exception, SystemExit) as broken:
        # A judge should return Failed; one that raises has failed too, and a retry may succeed.
        error = f"{type(broken).__name__}: {broken}"
    failed = Failed(error=error, retryable=True)
    lost = Assessment(ratings=dict.fromkeys(axes, failed), effective=_cost_of_raising(judge))
    return [*assessments, *([lost] * (len(pairs) - len(assessments)))]


def label_of(outcome: EditOutcome) -> str:
    """The word under which an outcome is counted."""
    match outcome:
        case Edited():
            return "edited"
        case Refused():
            return "refused"
        case Failed():
            return "answered in words" if outcome.status == IN_WORDS else "failed"
