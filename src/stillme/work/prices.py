"""Refuse a budget that cannot be kept, because a price is unknown."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Literal

from stillme.audit import Audit
from stillme.core.errors import StillmeError
from stillme.core.protocols import expected_dollars
from stillme.work.spending import Budget


def require_prices(audit: Audit, budget: Budget, stages: Collection[Literal["edit", "judge"]]) -> None:
    """Raise if dollars are limited and somebody's price is unknown."""
    if problem := unknown_prices(audit, budget.dollars, stages):
        raise StillmeError(problem)


def unknown_prices(
    audit: Audit, dollars: float | None, stages: Collection[Literal["edit", "judge"]] = ("edit", "judge")
) -> str:
    """Why a budget of so many dollars cannot be kept; empty if it can."""
    unknown = [] if dollars is None else list(_unpriced(audit, stages))
    if not unknown:
        return ""
    return (
        f"The budget of ${dollars:,.2f} cannot be kept: the price of {', '.join(unknown)} is unknown. "
        "Set `price` in its parameters (zero for a server of your own), or add `--allow-unknown-cost`."
    )


def _unpriced(audit: Audit, stages: Collection[Literal["edit", "judge"]]) -> Iterator[str]:
    if "edit" in stages:
        yield from (f"extractor {named.name!r}" for named in audit.extractors if _unknown(named.extractor))
        yield from (f"editor {named.name!r}" for named in audit.editors if _unknown(named.editor))
    if "judge" in stages:
        asked = (named for named in audit.judges if not named.judge.capabilities.given)
        yield from (f"judge {named.name!r}" for named in asked if _unknown(named.judge))
        yield from (f"reader {named.name!r}" for named in audit.readers if _unknown(named.judge))


def _unknown(plugin: object) -> bool:
    return expected_dollars(plugin) is None
