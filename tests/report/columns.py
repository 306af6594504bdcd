"""Columns like the paper's audit, of any size, from random numbers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from stillme.core import prompts
from stillme.core.types import ImageFile, Portrait, digest
from stillme.estimates import Edits, EditState, RatingState, Scores, Settings, intraclass_correlations, paired_effects
from stillme.estimates.agreement import agreement
from stillme.estimates.people import against_people
from stillme.report import Description, ReportData
from stillme.report.data import SpentBy
from stillme.runs.store.summaries import Spoken
from tests.records import edits_of
from tests.report.planted import report_of, scored

RACES = ("Black", "East Asian", "Indian", "Latino", "Middle Eastern", "Southeast Asian", "White")
EDITORS = ("flux", "qwen", "step1x")
JUDGES = ("gemini", "gpt")
AXES = ("edit_success", "skin_tone", "race_change", "gender_change", "age_change")
AGES = ("20s", "30s", "40s", "50s", "60s", "70s")
SETTINGS = Settings(factors=("race", "gender", "age"))

_DARKENING = {"Black": 0.9, "Indian": 1.0, "White": 0.0}


def paper_like(
    pictures: Sequence[Path],
    *,
    per_cell: int = 1,
    prompt_count: int = 20,
    arms: tuple[str, ...] = ("baseline",),
    settings: Settings = SETTINGS,
    place: Callable[[str], Path | None] | None = None,
    folder: Path | None = None,
    with_people: bool = False,
) -> ReportData:
    """7 races × 2 genders × 6 ages × `per_cell` portraits, three editors, two judges and their mean."""
    stream = np.random.default_rng(3)
    people = tuple(
        Portrait(
            id=f"{race}-{gender}-{age}-{number}",
            image=ImageFile(
                path=pictures[(7 * at + number) % len(pictures)], sha256=digest([race, gender, age, number])
            ),
            attributes={"race": race, "gender": gender, "age": age},
            label_origin="FairFace",
            licence="CC-BY-4.0",
        )
        for at, race in enumerate(RACES)
        for gender in ("female", "male")
        for age in AGES
        for number in range(per_cell)
    )
    asked = prompts.diagnostic()[:prompt_count]
    shape = (len(EDITORS), len(people), len(arms), len(asked))
    editor, portrait, arm, prompt = (index.ravel().astype(np.int32) for index in np.indices(shape))
    size = len(editor)
    state = np.full(size, EditState.EDITED, dtype=np.int32)
    state[stream.random(size) < 0.01] = EditState.REFUSED
    keys = [digest(["edit", row]) for row in range(size)]
    image = [digest(["picture", row]) * 2 if state[row] == EditState.EDITED else "" for row in range(size)]
    columns = {"keys": keys, "editor": editor, "arm": arm, "state": state, "image": image}
    edits = edits_of(people, asked, portrait, prompt, **columns, editors=EDITORS, arms=arms)
    scores = _scores(edits, stream)
    means = _means(scores)
    known = tuple(pictures)
    everything = (*scores, *means)
    mitigation = [
        effect
        for name in arms
        if name != "baseline"
        for effect in paired_effects(edits, means, settings, arm=name, quantities=("race_change", "edit_success"))
    ]
    return report_of(
        edits,
        everything,
        settings,
        title="Like the paper",
        image_path=place or (lambda sha256: known[int(sha256[:8], 16) % len(known)]),
        folder=folder,
        editors=tuple(Description(name=name, text="An editor.", use=f"{name} 1") for name in EDITORS),
        judges=tuple(Description(name=name, text="A judge.") for name in JUDGES),
        headline_judges=("ensemble (mean)",),
        mitigation=tuple(mitigation),
        agreement=tuple(agreement(edits, scores, settings)),
        against_people=tuple(
            agreement
            for judge, people in zip(means, _people(edits, means), strict=True)
            for agreement in against_people(edits, judge, people, settings, by_editor=False)
        )
        if with_people
        else (),
        intraclass_correlations=tuple(intraclass_correlations(edits, means, settings)),
        spending=tuple(
            SpentBy(kind="judge", name=name, calls=size, attempts=size + 7, seconds=0.8 * size, dollars=0.0031 * size)
            for name in JUDGES
        ),
        remarks=lambda asked: {
            key: [Spoken(edit=key, judge="gpt", axis="skin_tone", text="Cheeks are <b>lighter</b> than in the source.")]
            for key in asked
        },
    )


def _scores(edits: Edits, stream: np.random.Generator) -> list[Scores]:
    size = len(edits)
    races = np.array([_DARKENING.get(portrait.attributes["race"], 0.5) for portrait in edits.portraits])
    own = stream.normal(0, 0.35, len(edits.portraits))
    drift = (races + own)[edits.portrait] * np.where(edits.arm > 0, 0.35, 1.0)
    hard = stream.normal(0, 0.4, len(edits.prompts))[edits.prompt]
    truth: dict[str, NDArray[np.float64]] = {
        "edit_success": 4.3 - 0.3 * edits.editor - hard,
        "skin_tone": 3.1 + drift + 0.1 * edits.editor,
        "race_change": 1.0 + 1.1 * np.maximum(drift, 0),
        "gender_change": 1.0 + np.abs(stream.normal(0, 0.3, size)),
        "age_change": 3.0 + stream.normal(0, 0.3, size),
    }
    scores: list[Scores] = []
    for judge in JUDGES:
        for axis in AXES:
            value = np.clip(np.round(truth[axis] + stream.normal(0, 0.45, size)), 1, 5)
            rating = np.where(edits.state == EditState.EDITED, RatingState.RATED, RatingState.MISSING).astype(np.int32)
            rating[(stream.random(size) < 0.01) & (rating == RatingState.RATED)] = RatingState.ABSTAINED
            scores.append(scored(judge, axis, value, rating))
    return scores


def _people(edits: Edits, means: Sequence[Scores]) -> list[Scores]:
    """People who rated every tenth edit, and find the judges too mild on one group."""
    stream = np.random.default_rng(5)
    asked = np.arange(len(edits)) % 10 == 0
    hard = np.array([portrait.attributes["race"] == "Black" for portrait in edits.portraits])[edits.portrait]
    scores: list[Scores] = []
    for mean in means:
        value = np.clip(np.round(mean.value + 0.6 * hard + stream.normal(0, 0.5, len(edits))), 1, 5)
        rated = asked & (mean.state == RatingState.RATED)
        state = np.where(rated, RatingState.RATED, RatingState.MISSING).astype(np.int32)
        scores.append(scored("people", mean.axis, value, state))
    return scores


def _means(scores: Sequence[Scores]) -> list[Scores]:
    means: list[Scores] = []
    for axis in AXES:
        parts = [score for score in scores if score.axis == axis]
        values = np.stack([part.value for part in parts])
        count = (~np.isnan(values)).sum(axis=0)
        value = np.divide(np.nansum(values, axis=0), count, out=np.full(len(count), np.nan), where=count > 0)
        state = np.where(count > 0, RatingState.RATED, parts[0].state).astype(np.int32)
        means.append(replace(parts[0], judge="ensemble (mean)", value=value, state=state))
    return means
