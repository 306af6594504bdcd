"""`stillme check`: one source picture, one edit, and the judges' scores."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Any, assert_never

from stillme.core import images, registry, rubric
from stillme.core.errors import InvalidParameters, StillmeError
from stillme.core.files import write_whole
from stillme.core.protocols import Judge
from stillme.core.rubric import load_limits
from stillme.core.throttle import call_with_retry
from stillme.core.types import Abstained, Assessment, Failed, ImageFile, Pair, Prompt, Rated, Rating
from stillme.estimates.numbers import decimal, percent
from stillme.findings import calibration
from stillme.findings.calibration import Calibration
from stillme.findings.single import settings_by_name
from stillme.findings.single.statements import NOT_CALIBRATED, Statement, doubt_about, statements
from stillme.instruments.cards import SOURCE_SKIN
from stillme.judges.ensemble import Combined, combine

_WIDTH = 100
_COLUMN = 30
_INSTRUMENTS = "instruments"
_UNCHANGED = "no measurable change"
_SHARE = "share of the "


@dataclass(frozen=True, slots=True, kw_only=True)
class ScoreCard:
    """One judge's scores of one pair."""

    judge: str
    calibration: Calibration | None
    tone: str
    """The skin-tone group of the source; empty where it is unknown."""
    assessment: Assessment

    @property
    def scores(self) -> Mapping[str, float]:
        """The answers on the rubric's scales."""
        ratings = self.assessment.ratings.items()
        return {axis: rating.score for axis, rating in ratings if isinstance(rating, Rated) and _is_scale(axis)}

    @property
    def is_to_retry(self) -> bool:
        """Whether the same question may be answered later."""
        failure = self.assessment.failure
        return failure is not None and failure.retryable

    @property
    def not_validated(self) -> Mapping[str, str]:
        """By axis that a calibration can test: why the answer is not validated for this person."""
        rated = (axis for axis, rating in self.assessment.ratings.items() if isinstance(rating, Rated))
        doubts = {axis: doubt_about(self.calibration, axis, self.tone) for axis in rated if axis in load_limits().axes}
        return {axis: doubt for axis, doubt in doubts.items() if doubt}

    def as_json(self) -> dict[str, Any]:
        """Measured quantities and scale scores apart; what has no answer stands under `abstained` or `failed`."""
        ratings = self.assessment.ratings
        rated = {axis: rating.score for axis, rating in ratings.items() if isinstance(rating, Rated)}
        evidence = {axis: rating.evidence for axis, rating in ratings.items() if isinstance(rating, Rated)}
        return {
            "judge": self.judge,
            "calibrated": self.calibration is not None,
            "not_validated": self.not_validated,
            "measurements": {axis: score for axis, score in rated.items() if not _is_scale(axis)},
            "scores": self.scores,
            "evidence": {axis: words for axis, words in evidence.items() if words},
            "abstained": {axis: rating.reason for axis, rating in ratings.items() if isinstance(rating, Abstained)},
            "failed": {axis: rating.error for axis, rating in ratings.items() if isinstance(rating, Failed)},
            "details": self.assessment.effective,
            "cost": self.assessment.cost,
        }

    @property
    def title(self) -> str:
        """The judge's name, and whether it is calibrated at all."""
        return self.judge if self.calibration else f"{self.judge} ({NOT_CALIBRATED})"

    @property
    def rows(self) -> list[tuple[str, str]]:
        """What each axis is called, and the answer in words."""
        ratings = self.assessment.ratings
        rows = [(title_of(axis), f"{_answer(axis, rating)}{self._mark(axis)}") for axis, rating in ratings.items()]
        if self.assessment.cost:
            return [*rows, ("Cost", f"${self.assessment.cost:.4f}")]
        return [*rows, ("Cost", "unknown")] if self.assessment.effective.get("cost") == "unknown" else rows

    def as_text(self) -> str:
        """A card for people."""
        return _as_text(self.title, self.rows)

    def _mark(self, axis: str) -> str:
        """What the title does not say already."""
        doubt = self.not_validated.get(axis, "") if self.calibration else ""
        return f" – {doubt}" if doubt else ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Together:
    """Several judges' scores of the pair as one, by a named rule."""

    rule: str
    combined: Mapping[str, Combined]

    def as_json(self) -> dict[str, Any]:
        """Scores by axis; `flagged` names the axes on which the judges are more than a point apart."""
        return {
            "rule": self.rule,
            "scores": {axis: combined.score for axis, combined in self.combined.items()},
            "flagged": [axis for axis, combined in self.combined.items() if combined.flagged],
            "incomplete": [axis for axis, combined in self.combined.items() if combined.incomplete],
        }

    @property
    def title(self) -> str:
        """Whose scores these are."""
        return f"together, by the rule {self.rule!r}"

    @property
    def rows(self) -> list[tuple[str, str]]:
        """What each axis is called, and the combined score."""
        rows: list[tuple[str, str]] = []
        for axis, combined in self.combined.items():
            notes = [
                *(["judges disagree: have people look"] if combined.flagged else []),
                *([f"only {combined.judges} of {combined.asked} judges"] if combined.incomplete else []),
            ]
            rows.append((title_of(axis), f"{combined.score:g}{' – ' if notes else ''}{', '.join(notes)}"))
        return rows

    def as_text(self) -> str:
        """A card for people."""
        return _as_text(self.title, self.rows)


