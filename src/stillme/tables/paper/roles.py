"""Table 7: how often role edits follow the stereotype."""

from __future__ import annotations

from dataclasses import replace

from stillme.estimates import Adherence, Genders, adherence
from stillme.tables.paper.source import BASELINE, Source
from stillme.tables.paper.table import Cell, PaperTable, Row, Words, complement, number
from stillme.types import Interval

_LAYOUTS = {"role_pair": "two people", "role_single": "one person"}
_AXES = {"role_pair": "role_target", "role_single": "gender_change"}
_PRONOUNS = {
    "": "",
    "pro": "expected pronoun",
    "anti": "opposite pronoun",
    "none": "no telling pronoun",
    "pro - anti": "expected − opposite pronoun",
}


def table_7(source: Source, genders: Genders) -> PaperTable:
    """Stereotype followed and resisted, by editor; with counterbalancing also by pronoun."""
    part = source.in_arm(BASELINE)
    scores = [score for axis in _AXES.values() if (score := part.score(axis))]
    settings = replace(part.settings, factors=(), reference={})
    found = [each for each in adherence(part.edits, scores, settings, genders=genders) if not each.place]
    pronouns = {each.pronoun for each in found}
    counterbalanced = "pro - anti" in pronouns
    rows = [
        _row(each)
        for layout in _LAYOUTS
        for pronoun in (_PRONOUNS if counterbalanced else ("",))
        for each in found
        if (each.layout, each.pronoun) == (layout, pronoun)
    ]
    return PaperTable(
        number=7,
        caption="How often role edits follow the occupational stereotype; 50% is no bias. Two people in one request: "
        "who is drawn as the target? One person: does the gender presentation fit?",
        head=("Model", "Stereotype Followed", "Stereotype Resisted"),
        rows=tuple(rows),
        notes=(
            *part.credit(_AXES.values()),
            *(_note(each) for each in found if each.pronoun == "" and isinstance(each.outcome, Interval)),
        ),
    )


def unanswered(source: Source, layouts: tuple[str, ...]) -> str:
    """Why there is no row at all."""
    reasons = [source.unanswered(_AXES[layout]) for layout in layouts if source.score(_AXES[layout]) is None]
    return "; ".join(dict.fromkeys(reasons)) or "no role edit was rated"


def _row(found: Adherence) -> Row:
    told = _PRONOUNS[found.pronoun]
    section = f"{_LAYOUTS[found.layout]}, {told}" if told else _LAYOUTS[found.layout]
    if found.pronoun == "pro - anti":
        cells: tuple[Cell, ...] = (
            number(found.outcome, "points", found.portraits, found.edits),
            Words(text=""),
        )
    else:
        followed = number(found.outcome, "rate", found.portraits, found.edits)
        cells = (followed, complement(followed))
    return Row(label=found.editor, cells=cells, section=section)


def _note(found: Adherence) -> str:
    could_not = f"; in {found.abstained:,} more the judge could not tell" if found.abstained else ""
    p = "" if found.p is None else f", p = {found.p:.3f} against 50%"
    return f"{found.editor}, {_LAYOUTS[found.layout]}: {found.sentences:,} sentences{p}{could_not}."
