"""How good a judge is, on changes whose true size is known: on what it is validated."""

from stillme.calibration.measuring import calibration_of
from stillme.calibration.records import (
    AxisResult,
    Calibration,
    Share,
    Verdict,
    calibrated,
    calibration_of_judge,
    find,
    known_to_this_machine,
    save,
    standing_of,
)

__all__ = [
    "AxisResult",
    "Calibration",
    "Share",
    "Verdict",
    "calibrated",
    "calibration_of",
    "calibration_of_judge",
    "find",
    "known_to_this_machine",
    "save",
    "standing_of",
]