@dataclass(frozen=True, slots=True, kw_only=True)
class Checked:
    """One pair, what each judge says of it, and what that means for the person."""

    cards: list[ScoreCard]
    statements: list[Statement]
    """From the instruments; empty where they were not asked."""
    notes: list[str]
    """What else to know about the pictures."""

    def _repr_html_(self) -> str:
        sentences = "".join(f"<li>{escape(statement.as_text())}</li>" for statement in self.statements)
        cards = "".join(
            f"<details><summary>{escape(card.title)}</summary><table>"
            + "".join(f"<tr><th>{escape(title)}</th><td>{escape(words)}</td></tr>" for title, words in card.rows)
            + "</table></details>"
            for card in self.cards
        )
        return f"<ul>{sentences}</ul>{''.join(f'<p>{escape(note)}</p>' for note in self.notes)}{cards}"


def check(
    edited: Path,
    source: Path,
    prompt: str,
    judges: Sequence[str],
    *,
    years: int | None = None,
    settings: Sequence[str] = (),
) -> Checked:
    """Have each judge look at the pair once. `settings` are `JUDGE.KEY=VALUE`.

    Without a prompt, models are not asked whether the edit succeeded.
    """
    for path in (source, edited):
        images.check(path)
    kind = "own" if years is None else "aging"
    asked = Prompt(id="check", text=prompt, category="own", subcategory=kind, years=years)
    pair = Pair(edit="check", sources=(ImageFile.of(source),), edited=ImageFile.of(edited), prompt=asked)
    parameters = settings_by_name(settings, judges, "--set")
    answers = [(name, *_assess(name, _built(name, parameters[name]), pair)) for name in judges]
    tone = next((tone for _, assessment, _ in answers if (tone := _tone(assessment))), "")
    cards = [
        ScoreCard(judge=name, calibration=known, tone=tone, assessment=assessment)
        for name, assessment, known in answers
    ]
    said = [
        statement
        for card in cards
        if card.judge == _INSTRUMENTS
        for statement in statements(card.assessment, card.calibration, tone, years=years)
    ]
    return Checked(cards=cards, statements=said, notes=_notes(edited, source))


def _notes(edited: Path, source: Path) -> list[str]:
    """A sentence about each picture that is not measured exactly as it is stored."""
    notes: list[str] = []
    for name, path in (("source", source), ("edited picture", edited)):
        if problem := images.colour_problem(path):
            notes.append(f"The {name} is taken for sRGB: {problem}. Save it as sRGB to be sure.")
        if images.has_transparency(path):
            notes.append(f"The {name} is partly transparent: the transparency was placed on white.")
    return notes


def together(cards: Sequence[ScoreCard], rule: str) -> Together | None:
    """The cards' scores combined, on every scale that more than one judge was asked; None for a single judge."""
    asked = {
        axis: [card for card in cards if axis in card.assessment.ratings] for card in cards for axis in card.scores
    }
    combined: dict[str, Combined] = {}
    for axis, by in asked.items():
        if len(by) > 1:
            score = combine([card.scores.get(axis) for card in by], rule=rule, axis=axis)
            if isinstance(score, Combined):
                combined[axis] = score
    return Together(rule=rule, combined=combined) if combined else None


