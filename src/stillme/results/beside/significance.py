"""The paper's tests on a run's edits: as the paper does them, and with the portrait as the unit."""

from __future__ import annotations

from stillme.estimates import Disparity, PairedEffect, RowTest, contrasts, estimate, paired_effects
from stillme.estimates.classical import paired_row_tests, row_tests
from stillme.paper import Published
from stillme.results.beside.part import Part
from stillme.results.beside.records import TestBeside


def beside_test(part: Part, number: Published, editor: str) -> TestBeside:
    """All editors together, as the paper tests. `editor` names them."""
    name = number.statistic.rpartition(" ")[0]
    test, portrait_p = _paired(part, number) if name == "Wilcoxon signed-rank" else _between(part, number, name)
    return TestBeside(
        published=number,
        editor=editor,
        judge=part.score(number).judge,
        statistic=test.statistic if test else None,
        p=test.p if test else None,
        portrait_p=portrait_p,
        reason=test.reason if test else "no group of two was rated",
        portraits=test.portraits if test else 0,
        edits=test.edits if test else 0,
    )


def _paired(part: Part, number: Published) -> tuple[RowTest | None, float | None]:
    scores, axes = [part.score(number)], [number.quantity]
    tests = paired_row_tests(part.edits, scores, quantities=axes, pool=True)
    effects = paired_effects(part.edits, scores, part.settings(by_group=False), quantities=axes, pool=True)
    p = next((effect.p for effect in effects if isinstance(effect, PairedEffect)), None)
    return next(iter(tests), None), p


def _between(part: Part, number: Published, name: str) -> tuple[RowTest | None, float | None]:
    baseline = part.in_arm(number.arm)
    edits, scores, settings = baseline.edits.pooled(), [baseline.score(number)], part.settings(by_group=True)
    level = part.levels.get(number.group, "")
    tests = row_tests(edits, scores, settings, quantities=[number.quantity])
    against = f"{level} - " if level else ""
    test = next((row for row in tests if row.test == name and row.group.startswith(against)), None)
    if level:
        rows = contrasts(
            edits, scores, settings, against=("rest",), measures=("difference",), quantities=[number.quantity]
        )
        return test, next((row.permutation.p for row in rows if row.level == level and row.permutation), None)
    gaps = (row for row in estimate(edits, scores, settings) if isinstance(row, Disparity))
    return test, next((gap.null.omnibus for gap in gaps if gap.quantity == number.quantity and gap.null), None)
