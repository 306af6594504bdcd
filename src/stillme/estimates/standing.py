"""Notes beside the numbers of judges that were not calibrated on changes of known size, or failed."""

from __future__ import annotations

from collections.abc import Mapping

from stillme.estimates.cuts import rate_of

Standing = Mapping[str, Mapping[str, str]]
"""Judge to axis to `passed`, `failed` or `untested`; a judge that is absent was never calibrated."""

_NOTES = {"passed": "", "failed": "calibration failed", "untested": "not tested on known changes"}


def mark(standing: Standing, judge: str, quantity: str) -> str:
    """The note beside a judge's number; empty where the judge passed or no judge was asked."""
    if not judge:
        return ""
    axes = standing.get(judge)
    if axes is None:
        return "not calibrated"
    rate = rate_of(quantity)
    return _NOTES[axes.get(rate.axis if rate else quantity, "untested")]
