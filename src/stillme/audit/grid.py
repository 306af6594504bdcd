"""The grid of an audit: who is edited with which prompt under which arm. Planning, running and verifying share it.

All of it is asked, or a sample that was drawn by seed before any result was seen, or listed. Role prompts are asked of
two people who differ in gender presentation, in one request or in one each.
"""

from __future__ import annotations

import csv
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np

from stillme.audit.config import RolesSection
from stillme.audit.design import Design, RolesRecord
from stillme.core.errors import StillmeError
from stillme.core.files import write_csv, wrong_separator
from stillme.core.types import Arm, Portrait, Prompt, digest
from stillme.mitigation.arms import NOOP_INSTRUCTION

NOOP = Prompt(id="noop", text=NOOP_INSTRUCTION, category="noop", subcategory="noop")
"""Changing nothing does not depend on the prompt: one no-op request per portrait."""

Cell = tuple[tuple[Portrait, ...], Arm, Prompt]


CellNames = tuple[str, str, str]
"""The names of an editor, a portrait and a prompt."""
COLUMNS = ("editor", "portrait", "prompt")


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """Which prompts each portrait is edited with, for every editor."""

    chosen: Mapping[str, frozenset[tuple[str, str]]]
    """For every editor's name the ids of portrait and prompt."""

    @classmethod
    def of(cls, cells: Iterable[CellNames], editors: Sequence[str]) -> Sample:
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
    """Draw `size` cells, at most as many as there are.

    Every prompt, every editor and every portrait is drawn equally often, to within one; the portraits of one prompt
    are spread over the groups. Arms and seeds are not sampled: what is drawn runs under all of them, so that contrasts
    between arms stay paired. With 20 prompts, 3 editors and 84 portraits, 500 are the paper's sample (Appendix H).
    """
    random = np.random.default_rng(seed)
    line = spread(portraits, factors, random)
    shuffled = [prompts[int(place)] for place in random.permutation(len(prompts))]
    chosen: list[CellNames] = []
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
    cells: Iterable[CellNames], portraits: Sequence[Portrait], *, factors: Sequence[str], size: int, seed: int
) -> list[CellNames]:
    """Draw `size` of these cells, or all: prompts and editors as evenly as the cells allow, spread over the groups."""
    random = np.random.default_rng(seed)
    place = {portrait.id: index for index, portrait in enumerate(spread(portraits, factors, random))}
    queues: dict[str, list[CellNames]] = defaultdict(list)
    for cell in sorted(cells, key=lambda cell: (place[cell[1]], cell)):
        queues[cell[2]].append(cell)
    for prompt, queue in sorted(queues.items()):
        # Each prompt begins elsewhere in the line, so that not all have the same people.
        start = int(random.integers(len(queue)))
        queues[prompt] = queue[start:] + queue[:start]
    drawn: list[CellNames] = []
    taken: Counter[str] = Counter()
    while len(drawn) < size and any(queues.values()):
        for queue in [queues[prompt] for prompt in sorted(queues) if queues[prompt]][: size - len(drawn)]:
            cell = min(queue, key=lambda cell: taken[cell[0]])
            queue.remove(cell)
            taken[cell[0]] += 1
            drawn.append(cell)
    return drawn


def read_cells(file: Path) -> list[CellNames]:
    """The cells of a CSV that `write_cells` wrote, or a user."""
    try:
        with file.open(encoding="utf-8-sig", newline="") as stream:
            reader = csv.DictReader(stream)
            fault = wrong_separator(reader.fieldnames)
            rows = list(reader)
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise StillmeError(f"{file.name} cannot be read ({error}); name a CSV with {', '.join(COLUMNS)}") from None
    if fault:
        raise StillmeError(f"{file.name} {fault}")
    if not rows or any(name not in rows[0] for name in COLUMNS):
        raise StillmeError(f"{file.name} needs rows and the columns {', '.join(COLUMNS)}")
    return [(row["editor"] or "", row["portrait"] or "", row["prompt"] or "") for row in rows]


def write_cells(file: Path, cells: Iterable[CellNames]) -> None:
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Cast:
    """A role prompt with the people of its request, in the order in which the editor gets their pictures."""

    prompt: Prompt
    portraits: tuple[Portrait, ...]


