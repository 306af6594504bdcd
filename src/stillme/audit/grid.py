"""The grid of an audit: who is edited with which prompt under which arm. Planning, running and verifying share it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from stillme.audit import roles
from stillme.audit.config import RolesSection
from stillme.audit.design import Design
from stillme.audit.roles import Cast
from stillme.audit.sampling import Sample, draw
from stillme.core.types import Arm, Portrait, Prompt
from stillme.mitigation import NOOP_INSTRUCTION

NOOP = Prompt(id="noop", text=NOOP_INSTRUCTION, category="noop", subcategory="noop")
"""Changing nothing does not depend on the prompt: one no-op request per portrait."""

Cell = tuple[tuple[Portrait, ...], Arm, Prompt]


@dataclass(frozen=True, kw_only=True)
class Grid:
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


def grid_of(design: Design, chosen: Sample) -> Grid:
    """The grid that a recorded design asks for; `chosen` are the cells of a run whose sample was a file of cells."""
    section = design.resolved.get("roles")
    acting = RolesSection.model_validate(section) if section else None
    alone = [prompt for prompt in design.prompts if not (acting and prompt.target)]
    return Grid(
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
    paired = roles.couples(design.portraits, section, design.factors)
    if paired:
        yield from roles.casts([prompt for prompt in design.prompts if prompt.target], paired, section)
