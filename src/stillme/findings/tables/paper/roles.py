"""Table 7: how often role edits follow the stereotype."""

from __future__ import annotations

from stillme.core.types import Interval
from stillme.estimates import Adherence, Genders, adherence, numbers
from stillme.findings.tables.paper.source import BASELINE, Source
from stillme.findings.tables.paper.table import Cell, PaperTable, Row, Words, complement, number

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


def _row(rate: Adherence, note: str) -> Row:
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
    return Row(label=rate.editor, cells=cells, section=section)


def _note(rate: Adherence) -> str:
    abstained = f"; {rate.abstained:,} more are undecided" if rate.abstained else ""
    p = "" if rate.p is None else f", {numbers.p_value(rate.p)} against 50%"
    return f"{rate.editor}, {_LAYOUTS[rate.layout]}: {rate.sentences:,} sentences{p}{abstained}."
