"""The long work of an audit: check what changed, record what is asked, describe, edit, judge."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from typing import Any, Literal

import tomli_w

from stillme import __version__
from stillme.audit import Audit
from stillme.audit.load import FILE, RESOLVED
from stillme.files import write_whole
from stillme.stages import edits, features, judgements
from stillme.stages.changes import require_unchanged
from stillme.stages.described import with_features
from stillme.stages.loop import Budget, Ended, Stop, Tally, Terms
from stillme.stages.recording import Calibrations, record
from stillme.store import Store, Totals
from stillme.store.summaries import Failure

Work = Literal["edit", "judge"]


def _ignore(_: Any) -> None:
    pass


@dataclass(frozen=True, slots=True, kw_only=True)
class Conditions:
    """How to do the work."""

    wait: float = 0.0
    """Seconds to wait for another process that is writing."""
    accept_changes: bool = False
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


def work(
    audit: Audit, stages: Collection[Work], conditions: Conditions, calibrations: Calibrations | None = None
) -> Worked:
    """Do what has no row yet. Finished work is saved, however it ends."""
    with Store.writing(audit.folder, wait=conditions.wait) as store, Stop().on_interrupt(conditions.say) as stop:
        audit = with_features(audit, store)
        if note := require_unchanged(audit, store, accept=conditions.accept_changes):
            conditions.say(note)
        record(audit, store, calibrations)
        keep_files(audit)
        budget = audit.config.budget
        limit = Budget(dollars=budget.dollars, seconds=budget.minutes * 60 if budget.minutes else None)
        terms = Terms(budget=limit, stop=stop, watch=conditions.watch)
        worked = Worked(totals=store.totals())
        if "edit" in stages and audit.extractors:
            worked.ended, worked.tallies = features.extract(audit, store, terms)
            audit = with_features(audit, store)
            if note := features.without_prompt(audit):
                conditions.say(note)
            features.refuse_truncation(audit)
            record(audit, store, calibrations)
        for name, stage in (("edit", edits.edit), ("judge", judgements.judge)):
            if name in stages and worked.ended is Ended.COMPLETE:
                worked.ended, tallies = stage(audit, store, terms)
                worked.tallies += tallies
        worked.totals, worked.failures = store.totals(), tuple(store.failures())
        return worked


def keep_files(audit: Audit) -> None:
    """Write the audit as resolved, and a copy of audit.toml for a run that is kept elsewhere."""
    header = f"# {audit.config.title}: the audit as resolved by stillme {__version__}, hash {audit.hash}\n"
    write_whole(audit.folder / RESOLVED, header + tomli_w.dumps(audit.resolved))
    if audit.file.is_file() and audit.file.resolve() != (audit.folder / FILE).resolve():
        # A run kept elsewhere must be usable without the file that it came from.
        write_whole(audit.folder / FILE, f"# From {audit.file}\n" + tomli_w.dumps(audit.as_input()))
