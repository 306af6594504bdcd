"""The first long stage: make an edit for every request that has none yet."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass

from stillme import images
from stillme.audit import Audit, NamedEditor
from stillme.editors import output_flags
from stillme.errors import UnreadableImage
from stillme.protocols import Editor, KeepsWeights, Resumable, expected_dollars
from stillme.stages.loop import Activity, Done, Stage, Terms, grouped, in_turn, limits_of, missing, steps
from stillme.stages.tally import Ended, Tally
from stillme.store import EditRow, Store
from stillme.types import IN_WORDS, Edited, EditOutcome, Failed, Refused, Request


@dataclass(frozen=True, slots=True, kw_only=True)
class _Kept:
    """An outcome whose picture, if any, is already on disk: memory holds no images."""

    outcome: EditOutcome
    image: str | None


def edit(
    audit: Audit,
    store: Store,
    terms: Terms,
    *,
    only_failed: bool = False,
    announce: Callable[[Request], None] = lambda _: None,
) -> tuple[Activity, list[Tally]]:
    """Make the missing edits of all editors, one editor after the other; `announce` gets each that has a picture."""
    tallies = [_tally_of(named, audit) for named in audit.editors]

    def activity_of(named: NamedEditor, tally: Tally) -> Activity:
        can = named.editor.capabilities
        tasks = missing(
            audit.requests(named),
            lambda request: request.key,
            store.finished_edits,
            tally,
            failed=store.failed_edits,
            only_failed=only_failed,
        )
        size = 1 if can.batching == "none" else can.batch
        batches = grouped(tasks, size, _portrait if can.batching == "shared_image" else None)
        limits = limits_of(audit.config.executor, can.concurrency)
        if isinstance(named.editor, Resumable):
            named.editor.remember_in(store.jobs)
        if isinstance(named.editor, KeepsWeights):
            recorded = (used for used in store.editing_weights() if used.editor == named.editor.spec.key)
            named.editor.keep_weights([used.weights for used in recorded])
        with closing(named.editor):
            return (
                yield from steps(
                    _stage(named.editor, store, announce), batches, limits=limits, terms=terms, tally=tally
                )
            )

    def all_editors() -> Activity:
        try:
            return (yield from in_turn(map(activity_of, audit.editors, tallies)))
        finally:
            for tally in tallies:
                # Judges that rate edits as they come must know that no more will.
                tally.ended = tally.ended or Ended.INTERRUPTED

    return all_editors(), tallies


def _tally_of(named: NamedEditor, audit: Audit) -> Tally:
    unasked = sum(1 for _ in audit.unasked(named))
    return Tally(f"edit {named.name}", audit.request_count(named) - unasked)


def _portrait(request: Request) -> str:
    return request.portraits[0].id


def _stage(editor: Editor, store: Store, announce: Callable[[Request], None]) -> Stage[Request, _Kept]:
    def perform(requests: Sequence[Request]) -> list[_Kept]:
        kept: list[_Kept] = []
        for request, outcome in zip(requests, _outcomes(editor, requests), strict=True):
            kept.append(_kept(outcome, request, store))
        return kept

    def save(finished: Sequence[Done[Request, _Kept]]) -> None:
        store.add_edits(
            [
                EditRow(
                    request=done.task,
                    outcome=done.result.outcome,
                    image=done.result.image,
                    attempts=done.attempts,
                    seconds=done.seconds,
                    cost=done.cost,
                )
                for done in finished
            ]
        )
        for done in finished:
            if done.result.image:
                announce(done.task)

    return Stage(
        perform=perform,
        failure=lambda kept: kept.outcome if isinstance(kept.outcome, Failed) else None,
        label=lambda kept: _label(kept.outcome),
        cost=lambda kept: kept.outcome.cost,
        save=save,
        name="edit",
        key=lambda request: request.key,
        keep=store.attempts.add,
        expected=expected_dollars(editor),
    )


def _outcomes(editor: Editor, requests: Sequence[Request]) -> list[EditOutcome]:
    """One outcome per request, whatever the editor does."""
    outcomes: list[EditOutcome] = []
    try:
        for outcome in editor.edit(requests):
            outcomes.append(_checked(outcome, editor))
            if len(outcomes) == len(requests):
                break
        error = f"{editor.spec.use!r} gave {len(outcomes)} outcomes for {len(requests)} requests"
    except Exception as broken:
        # An editor should return Failed; one that raises has failed too, and a retry may succeed.
        error = f"{type(broken).__name__}: {broken}"
    outcomes.extend(Failed(error=error, retryable=True) for _ in range(len(requests) - len(outcomes)))
    return outcomes


def _checked(outcome: object, editor: Editor) -> EditOutcome:
    """The outcome, or what is wrong with it."""
    if isinstance(outcome, Edited | Refused | Failed):
        return outcome
    error = f"{editor.spec.use!r} gave a {type(outcome).__name__} instead of an outcome"
    return Failed(error=error, retryable=False)


def _kept(outcome: EditOutcome, request: Request, store: Store) -> _Kept:
    """The outcome without its picture, which is on disk, but with flags of what is unusual about it."""
    if not isinstance(outcome, Edited):
        return _Kept(outcome=outcome, image=None)
    flags = output_flags.flags_of(outcome.image, *(portrait.image.read() for portrait in request.portraits))
    if "unreadable" in flags:
        # Nobody can judge it, and it says nothing about the person: not an edit, whichever editor made it.
        return _Kept(outcome=_unreadable(outcome), image=None)
    effective = {**outcome.effective, "flags": list(flags)} if flags else outcome.effective
    kept = Edited(image=b"", effective=effective, truth=outcome.truth, cost=outcome.cost)
    return _Kept(outcome=kept, image=store.pictures.add(outcome.image))


def _unreadable(outcome: Edited) -> Failed:
    try:
        images.check(outcome.image, name="the returned file")
        reason = "the returned file is no picture"
    except UnreadableImage as error:
        reason = str(error)
    unknown = {"cost": "unknown"} if outcome.effective.get("cost") == "unknown" else {}
    return Failed(error=reason, retryable=True, retry_after=0.0, effective=unknown, cost=outcome.cost)


def _label(outcome: EditOutcome) -> str:
    match outcome:
        case Edited():
            return "edited"
        case Refused():
            return "refused"
        case Failed():
            return "answered in words" if outcome.status == IN_WORDS else "failed"
