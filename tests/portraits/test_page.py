"""The page on curation says what the data files say."""

from __future__ import annotations

import math
from pathlib import Path

from stillme.curation.measuring import CriterionMeasure, load_criteria
from stillme.curation.versions import METHODS

PAGE = (Path(__file__).parents[2] / "docs" / "curation.md").read_text()


def limits(measure: CriterionMeasure) -> str:
    least, most = (f"{value:g}".replace("-", "−") for value in (measure.least, measure.most))
    words = f"{least} to {most}" if math.isfinite(measure.least) and math.isfinite(measure.most) else ""
    words = words or (f"at least {least}" if math.isfinite(measure.least) else f"at most {most}")
    return f"{words} {measure.unit}".strip()


def test_every_measure_stands_in_the_table_with_its_range():
    for criterion in load_criteria().criteria:
        assert f"| {criterion.title} | " in PAGE
        for measure in criterion.measures:
            assert f"| {measure.title} | {limits(measure)} |" in PAGE


def test_the_limits_of_likeness_and_the_crops_are_named():
    limits = load_criteria().duplicates
    assert f"at most {limits['picture']:g} of 64 bits" in PAGE
    assert f"\n{limits['person']}, are flagged" in PAGE
    assert all(f"`{name}`" in PAGE or f"`--crop {name}`" in PAGE for name in METHODS)
