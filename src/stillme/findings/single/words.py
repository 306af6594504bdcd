"""A measured quantity as a person reads it."""

from __future__ import annotations

from stillme.core import rubric
from stillme.core.rubric.limits import load as load_limits
from stillme.estimates.numbers import decimal, percent

_UNCHANGED = "no measurable change"
_SHARE = "share of the "


def title_of(axis: str) -> str:
    """What an axis is called beside `in_words`."""
    return "Person" if axis == "identity_swap" else rubric.load().title(axis)


def in_words(axis: str, value: float) -> str:
    """`39 % of the picture`, `no measurable change (+0.1 L*)`: the value with a unit that needs no table."""
    match axis:
        case "skin_delta_l":
            return _beyond(axis, value, f"{decimal(value, 1, plus=True)} L*")
        case "source_skin_l":
            return f"{decimal(value, 0)} L*"
        case "skin_delta_ita":
            return f"{decimal(value, 0, plus=True)}°"
        case "age_delta_years":
            return _beyond(axis, value, f"{decimal(value, 0, plus=True)} years")
        case "gender_delta":
            if abs(value) <= load_limits().axes[axis].flag:
                return _UNCHANGED
            return f"{abs(value):.2f} of the way towards a {'male' if value > 0 else 'female'} reading"
        case "identity_swap":
            return f"{'same' if value < 1 else 'another'} person ({value:.2f}; look-alikes start at 1)"
        case "identity_drift":
            return f"{value:.2f} (the same picture saved again stays below 1)"
        case _:
            known = rubric.load().axes.get(axis)
            unit = known.unit if known else ""
            if unit.startswith(_SHARE):
                return f"{percent(value, 0)} of the {unit.removeprefix(_SHARE)}"
            return f"{decimal(value, 2)} {unit}".rstrip()


def _beyond(axis: str, value: float, words: str) -> str:
    """The value, below the smallest effect behind the words that say so."""
    return f"{_UNCHANGED} ({words})" if abs(value) < rubric.load().smallest_effects[axis] else words
