"""The first long stage: make an edit for every request that has none yet."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import replace

from stillme.audit import Audit, NamedEditor
from stillme.core.errors import StoreDamaged
from stillme.core.protocols import Editor, expected_dollars, overrides
from stillme.core.tables import counted
from stillme.core.types import UNPRICED, EditOutcome, Failed, Json, Request, is_unpriced
from stillme.runs.store import EditRow, Store
from stillme.runs.store.opening import LEDGER
from stillme.runs.store.rows import Done
from stillme.work.loop import Activity, run_sequentially, work_on
from stillme.work.stage import Limits, Session, Stage, grouped, limits_of, missing_in
from stillme.work.tally import Ended, Tally
from stillme.work.workers import EditWorker, Kept, Placed, WorkerSpec, is_hosted, label_of


def edit(
    audit: Audit,
    store: Store,
    session: Session,
    *,
    announce: Callable[[Request], None] = lambda _: None,
) -> tuple[list[Activity], list[Tally]]:
    """Make the missing edits of all editors; `announce` gets each that has a picture.

    Editors that ask different providers, or compute on different GPUs, work at the same time; others in turn, unless
    the executor has machines enough for all of them.
    """
    tallies = [_tally_of(named, audit, session) for named in audit.editors]

    def activity_of(named: NamedEditor, tally: Tally) -> Activity:
        can = named.editor.capabilities
        remake = session.options.remake or expected_dollars(named.editor) == 0.0
        lost = 0

        def finished(keys: Sequence[str]) -> set[str]:
            nonlocal lost
            gone = store.edits_without_picture(keys)
            lost += len(gone)
            return store.finished("edit", keys) - (gone if remake else set())

        tasks = missing_in(store, "edit", requests_of(audit, named, session), session, tally, finished=finished)
        size = 1 if can.batching == "none" else can.batch
        batches = grouped(tasks, size, _portrait if can.batching == "shared_image" else None)
        limits = limits_of(audit.config.executor, can.concurrency, named.time_limit)
        named.editor.remember_in(store.jobs)
        named.editor.end_calls_after(limits.seconds)
        weights: list[Mapping[str, Json]] = []
        if overrides(named.editor, "keep_weights"):
            recorded = (used for used in store.editing_weights() if used.editor == named.editor.spec.key)
            weights = [used.weights for used in recorded]
            named.editor.keep_weights(weights)
        with closing(named.editor):
            ended = yield from work_on(
                _worker_spec(named, audit, store, weights, limits),
                EditWorker(named.editor, store.pictures),
                lambda worker: _stage(worker, named.editor, store, announce),
                batches,
                limits=limits,
                session=session,
                tally=tally,
            )
        if lost:
            again = "were made again" if remake else "cost money: put them back from a copy, or add `--allow-remake`"
            session.options.say(f"{named.name}: pictures of earlier edits are missing ({lost:,}); they {again}.")
        return ended

    def ending(activity: Activity, own: Sequence[Tally]) -> Activity:
        """Judges that rate edits as they come must know that no more will."""
        try:
            return (yield from activity)
        finally:
            for tally in own:
                if tally.ended is None:
                    tally.begin()
                    tally.end(Ended.INTERRUPTED)

    each = [(activity_of(named, tally), tally) for named, tally in zip(audit.editors, tallies, strict=True)]
    lanes = [[one] for one in each]
    if not session.executor.side_by_side:
        lanes = [[each[place] for place in lane] for lane in lanes_of([named.editor for named in audit.editors])]
    turns = [ending(run_sequentially(activity for activity, _ in lane), [tally for _, tally in lane]) for lane in lanes]
    return turns, tallies


def require_rows(audit: Audit, store: Store, *, remake: bool) -> None:
    """Raise where pictures that cost money are here and the ledger has lost their rows: each would be paid again."""
    prices = [expected_dollars(named.editor) for named in audit.editors]
    if remake or not any(price != 0.0 for price in prices):
        return
    count = store.pictures_without_row([portrait.image.sha256 for portrait in audit.portraits])
    if count:
        known = [price for price in prices if price]
        cost = f"up to ${count * max(known):,.2f}" if len(known) == len(prices) else "money"
        raise StoreDamaged(
            f"{counted(count, 'picture')} in {store.pictures} without a row in {LEDGER}: the rows were lost, or never "
            f"saved. Making the edits again would cost {cost}. Put {LEDGER} back from a copy, or add `--allow-remake` "
            "to pay again."
        )


def lanes_of(editors: Sequence[Editor]) -> list[list[int]]:
    """Which editors take turns, by their places: those of one provider, and those that share a device."""
    named = [editor.devices for editor in editors if not editor.provider]
    # One that takes whichever device there is, or the processor, might take any of them.
    apart = all(named)
    lanes: list[tuple[set[str], list[int]]] = []
    for place, editor in enumerate(editors):
        taken, turns = _taken_by(editor, apart=apart), [place]
        for lane in [lane for lane in lanes if lane[0] & taken]:
            lanes.remove(lane)
            taken, turns = taken | lane[0], [*lane[1], *turns]
        lanes.append((taken, sorted(turns)))
    return sorted(turns for _, turns in lanes)


def _taken_by(editor: Editor, *, apart: bool) -> set[str]:
    """What no other editor should use at the same time."""
    if editor.provider:
        return {f"provider {editor.provider}"}
    return set(editor.devices) if apart else {"this machine"}


def _tally_of(named: NamedEditor, audit: Audit, session: Session) -> Tally:
    if session.options.shard or session.options.limit is not None:
        return Tally(f"edit {named.name}", sum(1 for _ in requests_of(audit, named, session)))
    unasked = sum(1 for _ in audit.unasked(named))
    return Tally(f"edit {named.name}", audit.request_count(named) - unasked)


def requests_of(audit: Audit, named: NamedEditor, session: Session) -> Iterator[Request]:
    """The requests of an editor that are to be done."""
    requests = itertools.islice(audit.requests(named), session.options.limit)
    shard = session.options.shard
    return requests if shard is None else (request for request in requests if shard.holds(request.key))


def _portrait(request: Request) -> str:
    return request.portraits[0].id


def _stage(
    worker: Placed[Request, Kept], editor: Editor, store: Store, announce: Callable[[Request], None]
) -> Stage[Request, Kept]:
    def save(finished: Sequence[Done[Request, Kept]]) -> None:
        rows = [
            EditRow(
                request=done.task,
                outcome=_noted(done),
                image=store.pictures.add(done.result.unwritten) if done.result.unwritten else done.result.image,
                attempts=done.attempts,
                seconds=done.seconds,
                cost=done.cost,
            )
            for done in finished
        ]
        store.add(rows)
        if overrides(editor, "remember_in"):
            for row in rows:
                if not isinstance(row.outcome, Failed):
                    store.jobs.end(row.request.key)
        for row in rows:
            if row.image:
                announce(row.request)

    return Stage(
        perform=worker.perform,
        failed=worker.failed,
        failure=lambda kept: kept.outcome if isinstance(kept.outcome, Failed) else None,
        label=lambda kept: label_of(kept.outcome),
        cost=lambda kept: kept.outcome.cost,
        unpriced=lambda kept: is_unpriced(kept.outcome.effective),
        save=save,
        name="edit",
        key=lambda request: request.key,
        keep=store.add_attempts,
        expected=expected_dollars(editor),
        ends_calls=worker.ends_calls,
    )


def _noted(done: Done[Request, Kept]) -> EditOutcome:
    """The outcome, which says so where one of its tries may have been charged at an unknown price."""
    outcome = done.result.outcome
    return replace(outcome, effective={**outcome.effective, **UNPRICED}) if done.unpriced else outcome


def _worker_spec(
    named: NamedEditor, audit: Audit, store: Store, weights: Sequence[Mapping[str, Json]], limits: Limits
) -> WorkerSpec | None:
    if named.recipe is None:
        return None
    return WorkerSpec(
        recipe=named.recipe,
        pictures=store.pictures.place,
        jobs=store.jobs.file,
        portraits=audit.portraits if overrides(named.editor, "set_portraits") else (),
        prompts=audit.prompts if overrides(named.editor, "set_prompts") else (),
        weights=tuple(weights),
        gpus=named.editor.gpus,
        ends_calls_after=limits.seconds if overrides(named.editor, "end_calls_after") else None,
        is_hosted=is_hosted(named.editor),
    )
