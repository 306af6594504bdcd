"""Recommend the embedded set with more identities, where a factor's groups have few of them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from stillme.core import registry
from stillme.core.types import Portrait

SMALL, LARGE = "synthetic", "synthetic-36"


def larger_set(source: str, factors: Sequence[str], edits: int | None = None) -> str:
    """What `synthetic-36` would bring for these factors and what it costs; empty where the audit gains nothing.

    A preset varies inside an identity, so that its gaps gain nothing but more portraits.
    """
    if source != SMALL:
        return ""
    small, large = registry.portrait_set(SMALL), registry.portrait_set(LARGE)
    gains = [
        f"{factor} {few} → {more}"
        for factor in factors
        if (few := fewest_identities(small, factor)) and (more := fewest_identities(large, factor))
    ]
    if not gains:
        return ""
    times = len(large) // len(small)
    price = f"{times} × the edits" + (f" ({times * edits:,})" if edits else "")
    return (
        f'`source = "{LARGE}"` has more identities a group ({", ".join(gains)}): {len(large)} pictures × prompts '
        f"instead of {len(small)}, so {price}, {times} × their cost and time"
    )


def fewest_identities(portraits: Sequence[Portrait], factor: str) -> int:
    """Of the group with the fewest; 0 where the factor varies inside identities, or no portrait has it."""
    groups = dict(_groups(portraits, factor))
    several = sum(len(blocks) for blocks in groups.values()) > len(set[str]().union(*groups.values()))
    return 0 if several else min(map(len, groups.values()), default=0)


def _groups(portraits: Sequence[Portrait], factor: str) -> Iterator[tuple[str, set[str]]]:
    levels = {portrait.attributes[factor] for portrait in portraits if factor in portrait.attributes}
    for level in levels:
        yield level, {portrait.block for portrait in portraits if portrait.attributes.get(factor) == level}
