"""The names of what instruments measure: the rubric's axes with a unit of their own."""

from __future__ import annotations

SKIN = ("skin_delta_l", "skin_delta_e", "skin_delta_ita")
DESCRIBED = ("identity_distance", "age_delta_years", "gender_delta", "race_distance")
QUANTITIES = (*SKIN, *DESCRIBED, "changed_area")
SCALES = ("skin_tone", "race_change", "gender_change", "age_change")
"""The paper's scales that a measurement decides."""
