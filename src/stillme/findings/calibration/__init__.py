"""How good a judge is, on changes whose true size is known: on what it is validated."""

from typing import TYPE_CHECKING

from stillme.core.deferred import deferred

if TYPE_CHECKING:
    from stillme.findings.calibration.measuring import calibration_of
    from stillme.findings.calibration.records import (
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

__getattr__ = deferred(
    __name__, measuring=("calibration_of",), records=tuple(name for name in __all__ if name != "calibration_of")
)
