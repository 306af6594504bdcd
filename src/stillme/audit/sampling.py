"""A sample of the grid portrait × prompt × editor, drawn by seed before any result is seen.

Every prompt, every editor and every portrait is drawn equally often, to within one; the portraits of one prompt
are spread over the groups. Arms and seeds are not sampled: what is drawn runs under all of them, so that contrasts
between arms stay paired. With 20 prompts, 3 editors and 84 portraits, 500 are the paper's sample (Appendix H).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from stillme.types import Portrait, Prompt


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """Which prompts each portrait is edited with, for every editor."""

    chosen: Mapping[str, frozenset[tuple[str, str]]]
    """For every editor's name the ids of portrait and prompt."""

    def holds(self, editor: str, portrait: Portrait, prompt: Prompt) -> bool:
        """Whether this cell of the grid was drawn."""
        return (portrait.id, prompt.id) in self.chosen[editor]


def draw(
    portraits: Sequence[Portrait],
    prompts: Sequence[Prompt],
    editors: Sequence[str],
    *,
    factors: Sequence[str],
    size: int,
    seed: int,
) -> Sample:
    """Draw `size` cells, at most as many as there are."""
    random = np.random.default_rng(seed)
    line = spread(portraits, factors, random)
    shuffled = [prompts[int(place)] for place in random.permutation(len(prompts))]
    chosen: dict[str, set[tuple[str, str]]] = {name: set() for name in editors}
    size = min(size, len(line) * len(prompts) * len(editors))
    for place in range(size):
        # The portraits form a ring. Each prompt takes the next stretch of it, and in each round the editors shift by
        # one, so that no portrait gets the same editor, or the same prompt, more often than needed.
        prompt = shuffled[place * len(prompts) // size]
        lap, position = divmod(place, len(line))
        editor = editors[(position + lap) % len(editors)]
        chosen[editor].add((line[position].id, prompt.id))
    return Sample(chosen={name: frozenset(cells) for name, cells in chosen.items()})


def spread(portraits: Sequence[Portrait], factors: Sequence[str], random: np.random.Generator) -> list[Portrait]:
    """The portraits in an order in which any stretch holds the groups in about their proportions."""
    if not factors:
        return [portraits[int(place)] for place in random.permutation(len(portraits))]
    groups: dict[str, list[Portrait]] = defaultdict(list)
    for portrait in portraits:
        groups[portrait.attributes.get(factors[0], "")].append(portrait)
    placed: list[tuple[float, Portrait]] = []
    for offset, level in zip(random.permutation(len(groups)), sorted(groups), strict=True):
        members = spread(groups[level], factors[1:], random)
        start = (float(offset) + 0.5) / len(groups)
        placed += [((rank + start) / len(members), portrait) for rank, portrait in enumerate(members)]
    return [portrait for _, portrait in sorted(placed, key=lambda entry: entry[0])]
