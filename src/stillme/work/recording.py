"""Record what a run asks: design, requests, source pictures. A large grid is recorded beside the work on it."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace

import tomli_w

from stillme import __version__
from stillme.audit import Audit
from stillme.audit.design import FILE, RESOLVED, Claim, name_source
from stillme.core.files import write_whole
from stillme.core.protocols import Fingerprinted
from stillme.core.types import Json
from stillme.runs.store import Store
from stillme.runs.store.designs import OtherRequests, PlanHash
from stillme.work.loop import Activity, Terms
from stillme.work.tally import Ended, Tally

Calibrations = Mapping[str, Mapping[str, Json]]
"""By the judge's name: its calibration as this machine knows it."""

Saving = Callable[[], AbstractContextManager[None]]
"""What one part is saved within."""

_AT_ONCE = 50_000
"""Requests that are recorded before any work begins, which takes a second or two."""
_STEP = 2_000
"""Requests that are recorded at a time beside the work: for so long nothing is handed out."""


def record(audit: Audit, store: Store, calibrations: Calibrations | None = None, *, to_read_only: bool = False) -> None:
    """Record the audit's design and requests, unless they are what was recorded last.

    Portraits are kept, too. Where that means to ask another machine, those who want to read only do not wait for it.
    """
    document = _to_record(audit, store, calibrations, to_read_only=to_read_only)
    if document is not None:
        with store.transaction():
            for _ in _steps(audit, store, document, nullcontext):
                pass


@dataclass(frozen=True, slots=True, kw_only=True)
class LargePlan:
    """A grid that is recorded beside the work on it, a part at a time.

    Until the last part nobody can read the run. One that was killed before goes on recording where it was.
    """

    audit: Audit
    store: Store
    document: Json
    tally: Tally

    def beside(self, terms: Terms) -> Activity:
        """Record; ends early only with the whole run."""
        self.tally.begin()
        ended = Ended.COMPLETE
        for recorded in _steps(self.audit, self.store, self.document, self.store.transaction):
            self.tally.counts["recorded"] = self.tally.saved = recorded
            if terms.stop.requested:
                ended = Ended.INTERRUPTED
                break
            terms.watch(self.tally)
            terms.wake.set()  # the next part need not wait for the work
            yield
        self.tally.end(ended)
        return ended


def record_or_defer(audit: Audit, store: Store, calibrations: Calibrations | None = None) -> LargePlan | None:
    """Record the audit as `record` does; of a large grid, give what is to be recorded beside the work."""
    requests = sum(map(audit.request_count, audit.editors))
    if audit.extractors or requests <= _AT_ONCE:
        record(audit, store, calibrations)
        return None
    document = _to_record(audit, store, calibrations)
    tally = Tally("record requests", requests)
    return None if document is None else LargePlan(audit=audit, store=store, document=document, tally=tally)


def may_ask_otherwise(audit: Audit) -> bool:
    """Whether the requests depend on more than the design: on portraits' features, or on an editor's finished files."""
    return bool(audit.extractors) or any(isinstance(named.editor, Fingerprinted) for named in audit.editors)


def _to_record(
    audit: Audit, store: Store, calibrations: Calibrations | None, *, to_read_only: bool = False
) -> Json | None:
    """The design to record; None if it is the latest, and asks for the same requests."""
    store.record_audit(audit.hash, audit.resolved)
    if not (to_read_only and store.pictures.place.is_elsewhere):
        store.pictures.take_all(portrait.image for portrait in audit.portraits)
    latest = store.designs.latest()
    recorded: Sequence[Json] = latest.document["claims"] if latest else ()
    design = replace(audit.design(calibrations), claims=_claims(audit, recorded, store.count_edits))
    document = design.as_json()
    return None if latest and latest.document == document and not may_ask_otherwise(audit) else document


def _claims(audit: Audit, recorded: Sequence[Json], count_edits: Callable[[], int]) -> tuple[Claim, ...]:
    """The audit's claims, each with the edits that were there when it was first recorded.

    One that was fixed before the first edit stays on record when it is dropped.
    """
    section = audit.config.claims
    asked = (*section.rules, *section.margins) if section else ()
    known = {claim["rule"]: Claim(**claim) for claim in recorded}
    dropped = [claim for rule, claim in known.items() if rule not in asked and not claim.edits]
    edits = count_edits() if set(asked) - set(known) else 0
    return (*(known.get(rule) or Claim(rule=rule, edits=edits) for rule in dict.fromkeys(asked)), *dropped)


def _steps(audit: Audit, store: Store, document: Json, saved: Saving) -> Generator[int]:
    """Record part by part, each within `saved`; the design comes last, after all it refers to.

    Gives how many requests are recorded so far. It starts again if what was half recorded is of another audit.
    """
    latest = store.designs.latest()
    plan = None
    if latest:
        hashing, requests = PlanHash(), audit.recorded_requests()
        while part := list(itertools.islice(requests, _STEP)):
            for request in part:
                hashing.add(request)
            yield 0
        plan = store.designs.plan_of(hashing.hexdigest())
        if latest.document == document and latest.plan == plan:
            return
    if plan is None:
        try:
            plan = yield from _requests_saved(audit, store, saved, fresh=False)
        except OtherRequests:
            plan = yield from _requests_saved(audit, store, saved, fresh=True)
    with saved():
        store.designs.add(audit.hash, document, plan)


def _requests_saved(audit: Audit, store: Store, saved: Saving, *, fresh: bool) -> Generator[int, None, int]:
    writer, requests = store.designs.plan_writer(fresh=fresh), audit.recorded_requests()
    recorded = 0
    while part := list(itertools.islice(requests, _STEP)):
        with saved():
            writer.add(part)
        recorded += len(part)
        yield recorded
    with saved():
        return writer.close()


def keep_files(audit: Audit) -> None:
    """Write the audit as resolved, and a copy of audit.toml for a run that is kept elsewhere."""
    if audit.file.is_file() and audit.file.resolve() != (audit.folder / FILE).resolve():
        # A run kept elsewhere must be usable without the file that it came from.
        write_whole(audit.folder / FILE, f"# From {audit.file}\n" + tomli_w.dumps(audit.as_input()))
    header = f"# {audit.config.title}: the audit as resolved by stillme {__version__}, hash {audit.hash}\n"
    write_whole(audit.folder / RESOLVED, header + name_source(audit.folder) + tomli_w.dumps(audit.resolved))
