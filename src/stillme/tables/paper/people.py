"""Tables 6, 17 and 18: models and people, who the raters were, and whose portraits they rated."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from stillme.estimates import Scores
from stillme.estimates.agreement import AgainstPeople, against_people, mean_of
from stillme.results.participants import FEWEST, Participants
from stillme.tables.paper.diagnosis import AXES
from stillme.tables.paper.source import BASELINE, Source, axis_title, editors_of, rated
from stillme.tables.paper.table import Absent, Cell, Count, PaperTable, Row, Share, number

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
            Row(label=editor, cells=tuple(columns[axis][section, editor] for axis in AXES), section=section)
            for section in _SECTIONS
            for editor in editors
        ),
        notes=part.credit(AXES),
    )


def _column(part: Source, axis: str) -> dict[tuple[str, str], Cell]:
    editors = editors_of(part.edits)
    model, raters = part.score(axis), part.by_people(axis)
    if model is None or not raters:
        reason = part.unanswered(axis) if model is None else f"no person rated {axis_title(axis)}"
        return {(section, editor): Absent(reason=reason) for section in _SECTIONS for editor in editors}
    people = replace(mean_of(raters, _PEOPLE), kind="person")
    both = rated(model, part.edits) & rated(people, part.edits)
    columns = {
        **_means(part, model, both, _MODELS),
        **_means(part, people, both, _PEOPLE),
        **_differences(part, model, people),
    }
    empty = Absent(reason="no edit was rated by both")
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


def table_17(studies: Sequence[Participants]) -> PaperTable:
    """Who took part, by attribute; small groups stand together."""
    rows: list[Row] = []
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
            *(f"Age {study.age_mean} ± {study.age_sd} years." for study in studies if study.age_mean is not None),
            f"Answers of fewer than {FEWEST} participants are added up and never shown singly.",
        ),
    )


def table_18(source: Source) -> PaperTable:
    """How many outputs of each group, and by each editor, were rated by people; or, without people, were made."""
    by_people = np.zeros(len(source.edits), dtype=np.bool_)
    for score in source.scores:
        if score.judge in source.people:
            by_people |= rated(score, source.edits)
    part = source.where(by_people) if by_people.any() else source
    total = len(part.edits)
    rows: list[Row] = []
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
    what = "outputs that people rated" if by_people.any() else "requests of this audit; nobody has rated any yet"
    return PaperTable(
        number=18,
        caption=f"Distribution of the {total:,} {what}.",
        head=("", "N", "%"),
        rows=tuple(rows),
    )


def _counted(label: str, count: int, total: int, section: str) -> Row:
    return Row(label=label, cells=(Count(value=count), Share(value=count / total if total else 0.0)), section=section)
