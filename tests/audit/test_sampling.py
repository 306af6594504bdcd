"""What is drawn from the grid is balanced, drawn by seed alone, and never more than there is."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from stillme.audit.grid import Sample, draw, spread
from stillme.core import prompts
from stillme.core.types import ImageFile, Portrait, Prompt
from stillme.portraits import portraits as embedded

EDITORS = ("flux", "step1x", "qwen")
FACTORS = ("preset", "gender_presentation", "age_band")


def people(count: int) -> tuple[Portrait, ...]:
    file = ImageFile(path=Path("none"), sha256="0")
    return tuple(
        Portrait(
            id=f"p{i}", image=file, attributes={"race": "ABC"[i % 3], "sex": "fm"[i % 2]}, label_origin="", licence=""
        )
        for i in range(count)
    )


def asked(count: int) -> tuple[Prompt, ...]:
    return tuple(Prompt(id=f"q{i}", text="x", category="c", subcategory="s") for i in range(count))


def cells(sample: Sample) -> list[tuple[str, str, str]]:
    return [(editor, *cell) for editor, chosen in sample.chosen.items() for cell in chosen]


def test_the_papers_sample_has_25_per_prompt_balanced_over_editors_and_the_84_portraits() -> None:
    drawn = cells(draw(embedded(), prompts.diagnostic(), EDITORS, factors=FACTORS, size=500, seed=42))
    assert len(drawn) == 500
    assert set(Counter(prompt for _, _, prompt in drawn).values()) == {25}
    assert set(Counter(editor for editor, _, _ in drawn).values()) <= {166, 167}
    assert set(Counter(portrait for _, portrait, _ in drawn).values()) == {5, 6}


def test_every_prompt_meets_every_group() -> None:
    people_by_id = {each.id: each for each in embedded()}
    drawn = cells(draw(embedded(), prompts.diagnostic(), EDITORS, factors=FACTORS, size=500, seed=7))
    for prompt in prompts.diagnostic():
        met = Counter(people_by_id[who].attributes["preset"] for _, who, what in drawn if what == prompt.id)
        assert len(met) == 7
        assert max(met.values()) - min(met.values()) <= 2


def test_another_seed_draws_others() -> None:
    one, same, other = (
        draw(embedded(), prompts.diagnostic(), EDITORS, factors=FACTORS, size=100, seed=seed) for seed in (1, 1, 2)
    )
    assert one == same != other


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 13), st.integers(1, 7), st.integers(1, 4), st.integers(1, 400), st.integers(0, 3), st.booleans())
def test_any_draw_is_balanced_to_within_one_and_has_no_cell_twice(
    faces: int, questions: int, editors: int, size: int, seed: int, grouped: bool
) -> None:
    names = [f"e{i}" for i in range(editors)]
    factors = ("race", "sex") if grouped else ()
    drawn = cells(draw(people(faces), asked(questions), names, factors=factors, size=size, seed=seed))
    total = min(size, faces * questions * editors)
    assert len(drawn) == len(set(drawn)) == total
    for column, levels in ((1, faces), (2, questions)):
        met = Counter(cell[column] for cell in drawn)
        counts = [*met.values(), *([0] * (levels - len(met)))]
        assert max(counts) - min(counts) <= 1


@given(st.integers(1, 60))
def test_spreading_keeps_everyone_once(count: int) -> None:
    import numpy as np

    line = spread(people(count), ("race", "sex"), np.random.default_rng(0))
    assert sorted(each.id for each in line) == sorted(each.id for each in people(count))
