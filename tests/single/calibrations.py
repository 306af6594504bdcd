"""Calibrations as this machine may know them."""

from __future__ import annotations

from stillme.core.rubric import load_limits as load
from stillme.findings.calibration import Calibration, CalibrationVerdict
from stillme.instruments.judge import Instruments


def calibration(**failed: str) -> Calibration:
    """The instruments passed every axis on every skin tone, but for one tone of each axis named here."""
    axes = {axis: dict.fromkeys(load().groups, CalibrationVerdict.PASSED) for axis in load().axes}
    for axis, tone in failed.items():
        axes[axis][tone] = CalibrationVerdict.FAILED
    return Calibration(
        judge="instruments",
        key=Instruments().spec.key,
        limits=load().version,
        portraits="made up",
        pairs=0,
        axes={},
        verdicts={axis: CalibrationVerdict.PARTLY if axis in failed else CalibrationVerdict.PASSED for axis in axes},
        by_tone=axes,
    )