def draw_overlay(edited: Path, source: Path, file: Path) -> Path:
    """Write a picture of where the instruments looked: boxes, skin, what changed."""
    from stillme.instruments import overlay

    return write_whole(file, images.encode_png(overlay.draw(source, edited)))


def _assess(name: str, judge: Judge, pair: Pair) -> tuple[Assessment, Calibration | None]:
    try:
        if problems := list(judge.problems([], [pair.prompt])):
            raise StillmeError(f"The judge {name!r} cannot work as it is set: {'; '.join(problems)}.")
        assessment = call_with_retry(lambda: next(iter(judge.judge([pair]))), lambda said: said.failure)
    finally:
        judge.close()
    return assessment, calibration.find(judge.spec)


def _tone(assessment: Assessment) -> str:
    lightness = assessment.ratings.get(SOURCE_SKIN)
    return load_limits().group_of(lightness.score) if isinstance(lightness, Rated) else ""


def _built(name: str, parameters: Mapping[str, Any]) -> Judge:
    try:
        return registry.build("judge", name, parameters)
    except InvalidParameters as error:
        raise StillmeError(f"{error} Set them with --set {name}.KEY=VALUE.") from None


def _as_text(heading: str, rows: Sequence[tuple[str, str]]) -> str:
    indent = " " * (_COLUMN + 2)
    lines = (
        line
        for title, words in rows
        for line in textwrap.wrap(f"  {title:<{_COLUMN}}{words}", _WIDTH, subsequent_indent=indent)
    )
    return "\n".join([heading, *lines])


def _answer(axis: str, rating: Rating) -> str:
    match rating:
        case Rated(score=score):
            if choices := _choices(axis):
                return choices[round(score) - 1]
            if not _is_scale(axis):
                return in_words(axis, score)
            evidence = _one_line(rating.evidence)
            words = f"{score:g} {rubric.load().axes[axis].short[round(score) - 1]}"
            return f"{words} ({evidence})" if evidence else words
        case Abstained(reason=reason):
            return f"cannot tell: {_one_line(reason)}"
        case Failed(error=error):
            return f"failed ({_one_line(error)}){'; re-run to retry' if rating.retryable else ''}"
        case never:
            assert_never(never)


def _one_line(words: str) -> str:
    """Foreign words on one line, so that they cannot pass for a line of the card."""
    return " ".join(words.split())


def _choices(axis: str) -> tuple[str, ...]:
    known = rubric.load().axes.get(axis)
    return known.choices if known else ()


def _is_scale(axis: str) -> bool:
    known = rubric.load().axes.get(axis)
    return known is not None and known.is_scale


def title_of(axis: str) -> str:
    """What an axis is called beside `in_words`."""
    return "Person" if axis == "identity_swap" else rubric.load().title(axis)


def in_words(axis: str, value: float) -> str:
    """`39 % of the picture`, `no measurable change (+0.1 L*)`: the value with a unit that needs no table."""
    match axis:
        case "skin_delta_l":
            return _beyond(axis, value, f"{decimal(value, 1, plus=True)} L*")
        case "source_skin_l":
            return f"{decimal(value, 0)} L*"
        case "skin_delta_ita":
            return f"{decimal(value, 0, plus=True)}°"
        case "age_delta_years":
            return _beyond(axis, value, f"{decimal(value, 0, plus=True)} years")
        case "gender_delta":
            if abs(value) <= load_limits().axes[axis].flag:
                return _UNCHANGED
            return f"{abs(value):.2f} of the way towards a {'male' if value > 0 else 'female'} reading"
        case "identity_swap":
            return f"{'same' if value < 1 else 'another'} person ({value:.2f}; look-alikes start at 1)"
        case "identity_drift":
            return f"{value:.2f} (the same picture saved again stays below 1)"
        case _:
            known = rubric.load().axes.get(axis)
            unit = known.unit if known else ""
            if unit.startswith(_SHARE):
                return f"{percent(value, 0)} of the {unit.removeprefix(_SHARE)}"
            return f"{decimal(value, 2)} {unit}".rstrip()


def _beyond(axis: str, value: float, words: str) -> str:
    """The value, below the smallest effect behind the words that say so."""
    return f"{_UNCHANGED} ({words})" if abs(value) < rubric.load().smallest_effects[axis] else words
