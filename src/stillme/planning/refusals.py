"""What stands in the way of a run on this machine, before it is tried."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from stillme.audit import Audit
from stillme.audit.loading import refusals
from stillme.editors.diffusion.gpus import Gpu, gpus
from stillme.stages.prices import unknown_prices

_LESS_MEMORY = frozenset({"offload", "quantisation", "components", "devices"})
"""Settings with which an editor needs another amount than the one that it states."""


def obstacles(audit: Audit, cards: Sequence[Gpu] | None = None) -> Iterator[str]:
    """Why `stillme run` would refuse this audit, and which editors do not fit the GPUs here."""
    yield from map(str, refusals(audit.file))
    if problem := unknown_prices(audit, audit.config.budget.dollars):
        yield problem
    largest = max(gpus() if cards is None else cards, key=lambda card: card.total_gb, default=None)
    for section, named in zip(audit.config.editors, audit.editors, strict=True):
        wanted = named.editor.needs.memory_gb
        if not wanted or _LESS_MEMORY & section.parameters.keys():
            continue
        if largest is None:
            yield f"{named.name}: needs a GPU with about {wanted:g} GB, and nvidia-smi shows none here"
        elif 0 < largest.total_gb < wanted:
            yield (
                f"{named.name}: needs a GPU with about {wanted:g} GB, and the largest here, {largest.name}, has "
                f'{largest.total_gb:.0f}; write parameters = {{ offload = "model" }}, or choose a smaller preset'
            )
