"""The requests that a design asks for, in their order: none may be missing, added or moved."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence

from stillme.audit import roles
from stillme.audit.config import RolesSection
from stillme.audit.roles import Cast
from stillme.audit.sampling import Sample, draw
from stillme.design import Design, EditorRecord
from stillme.types import Arm

Cell = tuple[tuple[str, ...], str, str, int]
"""Portraits, arm, prompt and seed."""


class Grid:
    """Who meets which prompt, computed from the design as the audit computes it."""

    def __init__(self, design: Design) -> None:
        self._design = design
        section = design.resolved.get("roles")
        self._roles = RolesSection.model_validate(section) if section else None
        self._sample = self._draw()
        self._casts: dict[str, list[Cast]] = defaultdict(list)
        for cast in self._cast():
            self._casts[cast.portraits[0].id].append(cast)
        self._noop = next((prompt.id for arm, prompt in design.treatments if arm is Arm.NOOP), "")

    def cells(self, editor: EditorRecord) -> Iterator[Cell]:
        """Every request to one editor."""
        for portrait in self._design.portraits:
            subjects = [
                ((portrait.id,), prompt.id)
                for prompt in self._design.prompts
                if not (self._roles and prompt.target)
                and (self._sample is None or self._sample.holds(editor.name, portrait, prompt))
            ]
            subjects += [
                (tuple(person.id for person in cast.portraits), cast.prompt.id) for cast in self._casts[portrait.id]
            ]
            for arm in self._design.arms if subjects else ():
                for people, prompt in [((portrait.id,), self._noop)] if arm is Arm.NOOP else subjects:
                    yield from ((people, str(arm), prompt, seed) for seed in editor.seeds)

    def _draw(self) -> Sample | None:
        section = self._design.resolved.get("sample")
        if not section:
            return None
        alone = [prompt for prompt in self._design.prompts if not (self._roles and prompt.target)]
        names = [editor.name for editor in self._design.editors]
        factors: Sequence[str] = self._design.factors
        return draw(
            self._design.portraits, alone, names, factors=factors, size=section["size"], seed=section.get("seed", 0)
        )

    def _cast(self) -> Iterator[Cast]:
        if self._roles is None:
            return
        acted = [prompt for prompt in self._design.prompts if prompt.target]
        paired = roles.couples(self._design.portraits, self._roles, self._design.factors)
        if paired:
            yield from roles.casts(acted, paired, self._roles)
