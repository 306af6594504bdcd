"""How far the raters agree so far, question by question."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import sqlalchemy as sa
from numpy.typing import NDArray

from stillme.estimates import Edits, EditState, RatingState, Scores, Settings
from stillme.estimates.agreement import Agreement, agreement
from stillme.study.answers import CANNOT_TELL
from stillme.study.opening import Study
from stillme.study.ratings import Rating, raters, ratings
from stillme.types import ImageFile, Interval, Portrait, Prompt


@dataclass(frozen=True, slots=True, kw_only=True)
class AxisAgreement:
    """Krippendorff's alpha on one question."""

    axis: str
    alpha: float | None
    low: float | None
    high: float | None
    reason: str
    """Why there is no alpha."""
    method: str
    units: int
    """Outputs with at least two ratings."""
    ratings: int

    def as_json(self) -> dict[str, Any]:
        """For `--json`."""
        return asdict(self)


def agreements(study: Study, connection: sa.Connection) -> list[AxisAgreement]:
    """Interval alpha of every question, over real items and raters who are not excluded."""
    included = [rater for rater in raters(study, connection) if not rater.excluded]
    rows = [row for row in ratings(study, connection, included) if row.kind == "real" and row.value != CANNOT_TELL]
    shown = sorted({(row.item, row.output) for row in rows})
    measures = agreement(_edits(study, shown), list(_scores(rows, shown)), Settings(factors=()))
    alphas = {measure.axis: _of_axis(measure) for measure in measures if measure.measure == "alpha_interval"}
    return [alphas[axis] for axis in study.config.questions if axis in alphas]


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


def _of_axis(measure: Agreement) -> AxisAgreement:
    interval = measure.outcome if isinstance(measure.outcome, Interval) else None
    return AxisAgreement(
        axis=measure.axis,
        alpha=interval.value if interval else None,
        low=interval.low if interval else None,
        high=interval.high if interval else None,
        reason="" if isinstance(measure.outcome, Interval) else measure.outcome.reason,
        method=interval.method if interval else "",
        units=measure.items,
        ratings=measure.ratings,
    )


def _portrait(name: str) -> Portrait:
    no_image = ImageFile(path=Path(name), sha256="")
    return Portrait(id=name, image=no_image, attributes={}, label_origin="", licence="")
