"""The long work of an audit: check what changed, record what is asked, describe, edit, judge."""

from __future__ import annotations

from collections.abc import Callable, Collection
from contextlib import closing
from dataclasses import replace
from typing import Literal

from stillme.audit import Audit
from stillme.core.types import Request
from stillme.portraits import folder as portrait_folder
from stillme.runs.control_pairs.reading import answered_by
from stillme.runs.store import Store
from stillme.runs.store.places import HERE
from stillme.work import edits, features, judgements, readings
from stillme.work.changes import require_unchanged
from stillme.work.described import with_features
from stillme.work.executors import executor_of
from stillme.work.interrupt import Stop
from stillme.work.loop import Activity, Session, run_concurrently
from stillme.work.options import RunOptions
from stillme.work.prices import require_prices
from stillme.work.recording import Calibrations, keep_files, record
from stillme.work.result import RunResult
from stillme.work.reusing import take_over
from stillme.work.samples import samples
from stillme.work.shards import require_free_descriptions
from stillme.work.spending import Budget, Spending
from stillme.work.tally import Ended, Tally, worst

Work = Literal["edit", "judge"]

_NEXT = (Ended.COMPLETE, Ended.STOPPED, Ended.OUTAGE)
"""After these the other stages go on: they may not need what stopped."""


def work(
    audit: Audit, stages: Collection[Work], options: RunOptions, calibrations: Calibrations | None = None
) -> RunResult:
    """Do what has no row yet. Finished work is saved, however it ends."""
    with (
        Store.writing(audit.folder, wait=options.wait) as store,
        Stop().on_interrupt(options.say) as stop,
        closing(executor_of(audit.config.executor)) as executor,
    ):
        audit = with_features(audit, store)
        if note := require_unchanged(audit, store, accept=options.allow_changes):
            options.say(note)
        if note := portrait_folder.colour_note(audit.portraits):
            options.say(note)
        if "edit" in stages:
            for note in audit.notes():
                options.say(note)
        # Before anything is paid for: where no picture can be kept, nothing begins.
        store.keep_pictures_at(audit.config.pictures.store if audit.config.pictures else HERE)
        record(audit, store, calibrations)
        keep_files(audit)
        for note in take_over(audit, store):
            options.say(note)
            audit = with_features(audit, store)
            record(audit, store, calibrations)
        budget = audit.config.budget
        limit = Budget(dollars=budget.dollars, seconds=budget.minutes * 60 if budget.minutes else None)
        if options.shard:
            require_free_descriptions(audit)
            # Together they must not spend more than the whole may.
            dollars = budget.dollars / options.shard.count if budget.dollars is not None else None
            limit = replace(limit, dollars=dollars)
        if not options.allow_unknown_cost:
            require_prices(audit, limit, stages)
        result = RunResult(folder=audit.folder, totals=store.totals(), budget=budget.dollars)
        spending = Spending(limit, result.totals.cost)
        session = Session(options=options, spending=spending, stop=stop, executor=executor)
        if "edit" in stages and audit.extractors:
            activity, result.tallies = features.extract(audit, store, session)
            result.ended = run_concurrently([activity], session)
            audit = with_features(audit, store)
            if note := features.without_prompt(audit):
                options.say(note)
            features.refuse_truncation(audit)
            record(audit, store, calibrations)
        if result.ended in _NEXT:
            activities = _edit_and_judge(audit, stages, store, session, result.tallies, calibrations)
            result.ended = worst(result.ended, run_concurrently(activities, session))
        # Shards would each read the same controls: their readings are made in the merged run.
        if result.ended in _NEXT and "judge" in stages and options.shard is None:
            reading, tallies = readings.read(audit, store, session)
            result.tallies += tallies
            result.ended = worst(result.ended, run_concurrently(reading, session))
        result.totals, result.failures = store.totals(), tuple(store.failures())
        if options.limit is not None:
            result.samples = tuple(samples(audit, store, options.limit))
        result.known_answers = tuple(answered_by(store, audit.design(calibrations).judges))
        return result


def _edit_and_judge(
    audit: Audit,
    stages: Collection[Work],
    store: Store,
    session: Session,
    tallies: list[Tally],
    calibrations: Calibrations | None,
) -> list[Activity]:
    """Judges that wait for a provider rate edits as they come; one thread writes for all."""
    activities: list[Activity] = []
    waiting: list[Callable[[Request], None]] = []
    editing: list[Tally] = []
    if "edit" in stages:

        def announce(request: Request) -> None:
            for tell in waiting:
                tell(request)

        activities, editing = edits.edit(audit, store, session, announce=announce)
        tallies += editing
    if "judge" in stages:
        judging, judges, tell = judgements.judge(audit, store, session, editing=editing, calibrations=calibrations)
        activities += judging
        tallies += judges
        waiting.append(tell)
    return activities
