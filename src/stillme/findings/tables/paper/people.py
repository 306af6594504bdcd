"""Tables 6, 17 and 18: models and people, who the raters were, and whose portraits they rated."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from stillme.estimates import PairedEffect, Scores, numbers, paired_effects
from stillme.estimates.people import AgainstPeople, against_people, mean_of
from stillme.findings.tables.paper.diagnosis import AXES
from stillme.findings.tables.paper.source import BASELINE, Source, axis_title, editors_of, rated
from stillme.findings.tables.paper.table import Absent, Cell, Count, PaperTable, Share, TableRow, number
from stillme.runs.participants import FEWEST, Participants

_PEOPLE_ONLY = "Where no model rates an axis, people's means are over all edits that they rated."
_ALL = "all editors"
_ROW_TESTS = (
    "The paper's Wilcoxon, Kruskal–Wallis and Mann–Whitney tests, which take every edit for independent, are in "
    "`stillme tables row_tests`."
)
_MODELS, _PEOPLE, _DIFFERENCE = _SECTIONS = ("models", "people", "models − people")


def table_6(source: Source) -> PaperTable:
    """Mean scores by editor, of models and of people, on the edits that both rated; and their difference."""
    # People are one side of this table already, whichever judge the others show.
    part = replace(source, judge="" if source.judge in source.people else source.judge).in_arm(BASELINE)
    columns = {axis: _column(part, axis) for axis in AXES}
    editors = editors_of(part.edits)
    return PaperTable(
        number=6,
        caption="Mean scores by editor on the edits that both models and people rated, 1–5; people's scores are "
        "averaged over raters first.",
        head=("Model", *(axis_title(axis) for axis in AXES)),
        rows=tuple(
            TableRow(label=editor, cells=tuple(columns[axis][section, editor] for axis in AXES), section=section)
            for section in _SECTIONS
            for editor in editors
        ),
        notes=(*part.credit(AXES), *((_PEOPLE_ONLY,) if any(_is_peoples(part, axis) for axis in AXES) else ())),
    )


def _is_peoples(part: Source, axis: str) -> bool:
    return part.score(axis) is None and bool(part.by_people(axis))


def _column(part: Source, axis: str) -> dict[tuple[str, str], Cell]:
    editors = editors_of(part.edits)
    model, raters = part.score(axis), part.by_people(axis)
    people = replace(mean_of(raters, _PEOPLE), kind="person") if raters else None
    reason = "no edit was rated by both"
    columns: dict[tuple[str, str], Cell] = {}
    if model is not None and people is not None:
        both = rated(model, part.edits) & rated(people, part.edits)
        columns = {
            **_means(part, model, both, _MODELS),
            **_means(part, people, both, _PEOPLE),
            **_differences(part, model, people),
        }
    elif people is not None:
        columns = _means(part, people, rated(people, part.edits), _PEOPLE)
        reason = f"no model rates {axis_title(axis)}"
    else:
        reason = part.unanswered(axis) if model is None else f"no person rated {axis_title(axis)}"
    empty = Absent(reason=reason)
    return {(section, editor): columns.get((section, editor), empty) for section in _SECTIONS for editor in editors}


def _means(
    part: Source, score: Scores, both: np.ndarray[tuple[int], np.dtype[np.bool_]], section: str
) -> dict[tuple[str, str], Cell]:
    alone = replace(part, scores=(score,), judge=score.judge, people=frozenset[str]()).where(both)
    return {
        (section, mean.editor): number(mean.outcome, "score", mean.portraits, mean.edits, alone.note(score.axis))
        for mean in alone.estimates((score.axis,), by_group=False)
        if mean.quantity == score.axis
    }


def _differences(part: Source, model: Scores, people: Scores) -> dict[tuple[str, str], Cell]:
    settings = part.settings.comparing()
    biases = against_people(part.edits, model, people, settings)
    editors = editors_of(part.edits)
    note = part.note(model.axis)

    def editor_of(bias: AgainstPeople) -> str:
        # With one editor there is only the number over all editors.
        return bias.editor or (editors[0] if len(part.edits.editors) == 1 else "")

    return {
        (_DIFFERENCE, editor_of(bias)): number(bias.outcome, "change", bias.portraits, bias.edits, note)
        for bias in biases
        if bias.measure == "bias" and bias.scope == "all" and editor_of(bias)
    }


def appendix_g6(source: Source) -> PaperTable:
    """What people see of a feature prompt, and how far models are from them: of all editors, and of each."""
    by_people = {
        axis: replace(mean_of(raters, _PEOPLE), kind="person") for axis in AXES if (raters := source.by_people(axis))
    }
    columns = (_ALL, *editors_of(source.edits))
    settings = source.settings.comparing()
    changes: dict[tuple[str, str], PairedEffect] = {}
    for pool in (True, False):
        effects = paired_effects(source.edits, list(by_people.values()), settings, quantities=list(AXES), pool=pool)
        for effect in effects:
            if isinstance(effect, PairedEffect) and effect.scope == "all":
                changes[effect.quantity, _ALL if pool else effect.editor] = effect
    biases = _biases(replace(source, judge="" if source.judge in source.people else source.judge), by_people)
    empty = Absent(reason="no edit was rated under both arms, or by both")

    sections: Mapping[str, Mapping[tuple[str, str], Cell]] = {
        "people: feature − baseline": {
            place: number(effect.outcome, "change", effect.portraits, effect.edits) for place, effect in changes.items()
        },
        f"{_DIFFERENCE}, baseline": biases,
    }
    return PaperTable(
        number=6,
        appendix="G.6",
        caption="What a feature prompt changes in people's mean scores, and how far models are from people, of all "
        "editors and of each.",
        head=("", *columns),
        rows=tuple(
            TableRow(
                label=axis_title(axis),
                cells=tuple(cells.get((axis, editor), empty) for editor in columns),
                section=section,
            )
            for section, cells in sections.items()
            for axis in by_people
        ),
        notes=(
            *(
                f"{axis_title(axis)}, {_ALL}: {numbers.p_value(effect.p)} (sign flips by portrait)."
                for (axis, editor), effect in changes.items()
                if editor == _ALL and effect.p is not None
            ),
            _ROW_TESTS,
        ),
    )


def _biases(source: Source, by_people: Mapping[str, Scores]) -> dict[tuple[str, str], Cell]:
    part = source.in_arm(BASELINE)
    rows = source.edits.arm == source.edits.arms.index(BASELINE)
    cells: dict[tuple[str, str], Cell] = {}
    for axis, people in by_people.items():
        if (model := part.score(axis)) is None:
            continue
        for bias in against_people(part.edits, model, people.where(rows), part.settings.comparing()):
            if bias.measure == "bias" and bias.scope == "all":
                cell = number(bias.outcome, "change", bias.portraits, bias.edits, part.note(axis))
                cells[axis, bias.editor or _ALL] = cell
                if not bias.editor and len(editors_of(part.edits)) == 1:
                    cells[axis, editors_of(part.edits)[0]] = cell
    return cells


def table_17(studies: Sequence[Participants]) -> PaperTable:
    """Who took part, by attribute; small groups stand together."""
    rows: list[TableRow] = []
    for place, study in enumerate(studies, start=1):
        prefix = f"study {place}, " if len(studies) > 1 else ""
        rows.append(_counted("participants", study.count, study.count, f"{prefix}all"))
        for attribute, counts in study.attributes.items():
            total = sum(counts.values())
            rows += [_counted(answer, count, total, f"{prefix}{attribute}") for answer, count in counts.items()]
    return PaperTable(
        number=17,
        caption="Participants of the human study, by what Prolific knows of them.",
        head=("", "N", "%"),
        rows=tuple(rows),
        notes=(
            *(
                f"Age {study.age_mean} ± {study.age_sd} years{_range(study)}."
                for study in studies
                if study.age_mean is not None
            ),
            f"Answers of fewer than {FEWEST} participants are added up and not named.",
        ),
    )


def _range(study: Participants) -> str:
    return f" (range {study.age_low}–{study.age_high})" if study.age_low is not None else ""


def table_18(source: Source) -> PaperTable:
    """How many outputs of each group, and by each editor, were rated by people; or, without people, were made."""
    by_people = np.zeros(len(source.edits), dtype=np.bool_)
    for score in source.scores:
        if score.judge in source.people:
            by_people |= rated(score, source.edits)
    part = source.where(by_people) if by_people.any() else source
    total = len(part.edits)
    rows: list[TableRow] = []
    for factor in source.factors:
        levels, codes = part.edits.levels(factor)
        counts = np.bincount(codes[part.edits.portrait] + 1, minlength=len(levels) + 1)[1:]
        rows += [_counted(level, int(count), total, factor) for level, count in zip(levels, counts, strict=True)]
    editors = np.bincount(part.edits.editor, minlength=len(part.edits.editors))
    rows += [
        _counted(name, int(editors[place]), total, "Model")
        for place, name in enumerate(part.edits.editors)
        if editors[place]
    ]
    what = "outputs that people rated" if by_people.any() else "requests of this audit; no one has rated any yet"
    return PaperTable(
        number=18,
        caption=f"Distribution of the {total:,} {what}.",
        head=("", "N", "%"),
        rows=tuple(rows),
    )


def _counted(label: str, count: int, total: int, section: str) -> TableRow:
    return TableRow(
        label=label, cells=(Count(value=count), Share(value=count / total if total else 0.0)), section=section
    )
