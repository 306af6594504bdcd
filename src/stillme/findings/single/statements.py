"""What an edit did to a person, in a few sentences: each sure, not sure, or impossible to tell, with the reason."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import cast

from stillme.core import rubric
from stillme.core.rubric import load_limits
from stillme.core.types import Abstained, Assessment, Failed, Rated
from stillme.estimates.numbers import decimal, percent
from stillme.findings.calibration import Calibration, CalibrationVerdict
from stillme.instruments.cards import NOT_VISIBLE
from stillme.instruments.thresholds import load_thresholds

# Shades of one foundation range lie about 4 L* apart (docs/instruments.md, Thresholds): the paper's "≥ 2 shades" are 8.
# The Monk scale is not used: its steps are 8 to 20 L* wide, and the L* of a photograph depends on its exposure.
_FOUNDATION_SHADE = 4.0

NOT_CALIBRATED = "not calibrated yet"


class Certainty(StrEnum):
    """How far a statement is to be relied on."""

    SURE = "sure"
    """Measured, by an instrument that is validated for it on this skin tone, and not close to a limit."""
    NOT_SURE = "not sure"
    """Measured, but something speaks against relying on it."""
    CANNOT_TELL = "cannot tell"
    """Not measured, or by an instrument that failed its validation on this skin tone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Statement:
    """One sentence about a pair."""

    axes: tuple[str, ...]
    """What it rests on."""
    text: str
    changed: bool | None
    """None where that cannot be told."""
    certainty: Certainty
    because: str = ""
    """Why it is not sure."""

    def as_text(self) -> str:
        """One line for a terminal."""
        if self.certainty is Certainty.CANNOT_TELL:
            return f"{self.text.rstrip('.')}: {self.because}."
        return f"{self.text} [{self.certainty}{f': {self.because}' if self.because else ''}]"


def statements(
    assessment: Assessment, calibration: Calibration | None, tone: str, *, years: int | None = None
) -> list[Statement]:
    """The sentences about one pair that the instruments measured. They make no statement about race.

    `tone` is the skin-tone group of the source, empty where it is unknown; `years` is how much older was asked for.
    """
    measured = _Measured(assessment, calibration, tone)
    age, gender = _age(measured, years), _gender(measured)
    return [_skin(measured), _person(measured), *_joined(age, gender), _picture(measured)]


def verdict_on(calibration: Calibration | None, axis: str, tone: str) -> CalibrationVerdict:
    """Whether a judge passed an axis on one skin tone; without a tone it must have passed on all of them."""
    tried = calibration.by_tone.get(axis, {}) if calibration else {}
    tones = [tone] if tone else list(load_limits().groups)
    verdicts = {tried.get(one, CalibrationVerdict.UNTESTED) for one in tones}
    if verdicts == {CalibrationVerdict.PASSED}:
        return CalibrationVerdict.PASSED
    return CalibrationVerdict.FAILED if CalibrationVerdict.FAILED in verdicts else CalibrationVerdict.UNTESTED


def doubt_about(calibration: Calibration | None, axis: str, tone: str) -> str:
    """Why an answer on an axis is not validated; empty where it is."""
    if calibration is None:
        return NOT_CALIBRATED
    match verdict_on(calibration, axis, tone):
        case CalibrationVerdict.PASSED:
            return ""
        case CalibrationVerdict.FAILED:
            return f"not validated on {tone} skin" if tone else "not validated on every skin tone"
        case _:
            return "not tested on known changes"


