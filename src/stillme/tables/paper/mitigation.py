"""Tables 5, 21 and 26: what a feature prompt changes, for each group."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from stillme.estimates import Disparity, PairedEffect, Scores, paired_effects
from stillme.tables.paper.source import BASELINE, FEATURE, Source, editors_of, rated
from stillme.tables.paper.table import Absent, Cell, PaperTable, Row, Words, number
from stillme.types import Interval

_CHANGES = ("race_change", "gender_change", "skin_tone")
_SPREAD = "Largest − smallest"
_EQUAL = (
    "At equal baseline: the change that a group would show if its baseline were everyone's; groups that drift most "
    "have most to gain."
)

Effects = Sequence[PairedEffect | Disparity]


def table_5(source: Source) -> PaperTable:
    """The paired change of race change by group, with what it says."""
    found = _effects(source, ("race_change",))
    rows: list[Row] = []
    for editor in editors_of(source.in_arm(FEATURE).edits):
        for level in _levels(source):
            effect = _of_group(found, editor, "race_change", level)
            cells = (_change(source, effect), _levelled(source, effect), _reading(effect))
            rows.append(Row(label=level, cells=cells, section=editor))
        spread = _spread(found, editor, "race_change")
        cells = (_change(source, spread), Words(text=""), _spread_reading(spread))
        rows.append(Row(label=_SPREAD, cells=cells, section=editor, summary=True))
    return PaperTable(
        number=5,
        caption="Change of the race-change score by a feature prompt: feature less baseline on the same requests "
        "(negative is less change).",
        head=(source.factor, "Δ Race Change (↓)", "Δ at equal baseline", "Interpretation"),
        rows=tuple(rows),
        notes=(*source.credit(("race_change",)), _EQUAL),
    )


def table_21(source: Source) -> PaperTable:
    """The paired change of race, gender and skin tone by group."""
    found = _effects(source, _CHANGES)
    rows: list[Row] = []
    for editor in editors_of(source.in_arm(FEATURE).edits):
        rows += [
            Row(
                label=level,
                cells=tuple(_change(source, _of_group(found, editor, axis, level), axis) for axis in _CHANGES),
                section=editor,
            )
            for level in _levels(source)
        ]
        spread = tuple(_change(source, _spread(found, editor, axis), axis) for axis in _CHANGES)
        rows.append(Row(label=_SPREAD, cells=spread, section=editor, summary=True))
    return PaperTable(
        number=21,
        caption="Change by a feature prompt: feature less baseline on the same requests. Race and gender: negative is "
        "less change. Skin tone: negative is less light.",
        head=(source.factor, "Δ Race", "Δ Gender", "Δ Skin"),
        rows=tuple(rows),
        notes=source.credit(_CHANGES),
    )


def table_26(source: Source) -> PaperTable:
    """Race change before and after, by group."""
    found = _effects(source, ("race_change",))
    score = source.score("race_change")
    both = source.where(_paired(source, score)) if score else source
    means = [each for each in both.estimates(("race_change",), by_group=True) if each.quantity == "race_change"]

    def mean(editor: str, arm: str, level: str) -> Cell:
        wanted = (editor, arm, "group", level)
        return both.cell(
            means, "race_change", "score", lambda each: (each.editor, each.arm, each.scope, each.group) == wanted
        )

    rows = [
        Row(
            label=level,
            cells=(
                mean(editor, BASELINE, level),
                mean(editor, FEATURE, level),
                _change(source, _of_group(found, editor, "race_change", level)),
            ),
            section=editor,
        )
        for editor in editors_of(source.in_arm(FEATURE).edits)
        for level in _levels(source)
    ]
    return PaperTable(
        number=26,
        caption="Race-change scores (1–5) without and with a feature prompt, over the same requests.",
        head=(source.factor, "Baseline Drift", "w/ Feature", "Δ"),
        rows=tuple(rows),
        notes=source.credit(("race_change",)),
    )


def _effects(source: Source, axes: Sequence[str]) -> Effects:
    scores = [score for axis in axes if (score := source.score(axis))]
    reference = {name: level for name, level in source.settings.reference.items() if name == source.factor}
    settings = replace(source.settings, factors=(source.factor,), reference=reference)
    return paired_effects(source.edits, scores, settings, quantities=axes)


def _levels(source: Source) -> tuple[str, ...]:
    return source.edits.levels(source.factor)[0]


def _of_group(found: Effects, editor: str, axis: str, level: str) -> PairedEffect | None:
    wanted = (editor, axis, "group", level)
    for each in found:
        if isinstance(each, PairedEffect) and (each.editor, each.quantity, each.scope, each.group) == wanted:
            return each
    return None


def _spread(found: Effects, editor: str, axis: str) -> Disparity | None:
    for each in found:
        if isinstance(each, Disparity) and (each.editor, each.quantity) == (editor, axis):
            return each
    return None


def _change(source: Source, found: PairedEffect | Disparity | None, axis: str = "race_change") -> Cell:
    if found is None:
        return _nothing(source, axis)
    return number(found.outcome, "change", found.portraits, found.edits)


def _levelled(source: Source, found: PairedEffect | None) -> Cell:
    if found is None:
        return _nothing(source, "race_change")
    return number(found.at_equal_baseline, "change", found.portraits, found.edits)


def _nothing(source: Source, axis: str) -> Cell:
    if source.score(axis) is None:
        return Absent(reason=source.unanswered(axis))
    return Absent(reason="no request of this group was rated under both arms")


def _reading(found: PairedEffect | None) -> Cell:
    if found is None or not isinstance(found.outcome, Interval):
        return Words(text="")
    if found.outcome.high < 0:
        return Words(text="less change")
    return Words(text="more change" if found.outcome.low > 0 else "no change shown")


def _spread_reading(found: Disparity | None) -> Cell:
    if found is None or found.null is None:
        return Words(text="")
    return Words(text=f"all groups alike: p = {found.null.omnibus:.3f}")


def _paired(source: Source, score: Scores) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    """Rows whose request was rated under both arms."""
    edits = source.edits
    none = np.zeros(len(edits), dtype=np.int32)
    what = np.stack(
        [
            edits.portrait,
            edits.prompt,
            edits.editor,
            none if edits.second is None else edits.second,
            none if edits.seed is None else edits.seed,
        ]
    )
    request = np.unique(what, axis=1, return_inverse=True)[1].reshape(-1)
    has = rated(score, edits)
    held = [np.isin(request, request[has & (edits.arm == edits.arms.index(arm))]) for arm in (BASELINE, FEATURE)]
    in_either = np.isin(edits.arm, [edits.arms.index(arm) for arm in (BASELINE, FEATURE)])
    return has & held[0] & held[1] & in_either
