"""What a notebook shows of a run: the first screen in short, and pairs of pictures."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from stillme.core.errors import UnknownName
from stillme.core.rubric import rate_of
from stillme.estimates import RatingState, headlines
from stillme.estimates.quantities import meets
from stillme.report import gallery
from stillme.report.data import ReportData
from stillme.report.findings import find
from stillme.report.gallery import Picture
from stillme.report.writing import render_part


def summary(data: ReportData) -> str:
    """Verdicts, editors × quantities, and a few faces, as HTML."""
    return render_part(
        data, "notebook.html", findings=find(data), pictures=gallery.hero(data, gallery.worst(data, 200))
    )


@dataclass(frozen=True, slots=True)
class Examples:
    """Edits beside their sources, which show themselves in a notebook."""

    data: ReportData
    pictures: tuple[Picture, ...]

    def __iter__(self) -> Iterator[Picture]:
        return iter(self.pictures)

    def __len__(self) -> int:
        return len(self.pictures)

    def _repr_html_(self) -> str:
        return render_part(self.data, "notebook.html", findings=None, pictures=self.pictures)


def examples(data: ReportData, quantity: str, *, editor: str, count: int, labels: Mapping[str, str]) -> Examples:
    """The worst edits, of one quantity, editor or group where these are named: not a fair sample."""
    edits = data.edits
    rows = edits.arm == edits.arms.index(data.main_arm)
    if editor:
        if editor not in edits.editors:
            raise UnknownName.among("editor", editor, edits.editors, f"This run has {', '.join(edits.editors)}.")
        rows &= edits.editor == edits.editors.index(editor)
    for factor, group in labels.items():
        rows &= gallery.rows_of_group(data, factor, group)
    axis = headlines.axis_of(quantity) if quantity else ""
    if quantity:
        scores = [score for score in data.headline_scores if score.axis == axis]
        known = [one.quantity for one in data.headlines if headlines.is_headline(one.quantity)]
        if not scores or quantity not in known:
            raise UnknownName.among("quantity", quantity, known, f"This run has {', '.join(dict.fromkeys(known))}.")
        if rate := rate_of(quantity):
            rated = [(score.state == RatingState.RATED) & (meets(rate, score.value) > 0) for score in scores]
            rows &= np.any(rated, axis=0)
    worst = gallery.worst(data, count, axis=axis, among=rows)
    return Examples(data, tuple(gallery.picture(data, row) for row, _ in worst))
