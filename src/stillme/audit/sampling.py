"""A sample of the grid portrait × prompt × editor, drawn by seed before any result is seen.

Every prompt, every editor and every portrait is drawn equally often, to within one; the portraits of one prompt
are spread over the groups. Arms and seeds are not sampled: what is drawn runs under all of them, so that contrasts
between arms stay paired. With 20 prompts, 3 editors and 84 portraits, 500 are the paper's sample (Appendix H).
"""

from __future__ import annotations

import csv
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from stillme.core.errors import StillmeError
from stillme.core.files import write_csv
from stillme.core.types import Portrait, Prompt, digest

Cell = tuple[str, str, str]
"""The names of an editor, a portrait and a prompt."""
COLUMNS = ("editor", "portrait", "prompt")


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """Which prompts each portrait is edited with, for every editor."""

    chosen: Mapping[str, frozenset[tuple[str, str]]]
    """For every editor's name the ids of portrait and prompt."""

    @classmethod
    def of(cls, cells: Iterable[Cell], editors: Sequence[str]) -> Sample:
        """These cells; an editor that is not among them has none."""
        chosen: dict[str, set[tuple[str, str]]] = {name: set() for name in editors}
        for editor, portrait, prompt in cells:
            chosen.setdefault(editor, set()).add((portrait, prompt))
        return cls(chosen={name: frozenset(members) for name, members in chosen.items()})

    @property
    def hash(self) -> str:
        """Names what was drawn."""
        return digest({editor: sorted(cells) for editor, cells in self.chosen.items()})

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
    chosen: list[Cell] = []
    size = min(size, len(line) * len(prompts) * len(editors))
    for place in range(size):
        # The portraits form a ring. Each prompt takes the next stretch of it, and in each round the editors shift by
        # one, so that no portrait gets the same editor, or the same prompt, more often than needed.
        prompt = shuffled[place * len(prompts) // size]
        lap, position = divmod(place, len(line))
        editor = editors[(position + lap) % len(editors)]
        chosen.append((editor, line[position].id, prompt.id))
    return Sample.of(chosen, editors)


def draw_among(
    cells: Iterable[Cell], portraits: Sequence[Portrait], *, factors: Sequence[str], size: int, seed: int
) -> list[Cell]:
    """Draw `size` of these cells, or all: prompts and editors as evenly as the cells allow, spread over the groups."""
    random = np.random.default_rng(seed)
    place = {portrait.id: index for index, portrait in enumerate(spread(portraits, factors, random))}
    queues: dict[str, list[Cell]] = defaultdict(list)
    for cell in sorted(cells, key=lambda cell: (place[cell[1]], cell)):
        queues[cell[2]].append(cell)
    for prompt, queue in sorted(queues.items()):
        # Each prompt begins elsewhere in the line, so that not all have the same people.
        start = int(random.integers(len(queue)))
        queues[prompt] = queue[start:] + queue[:start]
    drawn: list[Cell] = []
    taken: Counter[str] = Counter()
    while len(drawn) < size and any(queues.values()):
        for queue in [queues[prompt] for prompt in sorted(queues) if queues[prompt]][: size - len(drawn)]:
            cell = min(queue, key=lambda cell: taken[cell[0]])
            queue.remove(cell)
            taken[cell[0]] += 1
            drawn.append(cell)
    return drawn


def read_cells(file: Path) -> list[Cell]:
    """The cells of a CSV that `write_cells` wrote, or a user."""
    try:
        with file.open(encoding="utf-8-sig", newline="") as stream:
            rows = list(csv.DictReader(stream))
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise StillmeError(f"{file.name} cannot be read ({error}); name a CSV with {', '.join(COLUMNS)}") from None
    if not rows or any(name not in rows[0] for name in COLUMNS):
        raise StillmeError(f"{file.name} needs rows and the columns {', '.join(COLUMNS)}")
    return [(row["editor"] or "", row["portrait"] or "", row["prompt"] or "") for row in rows]


def write_cells(file: Path, cells: Iterable[Cell]) -> None:
    """Write the cells as a CSV."""
    write_csv(file, COLUMNS, (dict(zip(COLUMNS, cell, strict=True)) for cell in cells))


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
