"""The same estimates for part of the rows, for finer groups, or at other cuts."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import Literal

import numpy as np

from stillme.core.errors import UnknownName
from stillme.core.types import Estimate, Prompt
from stillme.estimates.estimating import estimate, estimate_all
from stillme.estimates.quantities import Columns
from stillme.estimates.rows import TIMES, Edits, Scores
from stillme.estimates.settings import Settings

By = Literal["prompt", "subcategory", "category"]


def by_prompt(
    edits: Edits,
    scores: Sequence[Scores],
    settings: Settings,
    *,
    by: By = "prompt",
    groups: bool = False,
) -> list[Estimate]:
    """Every mean and rate for each prompt, subcategory or category; with `groups`, also by group and between groups.

    `Estimate.prompts` names it. One prompt says nothing about others, so prompts are never a sample here.
    """
    wanted = replace(settings, prompts="fixed")
    if not groups:
        wanted = wanted.comparing()
    names = [_name(prompt, by) for prompt in edits.prompts]
    estimates: list[Estimate] = []
    for kind in sorted(set(names)):
        inside = np.array([name == kind for name in names], dtype=np.bool_)[edits.prompt]
        if inside.any():
            columns = Columns.of(edits.where(inside))
            quantities = list(columns.quantities([score.where(inside) for score in scores]))
            estimates += estimate_all(columns, quantities, wanted, prompts=kind)
    return estimates


def by_intersection(
    edits: Edits,
    scores: Sequence[Scores],
    settings: Settings,
    factors: Sequence[str],
) -> list[Estimate]:
    """Every mean and rate for intersections of attributes, such as `race × gender`: by group and between groups."""
    known = {name for portrait in edits.portraits for name in portrait.attributes}
    for factor in factors:
        if factor not in known:
            raise UnknownName.among("factor", factor, known, f"Portraits have {', '.join(sorted(known)) or 'none'}.")
    crossed = settings.comparing(TIMES.join(factors))
    return [row for row in estimate(edits.crossed(factors), scores, crossed) if row.factor]


def at_every_cut(
    edits: Edits, scores: Sequence[Scores], settings: Settings, *, axes: Collection[str] | None = None
) -> list[Estimate]:
    """The rates at every cut of every 1–5 scale, such as `race_change>=2`, in place of the named ones."""
    columns = Columns.of(edits)
    chosen = [score for score in scores if axes is None or score.axis in axes]
    rates = columns.quantities(chosen, every_cut=True, prompts=settings.prompts == "sample")
    return estimate_all(columns, list(rates), settings)


def _name(prompt: Prompt, by: By) -> str:
    match by:
        case "prompt":
            return prompt.id
        case "subcategory":
            return prompt.subcategory
        case "category":
            return prompt.category
