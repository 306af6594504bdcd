"""A run's edits by the paper's prompts, and the estimates over them, each made once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

import numpy as np

from stillme import prompts
from stillme.estimates import (
    Edits,
    EditState,
    RatingState,
    Scores,
    Settings,
    at_every_cut,
    estimate,
    one_judge,
    paired_effects,
)
from stillme.estimates.agreement import mean_of
from stillme.estimates.cuts import rate_of
from stillme.estimates.pairing import rated_under_both
from stillme.estimates.rows import ALL, Flags
from stillme.paper import Published, setting
from stillme.results.run import Run
from stillme.types import Estimate

PEOPLE = "people"
_SETS = {"diagnostic": prompts.diagnostic, "roles": prompts.roles}


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """Some rows of a run."""

    edits: Edits
    scores: tuple[Scores, ...]
    judge: str
    """The judge that the user wants; empty for the one that tables show."""
    raters: frozenset[str]
    """Judges who are people."""
    factor: str
    """The attribute that has the paper's groups; empty where none has."""
    levels: Mapping[str, str]
    """The paper's groups, as the portraits' labels spell them."""
    run_settings: Settings
    race_cut: int | None = None
    """The score from which the audit counts a race as changed; None for the rubric's."""
    made: dict[tuple[str, ...], Sequence[Estimate]] = field(default_factory=dict[tuple[str, ...], Sequence[Estimate]])

    def has(self, arm: str) -> bool:
        """Whether edits of this arm were made."""
        edits = self.edits
        if arm not in edits.arms:
            return False
        return bool(((edits.arm == edits.arms.index(arm)) & (edits.state == EditState.EDITED)).any())

    def in_arm(self, arm: str) -> Part:
        """Only the rows of one arm."""
        return self.where(self.edits.arm == self.edits.arms.index(arm))

    def where(self, rows: Flags) -> Part:
        """Only these rows."""
        scores = tuple(score.where(rows) for score in self.scores)
        return replace(self, edits=self.edits.where(rows), scores=scores, made={})

    def settings(self, *, by_group: bool) -> Settings:
        """The run's, with the paper's factor or with none."""
        factors = (self.factor,) if by_group and self.factor else ()
        return self.run_settings.comparing(*factors)

    def model(self, quantity: str) -> Scores | None:
        """The scores that tables show on the quantity's axis."""
        return one_judge(self.scores, axis_of(quantity), self.judge)

    def people(self, quantity: str) -> Scores | None:
        """The mean of the people who rated; None where nobody did."""
        raters = [score for score in self.scores if score.judge in self.raters and score.axis == axis_of(quantity)]
        if not raters:
            return None
        mean = replace(mean_of(raters, PEOPLE), kind="person")
        return mean if self._rated(mean).any() else None

    def score(self, number: Published) -> Scores:
        """Whose scores answer a number."""
        score = self.people(number.quantity) if number.judge == PEOPLE else self.model(number.quantity)
        assert score is not None
        return score

    def estimate(self, number: Published, editor: str) -> Estimate | None:
        """The estimate for one editor, or for all together."""
        score = self.score(number)
        kind = "change" if number.statistic == "change" else number.sample
        at_cut = self.race_cut and number.quantity == "race_changed"
        quantity = f"race_change>={self.race_cut}" if at_cut else number.quantity
        key = kind, score.judge, score.axis, editor if editor == ALL else ""
        if key not in self.made:
            self.made[key] = self._estimates(kind, score, pool=editor == ALL)
        level = self.levels.get(number.group, "")
        scope = "disparity" if number.statistic == "max - min" else "group" if level else "all"
        wanted = editor, number.arm, quantity, scope, level
        for row in self.made[key]:
            if row.judge and (row.editor, row.arm, row.quantity, row.scope, row.group) == wanted:
                return row
        return None

    def _estimates(self, kind: str, score: Scores, *, pool: bool) -> Sequence[Estimate]:
        settings = self.settings(by_group=True)
        if kind == "change":
            return paired_effects(self.edits, [score], settings, quantities=[score.axis], pool=pool)
        rows = np.ones(len(self.edits), dtype=np.bool_)
        if kind == "mitigation":
            rows = rated_under_both(self.edits, score)
        elif kind == "rated by people":
            both = (self.model(score.axis), self.people(score.axis))
            rows = np.logical_and.reduce([self._rated(one) for one in both if one is not None])
        edits = self.edits.where(rows).pooled() if pool else self.edits.where(rows)
        scores = [score.where(rows)]
        cuts = at_every_cut(edits, scores, settings) if self.race_cut and score.axis == "race_change" else []
        return [*estimate(edits, scores, settings), *cuts]

    def _rated(self, score: Scores) -> Flags:
        return (score.state == RatingState.RATED) & (self.edits.state == EditState.EDITED)


def with_prompts(
    run: Run, editors: Sequence[str], prompt_set: Literal["diagnostic", "roles"], *, judge: str, factor: str
) -> Part:
    """The edits of these editors by a prompt set of the paper."""
    edits = run.results.edits
    texts = {prompt.text for prompt in _SETS[prompt_set]()}
    by_paper = np.array([prompt.text in texts for prompt in edits.prompts], dtype=np.bool_)[edits.prompt]
    rows = by_paper & np.isin(edits.editor, [edits.editors.index(name) for name in editors])
    chosen = factor or _race(edits)
    spelled = {setting().group(level): level for level in edits.levels(chosen)[0]} if chosen else {}
    return Part(
        edits=edits.where(rows),
        scores=tuple(score.where(rows) for score in run.results.scores),
        judge=judge,
        raters=run.design.people,
        factor=chosen,
        levels={group: level for group, level in spelled.items() if group},
        run_settings=run.settings,
        race_cut=run.design.analysis.race_cut,
    )


def axis_of(quantity: str) -> str:
    """The axis that a quantity is computed from."""
    rate = rate_of(quantity)
    return rate.axis if rate else quantity


def _race(edits: Edits) -> str:
    """The attribute that has most of the paper's groups; empty where none has two."""
    names = sorted({name for portrait in edits.portraits for name in portrait.attributes})
    shared = {name: len({setting().group(level) for level in edits.levels(name)[0]} - {""}) for name in names}
    best = max(shared, key=lambda name: shared[name], default="")
    return best if best and shared[best] > 1 else ""
