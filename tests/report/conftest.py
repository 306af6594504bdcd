from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from stillme.core.images import encode_png
from stillme.core.types import ImageFile, Interval, PlantedGap, Portrait, Prompt
from stillme.estimates import EditState, RatingState, Settings
from stillme.report import Description, ReportData
from tests.records import edits_of
from tests.report.columns import paper_like
from tests.report.planted import again, report_of, scored

EDITORS = ("gentle", "harsh")
PROMPTS = 3


@pytest.fixture(scope="session")
def pictures(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Coloured squares that stand in for faces, named by number."""
    folder = tmp_path_factory.mktemp("pictures")
    for number in range(20):
        colour = np.array([70 + 9 * number, 120, 200 - 8 * number], dtype=np.uint8)
        (folder / f"{number}.png").write_bytes(encode_png(np.broadcast_to(colour, (96, 96, 3)).copy()))
    return folder


@pytest.fixture(scope="session")
def paper(pictures: Path) -> ReportData:
    """The paper's audit in small: three editors, two judges and their mean, two arms, people for every tenth edit."""
    files = sorted(pictures.iterdir())
    settings = Settings(factors=("race", "gender"))
    return paper_like(files, prompt_count=3, arms=("baseline", "feature"), with_people=True, settings=settings)


@pytest.fixture(scope="session")
def make_data(pictures: Path) -> Callable[..., ReportData]:
    """A report's data from random numbers; `harsh` lightens group A and erases edits of group B."""

    def build(
        *,
        title: str = "Two editors",
        per_group: int = 9,
        group_names: tuple[str, ...] = ("A", "B", "C"),
        prompt_text: str = "Show the person as a doctor.",
        origin: str = "self-described",
        planted: bool = False,
        gap: float = 2.0,
    ) -> ReportData:
        stream = np.random.default_rng(7)
        people = tuple(
            Portrait(
                id=f"{group}-{number:02d}",
                image=ImageFile(path=pictures / f"{number % 20}.png", sha256=f"{number}"),
                attributes={"race": group, "gender": "fm"[number % 2]},
                label_origin=origin,
                licence="CC-BY-4.0",
            )
            for group in group_names
            for number in range(per_group)
        )
        size = len(people) * PROMPTS
        shape = (2, len(people), PROMPTS)
        editor, portrait, prompt = (index.ravel().astype(np.int32) for index in np.indices(shape))
        prompts = tuple(
            Prompt(id=f"P{n}", text=f"{prompt_text} ({n})", category="c", subcategory="s") for n in range(PROMPTS)
        )
        state = np.where(stream.random(2 * size) < 0.04, EditState.REFUSED, EditState.EDITED).astype(np.int32)
        image = [str(place % 20) if state[place] == EditState.EDITED else "" for place in range(2 * size)]
        edits = edits_of(people, prompts, portrait, prompt, editor=editor, state=state, image=image, editors=EDITORS)
        hit = (editor == 1) & (portrait < per_group)
        tone = np.clip(np.round(3 + gap * 0.6 * hit + stream.normal(0, 0.6, 2 * size)), 1, 5)
        erased = (editor == 1) & (portrait >= per_group) & (portrait < 2 * per_group)
        success = np.clip(np.round(4.4 - gap * erased + stream.normal(0, 0.7, 2 * size)), 1, 5)
        rating = np.where(state == EditState.EDITED, RatingState.RATED, RatingState.MISSING).astype(np.int32)
        rating[stream.random(2 * size) < 0.03] = RatingState.ABSTAINED
        values = {"edit_success": success, "skin_tone": tone}
        return report_of(
            edits,
            [scored("watcher", axis, value, rating) for axis, value in values.items()],
            Settings(factors=("race", "gender")),
            title=title,
            image_path=lambda sha256: pictures / f"{sha256}.png",
            editors=tuple(Description(name=name, text=f"The {name} one.") for name in EDITORS),
            judges=(Description(name="watcher", text="Watches."),),
            planted=_planted() if planted else (),
        )

    return build


@pytest.fixture(scope="session")
def data(make_data: Callable[..., ReportData]) -> ReportData:
    return make_data()


@pytest.fixture(scope="session")
def empty(data: ReportData) -> ReportData:
    """An audit whose run has not begun."""
    nothing = np.zeros(len(data.edits), dtype=np.int32)
    edits = replace(data.edits, state=nothing, image=[""] * len(nothing))
    scores = tuple(replace(score, value=score.value * np.nan, state=nothing) for score in data.scores)
    return again(data, edits=edits, scores=scores)


def _planted() -> tuple[PlantedGap, ...]:
    def around(value: float) -> Interval:
        return Interval(value=value, low=value - 0.1, high=value + 0.1, confidence=0.95, method="by hand")

    return tuple(
        PlantedGap(
            quantity=quantity,
            editor="harsh",
            factor="race",
            group="A",
            planted=0.4,
            realised=around(0.41),
            recovered=around(recovered),
        )
        for quantity, recovered in (("skin_lightened", 0.38), ("soft_erasure", 0.1))
    )
