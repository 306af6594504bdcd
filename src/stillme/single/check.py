"""`stillme check`: one source picture, one edit, and the judges' scores."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, assert_never

from stillme import calibration, images, registry, rubric
from stillme.errors import InvalidParameters, StillmeError
from stillme.files import write_whole
from stillme.judges.ensemble import Combined, combine
from stillme.protocols import ChecksRequests, Judge
from stillme.single.settings import settings_by_name
from stillme.throttle import patiently
from stillme.types import Abstained, Assessment, Failed, ImageFile, Pair, Prompt, Rated, Rating

_WIDTH = 100
_COLUMN = 22


@dataclass(frozen=True, slots=True, kw_only=True)
class Card:
    """One judge's scores of one pair."""

    judge: str
    calibrated: str
    """`passed`, `failed` or `not calibrated`."""
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

    def as_json(self) -> dict[str, Any]:
        """Measured quantities and scale scores apart; what has no answer stands under `abstained` or `failed`."""
        ratings = self.assessment.ratings
        rated = {axis: rating.score for axis, rating in ratings.items() if isinstance(rating, Rated)}
        evidence = {axis: rating.evidence for axis, rating in ratings.items() if isinstance(rating, Rated)}
        return {
            "judge": self.judge,
            "calibration": self.calibrated,
            "measurements": {axis: score for axis, score in rated.items() if not _is_scale(axis)},
            "scores": dict(self.scores),
            "evidence": {axis: words for axis, words in evidence.items() if words},
            "abstained": {axis: rating.reason for axis, rating in ratings.items() if isinstance(rating, Abstained)},
            "failed": {axis: rating.error for axis, rating in ratings.items() if isinstance(rating, Failed)},
            "details": dict(self.assessment.effective),
            "cost": self.assessment.cost,
        }

    def as_text(self) -> str:
        """A card for people."""
        head = f"{self.judge} ({self.calibrated})" if self.calibrated != "passed" else self.judge
        lines = [line for axis, rating in self.assessment.ratings.items() for line in _lines(axis, rating)]
        return "\n".join([head, *(f"  {line}" for line in [*lines, *self._price()])])

    def _price(self) -> list[str]:
        if self.assessment.cost:
            return [f"{'Cost':<{_COLUMN}}${self.assessment.cost:.4f}"]
        return [f"{'Cost':<{_COLUMN}}unknown"] if self.assessment.effective.get("cost") == "unknown" else []


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

    def as_text(self) -> str:
        """A card for people."""
        lines = [f"together, by the rule {self.rule!r}"]
        for axis, combined in self.combined.items():
            notes = [
                *(["judges disagree: have people look"] if combined.flagged else []),
                *([f"only {combined.judges} of {combined.asked} judges"] if combined.incomplete else []),
            ]
            lines.append(f"  {_title(axis):<{_COLUMN}}{combined.score:g}{' – ' if notes else ''}{', '.join(notes)}")
        return "\n".join(lines)


def check(
    edited: Path,
    source: Path,
    prompt: str,
    judges: Sequence[str],
    *,
    years: int | None = None,
    settings: Sequence[str] = (),
) -> list[Card]:
    """Have each judge look at the pair once. `settings` are `JUDGE.KEY=VALUE`.

    Without a prompt, models are not asked whether the edit succeeded.
    """
    for path in (source, edited):
        images.check(path)
    kind = "own" if years is None else "aging"
    asked = Prompt(id="check", text=prompt, category="own", subcategory=kind, years=years)
    pair = Pair(edit="check", sources=(ImageFile.of(source),), edited=ImageFile.of(edited), prompt=asked)
    parameters = settings_by_name(settings, judges, "--set")
    return [_card(name, _built(name, parameters[name]), pair) for name in judges]


def colour_notes(edited: Path, source: Path) -> list[str]:
    """A sentence about each picture whose colour profile is not applied."""
    problems = ((path, images.colour_problem(path)) for path in (source, edited))
    return [
        f"{path} is taken for sRGB: {problem}. Save it as sRGB to be sure." for path, problem in problems if problem
    ]


def together(cards: Sequence[Card], rule: str) -> Together | None:
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


def _card(name: str, judge: Judge, pair: Pair) -> Card:
    try:
        if isinstance(judge, ChecksRequests) and (problems := list(judge.problems([], [pair.prompt]))):
            raise StillmeError(f"The judge {name!r} cannot work as it is set: {'; '.join(problems)}.")
        assessment = patiently(lambda: next(iter(judge.judge([pair]))), lambda said: said.failure)
    finally:
        judge.close()
    known = calibration.find(judge.spec)
    state = "not calibrated" if known is None else "passed" if known.passed else "calibration failed"
    return Card(judge=name, calibrated=state, assessment=assessment)


def _built(name: str, parameters: Mapping[str, Any]) -> Judge:
    try:
        return registry.build("judge", name, parameters)
    except InvalidParameters as error:
        raise StillmeError(f"{error} Set them with --set {name}.KEY=VALUE.") from None


def _lines(axis: str, rating: Rating) -> list[str]:
    title = f"{_title(axis):<{_COLUMN}}"
    match rating:
        case Rated(score=score):
            evidence = _one_line(rating.evidence)
            if choices := _choices(axis):
                return [f"{title}{choices[round(score) - 1]}"]
            if not _is_scale(axis):
                return [f"{title}{score:+.3f} {_unit(axis)}"]
            text = f"{title}{score:g} {rubric.load().axes[axis].short[round(score) - 1]}"
            if len(evidence) <= _WIDTH - len(text) - 3:
                return [f"{text}{f' ({evidence})' if evidence else ''}"]
            return [text, *textwrap.wrap(evidence, _WIDTH, initial_indent="    ", subsequent_indent="    ")]
        case Abstained(reason=reason):
            return [f"{title}– {_one_line(reason)}"]
        case Failed(error=error):
            return [f"{title}failed ({_one_line(error)}){'; re-run to retry' if rating.retryable else ''}"]
        case never:
            assert_never(never)


def _one_line(words: str) -> str:
    """Foreign words on one line, so that they cannot pass for a line of the card."""
    return " ".join(words.split())


def _title(axis: str) -> str:
    known = rubric.load().axes.get(axis)
    return known.title if known else axis


def _unit(axis: str) -> str:
    known = rubric.load().axes.get(axis)
    return known.unit if known else ""


def _choices(axis: str) -> tuple[str, ...]:
    known = rubric.load().axes.get(axis)
    return known.choices if known else ()


def _is_scale(axis: str) -> bool:
    known = rubric.load().axes.get(axis)
    return known is not None and known.is_scale
