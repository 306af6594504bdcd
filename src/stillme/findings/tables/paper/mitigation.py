"""Tables 5, 21 and 26: what a feature prompt changes, for each group."""

from __future__ import annotations

from collections.abc import Sequence

from stillme.core.types import Interval
from stillme.estimates import Disparity, PairedEffect, numbers, paired_effects
from stillme.estimates.pairing import rated_under_both
from stillme.findings.tables.paper.source import BASELINE, FEATURE, Source, editors_of
from stillme.findings.tables.paper.table import Absent, Cell, PaperTable, TableRow, Words, number

_CHANGES = ("race_change", "gender_change", "skin_tone")
_SPREAD = "Largest − smallest"
_EQUAL = (
    "At equal baseline: the change that a group would show if its baseline were everyone's. Groups that drift most "
    "can improve most."
)

Effects = Sequence[PairedEffect | Disparity]


def table_5(source: Source) -> PaperTable:
    """The paired change of race change by group, with what it says."""
    effects = _effects(source, ("race_change",))
    rows: list[TableRow] = []
    for editor in editors_of(source.in_arm(FEATURE).edits):
        for level in _levels(source):
            effect = _of_group(effects, editor, "race_change", level)
            cells = (_change(source, effect), _at_equal_baseline(source, effect), _interpretation(effect))
            rows.append(TableRow(label=level, cells=cells, section=editor))
        spread = _spread(effects, editor, "race_change")
        cells = (_change(source, spread), Words(text=""), _spread_interpretation(spread))
        rows.append(TableRow(label=_SPREAD, cells=cells, section=editor, summary=True))
    return PaperTable(
        number=5,
        caption="Change of the race-change score by a feature prompt: feature minus baseline on the same requests "
        "(negative is less change).",
        head=(source.factor, "Δ Race Change (↓)", "Δ at equal baseline", "Interpretation"),
        rows=tuple(rows),
        notes=(*source.credit(("race_change",)), _EQUAL),
    )


def table_21(source: Source) -> PaperTable:
    """The paired change of race, gender and skin tone by group."""
    effects = _effects(source, _CHANGES)
    rows: list[TableRow] = []
    for editor in editors_of(source.in_arm(FEATURE).edits):
        rows += [
            TableRow(
                label=level,
                cells=tuple(_change(source, _of_group(effects, editor, axis, level), axis) for axis in _CHANGES),
                section=editor,
            )
            for level in _levels(source)
        ]
        spread = tuple(_change(source, _spread(effects, editor, axis), axis) for axis in _CHANGES)
        rows.append(TableRow(label=_SPREAD, cells=spread, section=editor, summary=True))
    return PaperTable(
        number=21,
        caption="Change by a feature prompt: feature minus baseline on the same requests. Race and gender: negative is "
        "less change. Skin tone: negative is less light.",
        head=(source.factor, "Δ Race", "Δ Gender", "Δ Skin"),
        rows=tuple(rows),
        notes=source.credit(_CHANGES),
    )


def table_26(source: Source) -> PaperTable:
    """Race change before and after, by group."""
    effects = _effects(source, ("race_change",))
    score = source.score("race_change")
    both = source.where(rated_under_both(source.edits, score)) if score else source
    means = [
        estimate for estimate in both.estimates(("race_change",), by_group=True) if estimate.quantity == "race_change"
    ]

    def mean(editor: str, arm: str, level: str) -> Cell:
        wanted = (editor, arm, "group", level)
        return both.cell(
            means,
            "race_change",
            "score",
            lambda estimate: (estimate.editor, estimate.arm, estimate.scope, estimate.group) == wanted,
        )

    rows = [
        TableRow(
            label=level,
            cells=(
                mean(editor, BASELINE, level),
                mean(editor, FEATURE, level),
                _change(source, _of_group(effects, editor, "race_change", level)),
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
    settings = source.settings.comparing(source.factor, reference=reference)
    return paired_effects(source.edits, scores, settings, quantities=axes)


def _levels(source: Source) -> tuple[str, ...]:
    return source.edits.levels(source.factor)[0]


def _of_group(effects: Effects, editor: str, axis: str, level: str) -> PairedEffect | None:
    wanted = (editor, axis, "group", level)
    for effect in effects:
        if isinstance(effect, PairedEffect) and (effect.editor, effect.quantity, effect.scope, effect.group) == wanted:
            return effect
    return None


def _spread(effects: Effects, editor: str, axis: str) -> Disparity | None:
    for effect in effects:
        if isinstance(effect, Disparity) and (effect.editor, effect.quantity) == (editor, axis):
            return effect
    return None


def _change(source: Source, effect: PairedEffect | Disparity | None, axis: str = "race_change") -> Cell:
    if effect is None:
        return _absent(source, axis)
    return number(effect.outcome, "change", effect.portraits, effect.edits, source.note(axis))


def _at_equal_baseline(source: Source, effect: PairedEffect | None) -> Cell:
    if effect is None:
        return _absent(source, "race_change")
    note = source.note("race_change")
    return number(effect.at_equal_baseline, "change", effect.portraits, effect.edits, note)


def _absent(source: Source, axis: str) -> Cell:
    if source.score(axis) is None:
        return Absent(reason=source.unanswered(axis))
    return Absent(reason="no request of this group was rated under both arms")


def _interpretation(effect: PairedEffect | None) -> Cell:
    if effect is None or not isinstance(effect.outcome, Interval):
        return Words(text="")
    if effect.outcome.high < 0:
        return Words(text="less change")
    return Words(text="more change" if effect.outcome.low > 0 else "inconclusive")


def _spread_interpretation(spread: Disparity | None) -> Cell:
    if spread is None or spread.null is None:
        return Words(text="")
    return Words(text=f"test of equal change in all groups: {numbers.p_value(spread.null.omnibus)}")
