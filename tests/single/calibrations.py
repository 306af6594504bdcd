"""Calibrations as this machine may know them."""

from __future__ import annotations

from stillme.core.rubric.limits import load
from stillme.findings.calibration import Calibration, Verdict
from stillme.instruments.judge import Instruments


def calibration(**failed: str) -> Calibration:
    """The instruments passed every axis on every skin tone, but for one tone of each axis named here."""
    axes = {axis: dict.fromkeys(load().groups, Verdict.PASSED) for axis in load().axes}
    for axis, tone in failed.items():
        axes[axis][tone] = Verdict.FAILED
    return Calibration(
        judge="instruments",
        key=Instruments().spec.key,
        limits=load().version,
        portraits="made up",
        pairs=0,
        axes={},
        verdicts={axis: Verdict.PARTLY if axis in failed else Verdict.PASSED for axis in axes},
        by_tone=axes,
    )
