"""Notes beside the numbers of judges that were not calibrated on changes of known size, or failed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from stillme.core.types import Estimate
from stillme.estimates.cuts import rate_of

Standing = Mapping[str, Mapping[str, str]]
"""Judge to axis to `passed`, `failed`, `untested` or `blind_on` some skin tones; an absent judge was never calibrated.

The axis stands for all people of the run, `within` for those of one group where they stand differently.
"""

CONTROL_PAIRS = "*"
"""The name under which a `Standing` keeps how many control pairs a judge got wrong, if that raised the alarm."""

PEOPLE = "people"
"""The name under which a `Standing` keeps that a judge is people: they are what judges are held against."""

FAILED_CONTROL_PAIRS = "failed its control pairs"
"""How the note begins of a judge whose answers in this run are not to be relied on."""

_BLIND = "blind: "
_NOTES = {"passed": "", "failed": "calibration failed", "untested": "not tested on known changes"}


def blind_on(tones: Iterable[str]) -> str:
    """The verdict on an axis that a judge is validated for, but not on these skin tones, which some people have."""
    return _BLIND + ", ".join(tones)


def within(axis: str, factor: str, group: str) -> str:
    """The name under which a `Standing` keeps the verdict on an axis for one group."""
    return f"{axis}@{factor}={group}"


def mark(standing: Standing, judge: str, quantity: str, estimate: Estimate | None = None) -> str:
    """The note beside a judge's number; empty where the judge passed or no judge was asked.

    With `estimate`, what counts are the people it is about: a judge may be validated for one group and not for another.
    """
    if not judge:
        return ""
    axes = standing.get(judge)
    if axes is None:
        return "not calibrated"
    if PEOPLE in axes:
        return ""
    if wrong := axes.get(CONTROL_PAIRS):
        return f"{FAILED_CONTROL_PAIRS} ({wrong})"
    rate = rate_of(quantity)
    axis = rate.axis if rate else quantity
    verdict = axes.get(axis, "untested")
    if estimate is not None and estimate.scope == "group":
        verdict = axes.get(within(axis, estimate.factor, estimate.group), verdict)
    if verdict.startswith(_BLIND):
        return f"cannot tell on {verdict.removeprefix(_BLIND)} skin"
    return _NOTES[verdict]
