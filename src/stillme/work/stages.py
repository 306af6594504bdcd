"""The long work of an audit: check what changed, record what is asked, describe, edit, judge."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import closing
from dataclasses import replace
from typing import Any, Literal

from stillme.audit import Audit
from stillme.audit.design import reading_key
from stillme.core import images
from stillme.core.errors import StillmeError
from stillme.core.rubric import REPEATS
from stillme.core.types import ImageFile, Request
from stillme.mitigation.features import extraction_key
from stillme.portraits import folder as portrait_folder
from stillme.runs.control_pairs.reading import answered_by
from stillme.runs.store import Store
from stillme.runs.store.exported import EDITS, JUDGEMENTS, rows_of
from stillme.runs.store.merging import copy_rows
from stillme.runs.store.pictures import HERE
from stillme.work import edits, features, judgements, readings
from stillme.work.changes import require_unchanged
from stillme.work.executors import executor_of
from stillme.work.features import with_features
from stillme.work.interrupt import Stop
from stillme.work.loop import Activity, run_concurrently
from stillme.work.options import RunOptions
from stillme.work.recording import Calibrations, keep_files, record
from stillme.work.result import RunResult
from stillme.work.shards import require_free_descriptions
from stillme.work.spending import Budget, Spending, require_prices
from stillme.work.stage import Session
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
        if "edit" in stages:
            edits.require_rows(audit, store, remake=options.remake)
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
        result.control_pairs = tuple(answered_by(store, audit.design(calibrations).judges))
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


_LONGEST = 80
"""Characters of a judge's reason that are shown."""


def samples(audit: Audit, store: Store, limit: int) -> Iterator[str]:
    """A line for each of the first edits of every editor, and one for each judge's answer to it."""
    edits = {row["edit"]: row for row in rows_of(store, EDITS)}
    said: dict[tuple[str, str, int], list[Mapping[str, Any]]] = {}
    for row in rows_of(store, JUDGEMENTS):
        said.setdefault((row["edit"], row["judge_key"], row["epoch"]), []).append(row)
    names = {named.judge.spec.key: named.name for named in audit.judges}
    for editor in audit.editors:
        for request in itertools.islice(audit.requests(editor), limit):
            edit = edits.get(request.key)
            if edit is None:
                continue
            shown = " + ".join(portrait.id for portrait in request.portraits)
            yield f"{editor.name}: {shown}, {request.prompt.id}, {request.arm}: {_outcome(edit, store)}"
            for (key, judge, _), rows in said.items():
                if key == request.key and judge in names:
                    yield f"  {names[judge]}: {'; '.join(map(_answer, rows))}"


def _outcome(edit: Mapping[str, Any], store: Store) -> str:
    size = ""
    if edit["image"]:
        kept = store.pictures.located(ImageFile(path=store.pictures.where(edit["image"]), sha256=edit["image"]))
        width, height = images.read_picture(kept.read()).size
        size = f"{width} × {height} pixels, "
    cost = "cost unknown" if edit["cost"] is None else f"${edit['cost']:,.4f}"
    words = f": {edit['message']}" if edit["message"] else ""
    return f"{edit['outcome']}{words} ({size}{edit['seconds']:.1f} s, {cost})"


def _answer(row: Mapping[str, Any]) -> str:
    reason = " ".join(str(row["reason"] or "").split())
    short = reason if len(reason) <= _LONGEST else f"{reason[:_LONGEST]}…"
    value = f"{row['score']:g}" if row["score"] is not None else row["outcome"]
    return f"{row['axis']} {value}{f' ({short})' if short else ''}"


def take_over(audit: Audit, store: Store) -> Iterator[str]:
    """Copy the rows that this audit asks for and lacks, under their own keys; a sentence per run, if it had any."""
    for name in audit.config.reuse.runs if audit.config.reuse else ():
        if not Store.exists(audit.base / name):
            raise StillmeError(f"{name} of [reuse] has no run yet. Run it first, or remove it from audit.toml.")
        with Store.reading(audit.base / name) as other:
            described = copy_rows(store, other, "feature", _description_keys(audit))
            known = with_features(audit, store)
            requests = [request.key for named in known.editors for request in known.requests(named)]
            edited = copy_rows(store, other, "edit", requests)
            judged = copy_rows(store, other, "assessment", _assessment_keys(known, store, requests))
        if described or edited or judged:
            yield f"Taken from {name}: {edited:,} edits, {judged:,} judgements, {described:,} descriptions."


def _description_keys(audit: Audit) -> list[str]:
    return [
        extraction_key(portrait.image, named.extractor.spec)
        for portrait in (audit.portraits_to_describe if audit.extractors else ())
        for named in audit.extractors
    ]


def _assessment_keys(audit: Audit, store: Store, requests: list[str]) -> list[str]:
    judges = [named.record() for named in audit.judges]
    edits = {request: edit.image for request, edit in store.edits(requests).items() if edit.image}
    rated = [
        key for request, image in edits.items() for judge in judges for key, _ in judge.assessments(request, image)
    ]
    read = [
        reading_key(image, named.judge.spec.key, repeat)
        for image in dict.fromkeys(edits.values())
        for named in audit.readers
        for repeat in range(REPEATS)
    ]
    return [*rated, *read]