@dataclass(frozen=True, slots=True)
class _Measured:
    """The instruments' answers, and how far they are validated."""

    assessment: Assessment
    calibration: Calibration | None
    tone: str

    def score(self, axis: str) -> float | None:
        rating = self.assessment.ratings.get(axis)
        return rating.score if isinstance(rating, Rated) else None

    def evidence(self, axis: str) -> str:
        rating = self.assessment.ratings.get(axis)
        return rating.evidence if isinstance(rating, Rated) else ""

    def interval(self, name: str) -> tuple[float, float]:
        low, high = cast("list[float]", self.assessment.effective[name])
        return low, high

    def say(self, subject: _Subject, text: str, *, changed: bool, doubts: Sequence[str] = ()) -> Statement:
        """A sentence, as sure as validation on its axes and further doubts allow."""
        failed = [
            axis for axis in subject.axes if verdict_on(self.calibration, axis, self.tone) is CalibrationVerdict.FAILED
        ]
        if failed:
            return _untold(subject, f"instruments {doubt_about(self.calibration, failed[0], self.tone)}")
        lacking = dict.fromkeys(doubt_about(self.calibration, axis, self.tone) for axis in subject.axes)
        reasons = [*(f"instruments {reason}" for reason in lacking if reason), *filter(None, doubts)]
        return Statement(
            axes=subject.axes,
            text=text,
            changed=changed,
            certainty=Certainty.NOT_SURE if reasons else Certainty.SURE,
            because="; ".join(reasons),
        )

    def cannot_tell(self, subject: _Subject, axis: str) -> Statement:
        match self.assessment.ratings.get(axis):
            case Abstained(reason=reason) | Failed(error=reason):
                return _untold(subject, reason)
            case _:
                return _untold(subject, "not measured")

    @property
    def badly_shown(self) -> str:
        """Why readings of the face are less certain than usual."""
        doubts = cast("list[str]", self.assessment.effective.get("doubts", []))
        return f"the face is {', '.join(doubts)}" if doubts else ""


@dataclass(frozen=True, slots=True)
class _Subject:
    question: str
    """What cannot be told, after "whether"."""
    axes: tuple[str, ...]


def _untold(subject: _Subject, reason: str) -> Statement:
    return Statement(
        axes=subject.axes,
        text=f"Cannot tell whether {subject.question}.",
        changed=None,
        certainty=Certainty.CANNOT_TELL,
        because=reason,
    )


def _skin(measured: _Measured) -> Statement:
    subject = _Subject("your skin came back lighter or darker", ("skin_tone", "skin_delta_l"))
    moved, scale = measured.score("skin_delta_l"), measured.score("skin_tone")
    if moved is None or scale is None:
        return measured.cannot_tell(subject, "skin_delta_l" if moved is None else "skin_tone")
    smallest, much = load_thresholds().skin.scale[2:]
    # What calibration allows the number to be wrong by decides how near the limit is too near.
    near = abs(abs(moved) - smallest) < (load_limits().axes["skin_delta_l"].bias or 0)
    close = f"close to the smallest change that counts, {smallest:.0f} L*" if near else ""
    axis = rubric.load().axes["skin_tone"]
    if scale == axis.unchanged:
        return measured.say(subject, "No measurable change in skin tone.", changed=False, doubts=[close])
    if abs(moved) < smallest:
        way = "lighter" if scale > (axis.unchanged or 0) else "darker"
        return measured.say(subject, f"Part of your skin came back {way}.", changed=True)
    shades = f", about {abs(moved) / _FOUNDATION_SHADE:.0f} foundation shades" if abs(moved) >= much else ""
    text = f"Your skin came back {axis.short[round(scale) - 1]} ({decimal(moved, 0, plus=True)} L*{shades})."
    return measured.say(subject, text, changed=True, doubts=[close])


def _person(measured: _Measured) -> Statement:
    question = "you still look like the same person"
    distance, drift, swap = (measured.score(f"identity_{name}") for name in ("distance", "drift", "swap"))
    if distance is None or drift is None or swap is None:
        return measured.cannot_tell(_Subject(question, ("identity_drift", "identity_swap")), "identity_swap")
    cuts = load_thresholds().identity
    # The distance of people who look alike differs between groups of FairFace; which of them applies is not known here.
    near = min(cuts.groups.values()) <= distance <= max(cuts.groups.values())
    shown = measured.badly_shown
    if near:
        subject = _Subject(question, ("identity_swap",))
        doubt = f"as far apart as people who look alike ({swap:.2f}; they start at 1)"
        return measured.say(subject, "You may look like another person.", changed=True, doubts=[doubt, shown])
    if swap >= 1:
        subject = _Subject(question, ("identity_swap",))
        return measured.say(subject, "You look like another person.", changed=True, doubts=[shown])
    if drift >= 1:
        subject = _Subject(question, ("identity_drift", "identity_swap"))
        text = "Your face changed, but you still look like the same person."
        return measured.say(subject, text, changed=True, doubts=[shown])
    subject = _Subject(question, ("identity_drift",))
    return measured.say(subject, "You still look like the same person.", changed=False, doubts=[shown])


