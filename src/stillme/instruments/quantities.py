"""The names of what instruments measure: the rubric's axes with a unit of their own."""

from __future__ import annotations

SKIN = ("skin_delta_l", "skin_delta_e", "skin_delta_ita")
IDENTITY = ("identity_distance", "identity_drift", "identity_swap")
DESCRIBED = (*IDENTITY, "age_delta_years", "gender_delta", "race_distance")
REGIONS = ("changed_face", "changed_hair", "changed_clothes", "changed_background")
CHANGED = ("changed_area", *REGIONS)
QUANTITIES = (*SKIN, *DESCRIBED, *CHANGED)
SCALES = ("skin_tone", "race_change", "gender_change", "age_change")
"""The paper's scales that a measurement decides."""
SOURCE_SKIN = "source_skin_l"
"""How light the portrait's skin is: not a change, but whose licence counts."""