def couples(
    portraits: Sequence[Portrait], section: RolesSection, factors: Sequence[str]
) -> tuple[tuple[Portrait, Portrait], ...]:
    """Pairs of a man's and a woman's portrait, by label, that agree in the attributes to match on."""
    random = np.random.default_rng(section.seed)
    match = section.match if section.match is not None else [name for name in factors if name != section.gender]
    alike: dict[tuple[str, ...], list[Portrait]] = defaultdict(list)
    for portrait in spread(portraits, match, random):
        alike[tuple(portrait.attributes.get(name, "") for name in match)].append(portrait)
    paired: list[tuple[Portrait, Portrait]] = []
    for group in alike.values():
        men = [portrait for portrait in group if portrait.attributes.get(section.gender) == section.male]
        women = [portrait for portrait in group if portrait.attributes.get(section.gender) == section.female]
        paired += zip(men, women, strict=False)
    return tuple(paired)


def casts(
    prompts: Sequence[Prompt], paired: Sequence[tuple[Portrait, Portrait]], section: RolesSection
) -> Iterator[Cast]:
    """Every role prompt with its people. Variants of one sentence have the same two."""
    sentences = list(dict.fromkeys(sentence_of(prompt) for prompt in prompts))
    place = {sentence: index for index, sentence in enumerate(sentences)}
    for prompt in prompts:
        man, woman = paired[place[sentence_of(prompt)] % len(paired)]
        # As in the paper, the person whom the stereotype expects comes first.
        people = (man, woman) if prompt.stereotype == "male" else (woman, man)
        if "role_pair" in section.layouts:
            yield Cast(prompt=prompt, portraits=people)
            if section.counterbalance:
                yield Cast(prompt=prompt, portraits=people[::-1])
        if "role_single" in section.layouts:
            yield from (Cast(prompt=prompt, portraits=(person,)) for person in people)


def sentence_of(prompt: Prompt) -> str:
    """What variants of one sentence share: `W-01`, `W-01-anti` and `W-01-none` are one."""
    return prompt.id.removesuffix(f"-{prompt.pronoun}") if prompt.pronoun else prompt.id


def expected_place(prompt: Prompt, portraits: Sequence[Portrait], section: RolesSection | RolesRecord) -> int:
    """Of two people, whether the first (1) or the second (2) has the gender that the stereotype expects; else 0."""
    if len(portraits) != 2 or prompt.stereotype is None:
        return 0
    wanted = section.male if prompt.stereotype == "male" else section.female
    fits = [portrait.attributes.get(section.gender) == wanted for portrait in portraits]
    return fits.index(True) + 1 if sum(fits) == 1 else 0


@dataclass(frozen=True, kw_only=True)
class AuditGrid:
    """Portraits, prompts and arms, and what of their product is asked."""

    portraits: Sequence[Portrait]
    prompts: Sequence[Prompt]
    """Those of one person."""
    arms: Sequence[Arm]
    sample: Sample | None = None
    """The cells that are run; None for all."""
    casts: Sequence[Cast] = ()
    """Role prompts with their people."""

    def cells(self, editor: str) -> Iterator[Cell]:
        """What one editor is asked, portrait by portrait, before instructions and seeds."""
        for portrait in self.portraits:
            subjects = list(self._subjects(editor, portrait))
            for arm in self.arms if subjects else ():
                asked = [((portrait,), NOOP)] if arm is Arm.NOOP else subjects
                yield from ((portraits, arm, prompt) for portraits, prompt in asked)

    def _subjects(self, editor: str, first: Portrait) -> Iterator[tuple[tuple[Portrait, ...], Prompt]]:
        """Who is edited with which prompt, of all requests that begin with this portrait."""
        for prompt in self.prompts:
            if self.sample is None or self.sample.holds(editor, first, prompt):
                yield (first,), prompt
        yield from ((role.portraits, role.prompt) for role in self._casts_by_first.get(first.id, ()))

    @cached_property
    def _casts_by_first(self) -> Mapping[str, Sequence[Cast]]:
        casts: dict[str, list[Cast]] = {}
        for role in self.casts:
            casts.setdefault(role.portraits[0].id, []).append(role)
        return casts


