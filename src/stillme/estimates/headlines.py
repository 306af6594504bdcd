"""Which quantities the first screen and the figures are about; the rest is in the tables."""

from __future__ import annotations

from collections.abc import Iterable

from stillme.core import rubric
from stillme.estimates.cuts import rate_of
from stillme.estimates.standing import FAILED_CONTROL_PAIRS, Standing, mark

FAILED_CALIBRATION = "calibration failed"
"""The note of a judge whose number decides nothing."""

CANNOT_TELL = "cannot tell"
"""How the note begins of a judge that is validated, but not on the skin of these people."""

EDIT_MADE = ("success", "soft_erasure", "skipped", "unchanged", "refused")
"""Whether the edit was made; the other headline quantities say what else changed."""

EDIT_MADE_AXES = ("edit_success", "skip", "visible_change")
"""The axes that tell whether an edit was made."""

EDIT_SIZES = ("changed_area", "mean_delta_e")
"""The axes that tell how much of a picture was changed, by which no person is kept or lost."""

HEADLINES = (
    *EDIT_MADE,
    "skin_lightened",
    "skin_darkened",
    "skin_delta_l",
    "race_changed",
    "gender_changed",
    "another_person",
    "identity_drifted",
    "identity_distance",
    "gender_delta",
    "age_change",
    "age_delta_years",
    "age_accuracy",
)
"""In the order of their figures."""


def is_headline(quantity: str) -> bool:
    """Whether the quantity gets a figure. A plugin's own quantities always do."""
    known = rubric.load()
    return quantity in HEADLINES or not (quantity in known.axes or rate_of(quantity) or quantity == "failed")


def is_drift(quantity: str) -> bool:
    """Whether the quantity says how far the person changed: it has a meaning only where an edit was made."""
    axis = rubric.load().axes.get(axis_of(quantity))
    return axis is not None and axis.unchanged is not None and axis.name not in (*EDIT_MADE_AXES, *EDIT_SIZES)


def axis_of(quantity: str) -> str:
    """The axis that a quantity is computed from."""
    rate = rate_of(quantity)
    return rate.axis if rate else quantity


def deciding(standing: Standing, numbers: Iterable[tuple[str, str]]) -> set[tuple[str, str]]:
    """Of these (judge, quantity), those that verdicts and the correction for multiple comparisons go by.

    What is counted without a judge, and what a judge is validated for. If no judge is validated for anything, all that
    did not fail calibration; it is marked as not calibrated.
    """
    notes = {(judge, quantity): mark(standing, judge, quantity) for judge, quantity in numbers}
    if any(judge and not note for (judge, _), note in notes.items()):
        return {number for number, note in notes.items() if not note}
    unfit = (FAILED_CALIBRATION, CANNOT_TELL, FAILED_CONTROL_PAIRS)
    return {number for number, note in notes.items() if not note.startswith(unfit)}


def is_unfit(note: str) -> bool:
    """Whether the note on a judge's number means that it decides nothing and is folded away."""
    return note.startswith((FAILED_CALIBRATION, FAILED_CONTROL_PAIRS))


def is_headline_axis(axis: str) -> bool:
    """Whether the axis, or a named rate on it, gets a figure."""
    rates = (rate.name for rate in rubric.load().rates.values() if rate.axis == axis)
    return is_headline(axis) or any(is_headline(name) for name in rates)


def order_of(quantity: str) -> int:
    """The position of a quantity's figure."""
    return HEADLINES.index(quantity) if quantity in HEADLINES else len(HEADLINES)
