"""How far the raters agree so far, question by question."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import sqlalchemy as sa
from numpy.typing import NDArray

from stillme import rubric
from stillme.estimates import Edits, EditState, RatingState, Scores, Settings
from stillme.estimates.agreement import Agreement, agreement
from stillme.study.opening import Study
from stillme.study.ratings import Rating, raters, ratings
from stillme.types import ImageFile, Interval, Portrait, Prompt


@dataclass(frozen=True, slots=True, kw_only=True)
class AxisAgreement:
    """Krippendorff's alpha and Fleiss' kappa on one question."""

    axis: str
    alpha: float | None
    low: float | None
    high: float | None
    reason: str
    """Why there is no alpha."""
    kappa: float | None
    kappa_low: float | None
    kappa_high: float | None
    kappa_reason: str
    """Why there is no kappa."""
    method: str
    units: int
    """Outputs with at least two ratings."""
    ratings: int

    def as_json(self) -> dict[str, Any]:
        """For `--json`."""
        return asdict(self)


def agreements(study: Study, connection: sa.Connection) -> list[AxisAgreement]:
    """Alpha (interval; of a choice, nominal) and kappa of every question, over real items and raters who count."""
    included = [rater for rater in raters(study, connection) if not rater.excluded]
    rows = [row for row in ratings(study, connection, included) if row.kind == "real" and row.is_score]
    shown = sorted({(row.item, row.output) for row in rows})
    measures = agreement(_edits(study, shown), list(_scores(rows, shown)), Settings(factors=()), among="people")
    by_name = {(measure.axis, measure.measure): measure for measure in measures}
    return [
        _of_axis(by_name[axis, "alpha_nominal" if rubric.load().is_nominal(axis) else "alpha_interval"], kappa)
        for axis in study.questions
        if (kappa := by_name.get((axis, "fleiss_kappa")))
    ]


def _edits(study: Study, shown: Sequence[tuple[str, int]]) -> Edits:
    """The rated outputs as `estimates` takes edits: only which ones share a portrait matters."""
    items = {item.id: item for item in study.drawn.items}
    names = [items[item].strata.get("portrait", item) for item, _ in shown]
    portraits = sorted(set(names))
    zeros = np.zeros(len(shown), dtype=np.int32)
    return Edits(
        keys=[f"{item}.{output}" for item, output in shown],
        portrait=np.array([portraits.index(name) for name in names], dtype=np.int32),
        prompt=zeros,
        editor=zeros,
        arm=zeros,
        state=np.full(len(shown), EditState.EDITED, dtype=np.int32),
        image=[""] * len(shown),
        portraits=tuple(_portrait(name) for name in portraits),
        prompts=(Prompt(id="", text="", category="", subcategory=""),),
        editors=("",),
        arms=("",),
    )


def _scores(rows: Sequence[Rating], shown: Sequence[tuple[str, int]]) -> Iterator[Scores]:
    """One column per rater and question."""
    index_of = {unit: index for index, unit in enumerate(shown)}
    columns: dict[tuple[str, str], NDArray[np.float64]] = {}
    for row in rows:
        column = columns.setdefault((row.rater, row.axis), np.full(len(shown), np.nan))
        column[index_of[row.item, row.output]] = row.value
    for (rater, axis), value in columns.items():
        state = np.where(np.isnan(value), RatingState.MISSING, RatingState.RATED).astype(np.int32)
        yield Scores(judge=rater, axis=axis, value=value, state=state)


def _of_axis(alpha: Agreement, kappa: Agreement) -> AxisAgreement:
    value, low, high, reason = _numbers(alpha)
    kappa_value, kappa_low, kappa_high, kappa_reason = _numbers(kappa)
    return AxisAgreement(
        axis=alpha.axis,
        alpha=value,
        low=low,
        high=high,
        reason=reason,
        kappa=kappa_value,
        kappa_low=kappa_low,
        kappa_high=kappa_high,
        kappa_reason=kappa_reason,
        method=alpha.outcome.method if isinstance(alpha.outcome, Interval) else "",
        units=alpha.items,
        ratings=alpha.ratings,
    )


def _numbers(measure: Agreement) -> tuple[float | None, float | None, float | None, str]:
    outcome = measure.outcome
    if isinstance(outcome, Interval):
        return outcome.value, outcome.low, outcome.high, ""
    return None, None, None, outcome.reason


def _portrait(name: str) -> Portrait:
    no_image = ImageFile(path=Path(name), sha256="")
    return Portrait(id=name, image=no_image, attributes={}, label_origin="", licence="")
