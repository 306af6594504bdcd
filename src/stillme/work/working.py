"""The long work of an audit: check what changed, record what is asked, describe, edit, judge."""

from __future__ import annotations

from collections.abc import Callable, Collection
from contextlib import closing
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from stillme.audit import Audit
from stillme.core.types import Request
from stillme.portraits import folder as portrait_folder
from stillme.runs.control_pairs.reading import KnownAnswers, answered_by
from stillme.runs.store import Store, Totals
from stillme.runs.store.places import HERE
from stillme.runs.store.summaries import Failure
from stillme.work import edits, features, judgements, readings
from stillme.work.changes import require_unchanged
from stillme.work.described import with_features
from stillme.work.executors import executor_of
from stillme.work.interrupt import Stop
from stillme.work.loop import Activity, Terms, together
from stillme.work.prices import require_prices
from stillme.work.recording import Calibrations, keep_files, record, record_or_defer
from stillme.work.reusing import take_over
from stillme.work.samples import samples
from stillme.work.shards import Shard, require_free_descriptions
from stillme.work.spending import Budget, Spending
from stillme.work.tally import Ended, Tally, worst

Work = Literal["edit", "judge"]

_NEXT = (Ended.COMPLETE, Ended.STOPPED, Ended.OUTAGE)
"""After these the other stages go on: they may not need what stopped."""


def _ignore(_: Any) -> None:
    pass


@dataclass(frozen=True, slots=True, kw_only=True)
class Conditions:
    """How to do the work."""

    wait: float = 0.0
    """Seconds to wait for another process that is writing."""
    allow_changes: bool = False
    only_failed: bool = False
    """Do only what was tried before and failed."""
    allow_failures: bool = False
    """Go on although the first answers all fail alike."""
    remake: bool = False
    """Make edits again whose picture is lost, also where that costs money."""
    allow_unknown_cost: bool = False
    """Go on although a price is unknown, so that the budget cannot be kept."""
    shard: Shard | None = None
    """The part of the grid to do; None for all."""
    limit: int | None = None
    """How many requests of each editor to do, from the first on; None for all."""
    watch: Callable[[Tally], None] = _ignore
    say: Callable[[str], None] = _ignore


@dataclass(slots=True, kw_only=True)
class Worked:
    """What was done."""

    ended: Ended = Ended.COMPLETE
    tallies: list[Tally] = field(default_factory=lambda: list[Tally]())
    totals: Totals
    failures: tuple[Failure, ...] = ()
    """Why work failed that has not succeeded since."""
    known_answers: tuple[KnownAnswers, ...] = ()
    """What judges said to hidden pairs of known truth."""
    samples: tuple[str, ...] = ()
    """Of a limited run: every edit with its answers, a line each."""


def work(
    audit: Audit, stages: Collection[Work], conditions: Conditions, calibrations: Calibrations | None = None
) -> Worked:
    """Do what has no row yet. Finished work is saved, however it ends."""
    with (
        Store.writing(audit.folder, wait=conditions.wait) as store,
        Stop().on_interrupt(conditions.say) as stop,
        closing(executor_of(audit.config.executor)) as executor,
    ):
        audit = with_features(audit, store)
        if note := require_unchanged(audit, store, accept=conditions.allow_changes):
            conditions.say(note)
        if note := portrait_folder.colour_note(audit.portraits):
            conditions.say(note)
        if "edit" in stages:
            for note in audit.notes():
                conditions.say(note)
        # Before anything is paid for: where no picture can be kept, nothing begins.
        store.keep_pictures_at(audit.config.pictures.store if audit.config.pictures else HERE)
        large = record_or_defer(audit, store, calibrations)
        keep_files(audit)
        for note in take_over(audit, store):
            conditions.say(note)
            audit = with_features(audit, store)
            large = record_or_defer(audit, store, calibrations)
        budget = audit.config.budget
        limit = Budget(dollars=budget.dollars, seconds=budget.minutes * 60 if budget.minutes else None)
        if conditions.shard:
            require_free_descriptions(audit)
            # Together they must not spend more than the whole may.
            dollars = budget.dollars / conditions.shard.count if budget.dollars is not None else None
            limit = replace(limit, dollars=dollars)
        if not conditions.allow_unknown_cost:
            require_prices(audit, limit, stages)
        worked = Worked(totals=store.totals())
        terms = Terms(
            spending=Spending(limit, worked.totals.cost),
            stop=stop,
            watch=conditions.watch,
            say=conditions.say,
            executor=executor,
            allow_failures=conditions.allow_failures,
            remake=conditions.remake,
            shard=conditions.shard,
            limit=conditions.limit,
        )
        only_failed = conditions.only_failed
        if "edit" in stages and audit.extractors:
            activity, worked.tallies = features.extract(audit, store, terms, only_failed=only_failed)
            worked.ended = together([activity], terms)
            audit = with_features(audit, store)
            if note := features.without_prompt(audit):
                conditions.say(note)
            features.refuse_truncation(audit)
            record(audit, store, calibrations)
        if worked.ended in _NEXT:
            activities = _edit_and_judge(audit, stages, store, terms, only_failed, worked.tallies, calibrations)
            if large:
                activities.append(large.beside(terms))
                worked.tallies.append(large.tally)
            worked.ended = worst(worked.ended, together(activities, terms))
        # Shards would each read the same controls: their readings are made in the merged run.
        if worked.ended in _NEXT and "judge" in stages and conditions.shard is None:
            reading, tallies = readings.read(audit, store, terms, only_failed=only_failed)
            worked.tallies += tallies
            worked.ended = worst(worked.ended, together(reading, terms))
        worked.totals, worked.failures = store.totals(), tuple(store.failures())
        if conditions.limit is not None:
            worked.samples = tuple(samples(audit, store, conditions.limit))
        worked.known_answers = tuple(answered_by(store, audit.design(calibrations).judges))
        return worked


def _edit_and_judge(
    audit: Audit,
    stages: Collection[Work],
    store: Store,
    terms: Terms,
    only_failed: bool,
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

        activities, editing = edits.edit(audit, store, terms, only_failed=only_failed, announce=announce)
        tallies += editing
    if "judge" in stages:
        judging, judges, tell = judgements.judge(
            audit, store, terms, only_failed=only_failed, editing=editing, calibrations=calibrations
        )
        activities += judging
        tallies += judges
        waiting.append(tell)
    return activities
