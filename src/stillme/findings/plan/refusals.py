"""What stands in the way of a run on this machine, before it is tried."""

from __future__ import annotations

from collections.abc import Iterator

from stillme.audit import Audit
from stillme.audit.loading import refusals
from stillme.work.prices import unknown_prices


def obstacles(audit: Audit) -> Iterator[str]:
    """Why `stillme run` would refuse this audit: the same checks, of settings, keys, packages and this machine."""
    yield from map(str, refusals(audit.file))
    if problem := unknown_prices(audit, audit.config.budget.dollars):
        yield problem