def _age(measured: _Measured, years: int | None) -> Statement:
    subject = _Subject("your apparent age changed", ("age_delta_years",))
    moved = measured.score("age_delta_years")
    if moved is None:
        return measured.cannot_tell(subject, "age_delta_years")
    low, high = measured.interval("age_interval")
    smallest = load_thresholds().age.scale[2]
    asked = f"; {years} were asked for" if years is not None else ""
    span = f"{decimal(low, 0, plus=True)} to {decimal(high, 0, plus=True)} years{asked}"
    shown = measured.badly_shown
    if abs(moved) < smallest or low <= 0 <= high:
        wide = low <= -smallest or high >= smallest
        doubts = [f"the interval, {span}, includes a change that counts" if wide else "", shown]
        text = f"No measurable change in apparent age{asked}."
        return measured.say(subject, text, changed=False, doubts=doubts)
    text = f"You look about {abs(moved):.0f} years {'older' if moved > 0 else 'younger'} ({span})."
    return measured.say(subject, text, changed=True, doubts=[shown])


def _gender(measured: _Measured) -> Statement:
    question = "your gender presentation changed"
    moved = measured.score("gender_delta")
    if moved is None:
        return measured.cannot_tell(_Subject(question, ("gender_delta", "gender_change")), "gender_delta")
    scale = measured.score("gender_change")
    way = "masculine" if moved > 0 else "feminine"
    shown = measured.badly_shown
    if scale is not None and rubric.load().rates["gender_changed"].holds(scale):
        text = f"Your gender presentation changed: your face now reads as {way}."
        return measured.say(_Subject(question, ("gender_change",)), text, changed=True, doubts=[shown])
    # Lighter skin alone moves the reading by up to 0.3; calibration calls a shift a change from `flag` on.
    if abs(moved) <= load_limits().axes["gender_delta"].flag:
        subject = _Subject(question, ("gender_delta",))
        return measured.say(subject, "No measurable change in gender presentation.", changed=False, doubts=[shown])
    subject = _Subject(question, ("gender_delta",))
    if scale is None:
        return measured.cannot_tell(subject, "gender_change")
    text = f"Your face reads more {way} than before."
    return measured.say(subject, text, changed=True, doubts=["it does not read as another gender", shown])


def _picture(measured: _Measured) -> Statement:
    subject = _Subject("the picture changed", ("visible_change",))
    visible, area = measured.score("visible_change"), measured.score("changed_area")
    if visible is None or area is None:
        return measured.cannot_tell(subject, "visible_change")
    mirrored = bool(measured.assessment.effective.get("mirrored"))
    if visible == NOT_VISIBLE:
        text = f"No visible change in the picture{', except that it is mirrored' if mirrored else ''}."
        return measured.say(subject, text, changed=False)
    if area > load_thresholds().change.unchanged:
        text = f"{percent(area, 0)} of the picture changed{', and it is mirrored' if mirrored else ''}."
    else:
        text = f"The picture changed visibly: {measured.evidence('visible_change')}."
    return measured.say(subject, text, changed=True)


def _joined(age: Statement, gender: Statement) -> list[Statement]:
    """One sentence for both where they say the same."""
    same = (age.changed, age.certainty, age.because) == (gender.changed, gender.certainty, gender.because)
    if age.changed or not same or "asked for" in age.text:
        return [age, gender]
    if age.changed is None:
        text = "Cannot tell whether your apparent age or gender presentation changed."
    else:
        text = "No measurable change in apparent age or gender presentation."
    return [replace(age, axes=(*age.axes, *gender.axes), text=text)]
