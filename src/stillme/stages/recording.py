"""Record what a run asks before work begins: design, requests, source pictures."""

from __future__ import annotations

from collections.abc import Mapping

from stillme.audit import Audit
from stillme.protocols import Fingerprinted
from stillme.store import Store
from stillme.store.designs import PlanHash
from stillme.types import Json

Calibrations = Mapping[str, Mapping[str, Json]]
"""By the judge's name: its calibration as this machine knows it."""


def record(audit: Audit, store: Store, calibrations: Calibrations | None = None) -> None:
    """Record the audit's design and requests, unless they are what was recorded last."""
    store.record_audit(audit.hash, audit.resolved)
    for portrait in audit.portraits:
        store.pictures.take(portrait.image)
    document = audit.design(calibrations).as_json()
    latest = store.designs.latest()
    if latest and latest.document == document and not may_ask_otherwise(audit):
        return
    plan = store.designs.plan_of(_hash_of(audit)) if latest else None
    if latest and latest.document == document and latest.plan == plan:
        return
    with store.transaction():
        if plan is None:
            plan = store.designs.add_plan(audit.recorded_requests())
        store.designs.add(audit.hash, document, plan)


def may_ask_otherwise(audit: Audit) -> bool:
    """Whether the requests depend on more than the design: on portraits' features, or on an editor's finished files."""
    return bool(audit.extractors) or any(isinstance(named.editor, Fingerprinted) for named in audit.editors)


def _hash_of(audit: Audit) -> str:
    plan = PlanHash()
    for request in audit.recorded_requests():
        plan.add(request)
    return plan.hexdigest()
