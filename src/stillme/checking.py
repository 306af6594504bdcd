"""`stillme check`: one source, one edit, and what the judges say of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, assert_never

from stillme import calibration, images, registry, rubric
from stillme.errors import StillmeError
from stillme.protocols import Judge
from stillme.types import Abstained, Assessment, Failed, ImageFile, Pair, Prompt, Rated, Rating


@dataclass(frozen=True, slots=True, kw_only=True)
class Card:
    """One judge's words on one pair."""

    judge: str
    calibrated: str
    """`passed`, `failed` or `not calibrated`."""
    assessment: Assessment

    def as_json(self) -> dict[str, Any]:
        """Measured quantities and scale scores apart; what has no answer stands under `abstained` or `failed`."""
        found = self.assessment.ratings
        rated = {axis: rating.score for axis, rating in found.items() if isinstance(rating, Rated)}
        return {
            "judge": self.judge,
            "calibration": self.calibrated,
            "measurements": {axis: score for axis, score in rated.items() if not _is_scale(axis)},
            "scores": {axis: score for axis, score in rated.items() if _is_scale(axis)},
            "abstained": {axis: rating.reason for axis, rating in found.items() if isinstance(rating, Abstained)},
            "failed": {axis: rating.error for axis, rating in found.items() if isinstance(rating, Failed)},
            "details": dict(self.assessment.effective),
        }

    def as_text(self) -> str:
        """A card for people."""
        head = f"{self.judge} ({self.calibrated})" if self.calibrated != "passed" else self.judge
        return "\n".join([head, *(f"  {_line(axis, rating)}" for axis, rating in self.assessment.ratings.items())])


def check(edited: Path, source: Path, prompt: str, judges: Sequence[str]) -> list[Card]:
    """Have each judge look at the pair once."""
    for path in (source, edited):
        images.check(path)
    asked = Prompt(id="check", text=prompt, category="own", subcategory="own")
    pair = Pair(edit="check", sources=(ImageFile.of(source),), edited=ImageFile.of(edited), prompt=asked)
    return [_card(name, pair) for name in judges]


def draw_overlay(edited: Path, source: Path, file: Path) -> Path:
    """Write a picture of where the instruments looked: boxes, skin, what changed."""
    from stillme.instruments import overlay

    file.write_bytes(images.encode_png(overlay.draw(source, edited)))
    return file


def _card(name: str, pair: Pair) -> Card:
    found = registry.judge_class(name)
    if lacking := registry.unmet(found.needs):
        raise StillmeError(f"The judge {name!r} cannot work here: {'; '.join(lacking)}.")
    build: Any = found
    judge: Judge = build(found.Parameters())
    try:
        (assessment,) = judge.judge([pair])
    finally:
        judge.close()
    known = calibration.find(judge.spec)
    state = "not calibrated" if known is None else "passed" if known.passed else "calibration failed"
    return Card(judge=name, calibrated=state, assessment=assessment)


def _line(axis: str, rating: Rating) -> str:
    known: Mapping[str, rubric.Axis] = rubric.load().axes
    title = known[axis].title if axis in known else axis
    match rating:
        case Rated(score=score, evidence=evidence):
            if _is_scale(axis):
                text = f"{score:g} {known[axis].short[round(score) - 1]}"
                return f"{title:<22}{text}{f' ({evidence})' if evidence else ''}"
            unit = known[axis].unit if axis in known else ""
            return f"{title:<22}{score:+.3f} {unit}"
        case Abstained(reason=reason):
            return f"{title:<22}– {reason}"
        case Failed(error=error):
            return f"{title:<22}failed: {error}"
        case never:
            assert_never(never)


def _is_scale(axis: str) -> bool:
    known = rubric.load().axes.get(axis)
    return known is not None and known.is_scale
