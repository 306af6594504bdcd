"""Record what a run asks: design, requests, source pictures."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import tomli_w

from stillme import __version__
from stillme.audit import Audit
from stillme.audit.design import FILE, RESOLVED, Claim, name_source
from stillme.core.files import write_whole
from stillme.core.protocols import overrides
from stillme.core.types import Json
from stillme.runs.store import Store
from stillme.runs.store.designs import plan_hash

Calibrations = Mapping[str, Mapping[str, Json]]
"""By the judge's name: its calibration as this machine knows it."""


def record(audit: Audit, store: Store, calibrations: Calibrations | None = None, *, to_read_only: bool = False) -> None:
    """Record the audit's design and requests, unless they are what was recorded last.

    Portraits are kept, too. Where that means to ask another machine, those who want to read only do not wait for it.
    """
    store.record_audit(audit.hash, audit.resolved)
    if not (to_read_only and store.pictures.place.is_elsewhere):
        store.pictures.take_all(portrait.image for portrait in audit.portraits)
    latest = store.designs.latest()
    recorded: Sequence[Json] = latest.document["claims"] if latest else ()
    design = replace(audit.design(calibrations), claims=_claims(audit, recorded, store.count_edits))
    document = design.as_json()
    if latest and latest.document == document and not may_ask_otherwise(audit):
        return
    with store.transaction():
        plan = store.designs.plan_of(plan_hash(audit.recorded_requests())) if latest else None
        if latest is None or latest.document != document or latest.plan != plan:
            store.designs.add(audit.hash, document, plan or store.designs.add_plan(audit.recorded_requests()))


def may_ask_otherwise(audit: Audit) -> bool:
    """Whether the requests depend on more than the design: on portraits' features, or on an editor's finished files."""
    return bool(audit.extractors) or any(overrides(named.editor, "fingerprint") for named in audit.editors)


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


def keep_files(audit: Audit) -> None:
    """Write the audit as resolved, and a copy of audit.toml for a run that is kept elsewhere."""
    if audit.file.is_file() and audit.file.resolve() != (audit.folder / FILE).resolve():
        # A run kept elsewhere must be usable without the file that it came from.
        write_whole(audit.folder / FILE, f"# From {audit.file}\n" + tomli_w.dumps(audit.as_input()))
    header = f"# {audit.config.title}: the audit as resolved by stillme {__version__}, hash {audit.hash}\n"
    write_whole(audit.folder / RESOLVED, header + name_source(audit.folder) + tomli_w.dumps(audit.resolved))
