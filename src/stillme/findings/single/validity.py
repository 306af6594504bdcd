"""On which axes a judge is validated for the person of one pair."""

from __future__ import annotations

from stillme.core.rubric.limits import load as load_limits
from stillme.findings.calibration import Calibration, Verdict

NOT_CALIBRATED = "not calibrated yet"


def verdict_on(calibration: Calibration | None, axis: str, tone: str) -> Verdict:
    """Whether a judge passed an axis on one skin tone; without a tone it must have passed on all of them."""
    tried = calibration.by_tone.get(axis, {}) if calibration else {}
    tones = [tone] if tone else list(load_limits().groups)
    verdicts = {tried.get(one, Verdict.UNTESTED) for one in tones}
    if verdicts == {Verdict.PASSED}:
        return Verdict.PASSED
    return Verdict.FAILED if Verdict.FAILED in verdicts else Verdict.UNTESTED


def doubt_about(calibration: Calibration | None, axis: str, tone: str) -> str:
    """Why an answer on an axis is not validated; empty where it is."""
    if calibration is None:
        return NOT_CALIBRATED
    match verdict_on(calibration, axis, tone):
        case Verdict.PASSED:
            return ""
        case Verdict.FAILED:
            return f"not validated on {tone} skin" if tone else "not validated on every skin tone"
        case _:
            return "not tested on known changes"
