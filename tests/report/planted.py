"""Report data with planted failures: which edits are made, whom they change, and what judges are known to miss."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stillme.core.types import Prompt
from stillme.estimates import Edits, EditState, RatingState, Scores, Settings, Standing, estimate
from stillme.estimates.rows import Codes
from stillme.report import ReportData
from stillme.report.data import Redaction, report_data, with_happened
from stillme.runs import RecordedRun
from tests.records import edits_of
from tests.records import portrait as a_portrait


def scored(judge: str, axis: str, value: NDArray[np.float64], state: Codes, **more: Any) -> Scores:
    """A judge's numbers, which exist where it rated."""
    return Scores(
        judge=judge, axis=axis, value=np.where(state == RatingState.RATED, value, np.nan), state=state, **more
    )


def report_of(edits: Edits, scores: Sequence[Scores], settings: Settings, **more: Any) -> ReportData:
    """What a report shows of these columns."""
    data = {"title": "Planted", "audit_hash": "0123456789abcdef", "version": "0.1.0", **more}
    return ReportData(
        edits=edits, scores=tuple(scores), estimates=tuple(estimate(edits, scores, settings)), settings=settings, **data
    )


def again(data: ReportData, **changed: Any) -> ReportData:
    """The same with other columns or settings, estimated again."""
    other = replace(data, **changed)
    return replace(other, estimates=tuple(estimate(other.edits, other.scores, other.settings)))


def data_of(folder: Path, redact: Redaction = "none") -> ReportData:
    """What the report of a run shows; the run stays open, because the page reads remarks from it."""
    run = RecordedRun.open(folder)
    return report_data(run, estimate(run.results.edits, run.results.scores, run.settings), redact=redact)


LICENSED: Standing = {
    "meter": {"visible_change": "passed", "skin_tone": "passed", "identity_distance": "failed", "age_change": "failed"}
}


def planted(
    *,
    groups: Sequence[str] = ("A", "B", "E"),
    per_group: int = 12,
    prompts: int = 2,
    unedited: Mapping[str, float] | None = None,
    lightened: Mapping[str, float] | None = None,
    states: Mapping[str, EditState] | None = None,
    rating: RatingState = RatingState.RATED,
    standing: Standing = LICENSED,
    axes: Sequence[str] = ("visible_change", "skin_tone", "identity_distance", "age_change"),
    editors: Sequence[str] = ("editor",),
) -> ReportData:
    """By group: the share of edits that are not made, and the share of made edits that lighten the skin.

    `identity_distance` is large for A only where the edit was made, and the judge failed calibration on it.
    """
    stream = np.random.default_rng(11)
    people = [a_portrait(f"{group}-{number:03d}", preset=group) for group in groups for number in range(per_group)]
    editor, portrait, prompt = (
        index.ravel().astype(np.int32) for index in np.indices((len(editors), len(people), prompts))
    )
    group = np.array([person.attributes["preset"] for person in people])[portrait]
    state = np.full(len(portrait), EditState.EDITED, dtype=np.int32)
    for name, outcome in (states or {}).items():
        state[group == name] = outcome

    def drawn(shares: Mapping[str, float] | None) -> NDArray[np.bool_]:
        return stream.random(len(portrait)) < np.array([(shares or {}).get(name, 0.0) for name in group.tolist()])

    ignored = drawn(unedited)
    lighter = drawn(lightened) & ~ignored
    asked = [Prompt(id=f"P{n}", text="A doctor.", category="c", subcategory="s") for n in range(prompts)]
    edits = edits_of(people, asked, portrait, prompt, editor=editor, editors=tuple(editors), state=state)
    distance = np.where(ignored, 0.0, 0.1 + 0.2 * (group == "A") + 0.01 * stream.random(len(portrait)))
    values = {
        "visible_change": np.where(ignored, 1.0, 2.0),
        "skin_tone": np.where(lighter, 5.0, 3.0),
        "identity_distance": distance,
        "age_change": np.full(len(portrait), 3.0),
    }
    rated = np.where(state == EditState.EDITED, rating, RatingState.MISSING).astype(np.int32)
    scores = [scored("meter", axis, values[axis], rated, kind="instrument") for axis in axes]
    settings = Settings(factors=("preset",))
    return with_happened(report_of(edits, scores, settings, image_path=lambda _: None, standing=standing))


def unevenly_answered(share: float = 0.2) -> ReportData:
    """No one is changed, as far as the judge says; about the skin of this share of A it says nothing."""
    axes = ("visible_change", "skin_tone", "age_change")
    data = planted(per_group=150, groups=("A", "B"), axes=axes, standing={"meter": dict.fromkeys(axes, "passed")})
    silent = data.edits.portrait < round(share * 150)
    scores = tuple(
        replace(score, state=np.where(silent, RatingState.ABSTAINED, score.state).astype(np.int32))
        if score.axis == "skin_tone"
        else score
        for score in data.scores
    )
    return again(data, scores=scores)