def grid_of(design: Design, chosen: Sample) -> AuditGrid:
    """The grid that a recorded design asks for; `chosen` are the cells of a run whose sample was a file of cells."""
    section = design.resolved.get("roles")
    acting = RolesSection.model_validate(section) if section else None
    alone = [prompt for prompt in design.prompts if not (acting and prompt.target)]
    return AuditGrid(
        portraits=design.portraits,
        prompts=alone,
        arms=design.arms,
        sample=_sample(design, alone, chosen),
        casts=tuple(_casts(design, acting)) if acting else (),
    )


def _sample(design: Design, prompts: Sequence[Prompt], chosen: Sample) -> Sample | None:
    section = design.resolved.get("sample")
    if not section:
        return None
    if section.get("hash") is not None:
        if chosen.hash != section["hash"]:
            raise ValueError("the requests are not the cells that the design names")
        return chosen
    names = [editor.name for editor in design.editors]
    size, seed = section["size"], section.get("seed", 0)
    return draw(design.portraits, prompts, names, factors=design.factors, size=size, seed=seed)


def _casts(design: Design, section: RolesSection) -> Iterator[Cast]:
    paired = couples(design.portraits, section, design.factors)
    if paired:
        yield from casts([prompt for prompt in design.prompts if prompt.target], paired, section)


PAPERS_LABELS = ("race", "gender", "age")
"""The paper's factors, in its order, which its judges and raters were told."""
_GENDERS = (("masculine", "feminine"), ("male", "female"), ("man", "woman"), ("men", "women"), ("m", "f"))
_REFERENCE = "White"
"""The group that the paper compares the others with."""


def levels_of(portraits: Sequence[Portrait]) -> dict[str, list[str]]:
    """The values of every attribute, in the order in which they first occur."""
    levels: dict[str, dict[str, None]] = {}
    for portrait in portraits:
        for attribute, level in portrait.attributes.items():
            levels.setdefault(attribute, {})[level] = None
    return {attribute: list(values) for attribute, values in levels.items()}


def factors_like_papers(portraits: Sequence[Portrait]) -> list[str]:
    """The attributes that group portraits, the paper's first and in its order; a crossing of others is left out."""
    # Measured numbers group no one, as they differ on nearly every portrait.
    names = [
        name
        for name, levels in levels_of(portraits).items()
        if 2 <= len(levels) <= max(2, len(portraits) // 2) and not _numeric(levels)
    ]
    kept = [name for name in names if sum(_determines(portraits, name, other) for other in names) < 3]
    return sorted(kept, key=lambda name: PAPERS_LABELS.index(name) if name in PAPERS_LABELS else len(PAPERS_LABELS))


def reference_of(portraits: Sequence[Portrait], factor: str) -> str:
    """The paper's reference group where there is one, else the first."""
    levels = levels_of(portraits)[factor]
    return _REFERENCE if _REFERENCE in levels else levels[0]


def lacking_labels(portraits: Sequence[Portrait]) -> list[str]:
    """Of race, gender and age, which the paper told its judges, those that some portrait lacks."""
    return [name for name in PAPERS_LABELS if not all(portrait.attributes.get(name) for portrait in portraits)]


def genders_of(portraits: Sequence[Portrait]) -> RolesRecord | None:
    """The first attribute whose values are words for men and for women; None where there is none."""
    for attribute, levels in levels_of(portraits).items():
        words = {level.lower(): level for level in levels}
        for male, female in _GENDERS:
            if male in words and female in words:
                return RolesRecord(gender=attribute, male=words[male], female=words[female])
    return None


def _determines(portraits: Sequence[Portrait], name: str, other: str) -> bool:
    """Whether one attribute determines the other; every attribute determines itself."""
    pairs = {(portrait.attributes.get(name), portrait.attributes.get(other)) for portrait in portraits}
    return len(pairs) == len({level for level, _ in pairs})


def _numeric(levels: Sequence[str]) -> bool:
    return all(level.lstrip("-").replace(".", "", 1).isdigit() for level in levels)
