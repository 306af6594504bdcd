"""Tables 4, 19 and 20: what editors do, to all and to each group."""

from __future__ import annotations

from stillme.core import rubric
from stillme.core.rubric import Rate
from stillme.estimates import Disparity, numbers
from stillme.findings.tables.paper.source import BASELINE, Source, axis_title, editors_of
from stillme.findings.tables.paper.table import Cell, Count, PaperTable, Row

AXES = ("edit_success", "skin_tone", "race_change", "gender_change", "age_change")
_OF_SUCCESS = ("success", "soft_erasure")
_TITLES = ("Edit Succ.", "Soft Eras.", "Race Change")


def table_4(source: Source) -> PaperTable:
    """Mean scores by editor."""
    part = source.in_arm(BASELINE)
    estimates = part.estimates(AXES, by_group=False)

    def cell(editor: str, axis: str) -> Cell:
        return part.cell(
            estimates, axis, "score", lambda estimate: (estimate.editor, estimate.quantity) == (editor, axis)
        )

    return PaperTable(
        number=4,
        caption="Mean scores by editor, 1–5. Edit success: 5 is fully successful. Skin tone and age: 3 is unchanged, "
        "more is lighter or older. Race and gender: 1 is preserved.",
        head=("Model", *(axis_title(axis) for axis in AXES)),
        rows=tuple(
            Row(label=editor, cells=tuple(cell(editor, axis) for axis in AXES)) for editor in editors_of(part.edits)
        ),
        notes=part.credit(AXES),
    )


def table_19(source: Source) -> PaperTable:
    """Success, soft erasure and race change by editor."""
    part = source.in_arm(BASELINE)
    rates = [*(rubric.load().rates[name] for name in _OF_SUCCESS), part.race_rate]
    axes = dict.fromkeys(rate.axis for rate in rates)
    estimates = [*part.estimates(("edit_success",), by_group=False), *part.race_estimates(by_group=False)]

    def cell(editor: str, rate: Rate) -> Cell:
        return part.cell(
            estimates, rate.axis, "rate", lambda estimate: (estimate.editor, estimate.quantity) == (editor, rate.name)
        )

    rows: list[Row] = []
    for editor in editors_of(part.edits):
        edits = int((part.edits.editor == part.edits.editors.index(editor)).sum())
        cells = (cell(editor, rate) for rate in rates)
        rows.append(Row(label=editor, cells=(Count(value=edits), *cells)))
    return PaperTable(
        number=19,
        caption="Soft erasure and race change by editor. Edit success: score of 4 or more; soft erasure: 2 or less; "
        f"race change: {part.race_rate.at_least:g} or more.",
        head=("Model", "N", *_TITLES),
        rows=tuple(rows),
        notes=(
            *part.credit(axes),
            "N counts requests; refused and failed ones are not part of the rates.",
        ),
    )


def table_20(source: Source) -> PaperTable:
    """Race change by group and editor, with the disparity."""
    part = source.in_arm(BASELINE)
    estimates = part.race_estimates(by_group=True)
    editors = editors_of(part.edits)

    def of_group(editor: str, level: str) -> Cell:
        return part.cell(
            estimates,
            "race_change",
            "rate",
            lambda estimate: (estimate.editor, estimate.scope, estimate.group) == (editor, "group", level),
        )

    def disparity(editor: str) -> Cell:
        return part.cell(
            estimates,
            "race_change",
            "points",
            lambda estimate: (estimate.editor, estimate.scope) == (editor, "disparity"),
        )

    rows = [
        Row(label=level, cells=tuple(of_group(editor, level) for editor in editors))
        for level in part.edits.levels(part.factor)[0]
    ]
    rows.append(Row(label="Disparity", cells=tuple(disparity(editor) for editor in editors), summary=True))
    return PaperTable(
        number=20,
        caption=f"Race change (score of {part.race_rate.at_least:g} or more) by {part.factor} and editor. "
        "Disparity: max − min.",
        head=(part.factor, *editors),
        rows=tuple(rows),
        notes=(
            *part.credit(("race_change",)),
            *(
                _null_note(estimate, part.settings.confidence)
                for estimate in estimates
                if isinstance(estimate, Disparity) and estimate.null
            ),
        ),
    )


def _null_note(disparity: Disparity, confidence: float) -> str:
    assert disparity.null is not None
    return (
        f"{disparity.editor}: with group labels shuffled over portraits, {confidence:.0%} of max − min are below "
        f"{numbers.points(disparity.null.high)}; permutation test of all groups: "
        f"{numbers.p_value(disparity.null.omnibus)}."
    )
