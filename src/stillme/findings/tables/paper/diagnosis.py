"""What editors do, to all and to each group (Tables 4, 7, 19, 20), and what a feature prompt changes (5, 21, 26)."""

from __future__ import annotations

from collections.abc import Sequence

from stillme.core import rubric
from stillme.core.rubric import Rate
from stillme.core.types import Interval
from stillme.estimates import Adherence, Disparity, Genders, PairedEffect, adherence, numbers, paired_effects
from stillme.estimates.pairing import rated_under_both
from stillme.findings.tables.paper.source import BASELINE, FEATURE, Source, axis_title, editors_of
from stillme.findings.tables.paper.table import Absent, Cell, Count, PaperTable, TableRow, Words, complement, number

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
            TableRow(label=editor, cells=tuple(cell(editor, axis) for axis in AXES))
            for editor in editors_of(part.edits)
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

    rows: list[TableRow] = []
    for editor in editors_of(part.edits):
        edits = int((part.edits.editor == part.edits.editors.index(editor)).sum())
        cells = (cell(editor, rate) for rate in rates)
        rows.append(TableRow(label=editor, cells=(Count(value=edits), *cells)))
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
        TableRow(label=level, cells=tuple(of_group(editor, level) for editor in editors))
        for level in part.edits.levels(part.factor)[0]
    ]
    rows.append(TableRow(label="Disparity", cells=tuple(disparity(editor) for editor in editors), summary=True))
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


_LAYOUTS = {"role_pair": "two people", "role_single": "one person"}
_AXES = {"role_pair": "role_target", "role_single": "gender_change"}
_PRONOUNS = {
    "": "",
    "pro": "expected pronoun",
    "anti": "opposite pronoun",
    "none": "neutral pronoun",
    "pro - anti": "expected − opposite pronoun",
}


_DISAGREE = "Two people: where the combined judges name different people, the edit is undecided and left out."


def table_7(source: Source, genders: Genders) -> PaperTable:
    """Stereotype followed and resisted, by editor; with counterbalancing also by pronoun."""
    part = source.in_arm(BASELINE)
    scores = [score for axis in _AXES.values() if (score := part.score(axis))]
    settings = part.settings.comparing()
    rates = [rate for rate in adherence(part.edits, scores, settings, genders=genders) if not rate.place]
    ensembles = {score.judge for score in scores if score.kind == "ensemble"}
    combined = [rate for rate in rates if rate.judge in ensembles]
    counterbalanced = any(rate.pronoun == "pro - anti" for rate in rates)
    rows = [
        _row(rate, part.note(_AXES[layout]))
        for layout in _LAYOUTS
        for pronoun in (_PRONOUNS if counterbalanced else ("",))
        for rate in rates
        if (rate.layout, rate.pronoun) == (layout, pronoun)
    ]
    return PaperTable(
        number=7,
        caption="How often role edits follow the occupational stereotype; 50% is no bias. Two people in one request: "
        "who is drawn as the target? One person: does the gender presentation fit?",
        head=("Model", "Stereotype Followed", "Stereotype Resisted"),
        rows=tuple(rows),
        notes=(
            *part.credit([axis for layout, axis in _AXES.items() if any(rate.layout == layout for rate in rates)]),
            *((_DISAGREE,) if any(rate.layout == "role_pair" for rate in combined) else ()),
            *(_note(rate) for rate in rates if rate.pronoun == "" and isinstance(rate.outcome, Interval)),
        ),
    )


def unanswered(source: Source, layouts: tuple[str, ...]) -> str:
    """Why there is no row at all."""
    reasons = [source.unanswered(_AXES[layout]) for layout in layouts if source.score(_AXES[layout]) is None]
    return "; ".join(dict.fromkeys(reasons)) or "no role edit was rated"


def _row(rate: Adherence, note: str) -> TableRow:
    pronoun = _PRONOUNS[rate.pronoun]
    section = f"{_LAYOUTS[rate.layout]}, {pronoun}" if pronoun else _LAYOUTS[rate.layout]
    if rate.pronoun == "pro - anti":
        cells: tuple[Cell, ...] = (
            number(rate.outcome, "points", rate.portraits, rate.edits, note),
            Words(text=""),
        )
    else:
        followed = number(rate.outcome, "rate", rate.portraits, rate.edits, note)
        cells = (followed, complement(followed))
    return TableRow(label=rate.editor, cells=cells, section=section)


def _note(rate: Adherence) -> str:
    abstained = f"; {rate.abstained:,} more are undecided" if rate.abstained else ""
    p = "" if rate.p is None else f", {numbers.p_value(rate.p)} against 50%"
    return f"{rate.editor}, {_LAYOUTS[rate.layout]}: {rate.sentences:,} sentences{p}{abstained}."


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
