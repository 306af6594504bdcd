"""What is drawn from the grid is balanced, drawn by seed alone, and never more than there is."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stillme.audit.grid import Sample, draw
from stillme.core import prompts
from stillme.core.types import Portrait
from stillme.portraits import portraits as embedded
from tests.records import portrait, prompt

EDITORS = ("flux", "step1x", "qwen")
FACTORS = ("preset", "gender_presentation", "age_band")


def people(count: int) -> tuple[Portrait, ...]:
    return tuple(portrait(f"p{i}", race="ABC"[i % 3], sex="fm"[i % 2]) for i in range(count))


def cells(sample: Sample) -> list[tuple[str, str, str]]:
    return [(editor, *cell) for editor, chosen in sample.chosen.items() for cell in chosen]


@pytest.mark.parametrize("seed", [7, 42])
def test_the_papers_sample_has_25_per_prompt_balanced_over_editors_groups_and_the_84_portraits(seed: int) -> None:
    drawn = cells(draw(embedded(), prompts.diagnostic(), EDITORS, factors=FACTORS, size=500, seed=seed))
    assert len(drawn) == 500
    assert set(Counter(editor for editor, _, _ in drawn).values()) <= {166, 167}
    assert set(Counter(portrait for _, portrait, _ in drawn).values()) == {5, 6}
    presets = {each.id: each.attributes["preset"] for each in embedded()}
    for asked in prompts.diagnostic():
        met = Counter(presets[who] for _, who, what in drawn if what == asked.id)
        assert (met.total(), len(met)) == (25, 7)
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
    drawn = cells(
        draw(people(faces), [prompt(f"q{i}") for i in range(questions)], names, factors=factors, size=size, seed=seed)
    )
    total = min(size, faces * questions * editors)
    assert len(drawn) == len(set(drawn)) == total
    for column, levels in ((1, faces), (2, questions)):
        met = Counter(cell[column] for cell in drawn)
        counts = [*met.values(), *([0] * (levels - len(met)))]
        assert max(counts) - min(counts) <= 1
