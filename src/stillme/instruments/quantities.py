"""The names of what instruments measure: the rubric's axes with a unit of their own."""

from __future__ import annotations

SKIN = ("skin_delta_l", "skin_delta_e", "skin_delta_ita")
IDENTITY = ("identity_distance", "identity_drift", "identity_swap")
DESCRIBED = (*IDENTITY, "age_delta_years", "gender_delta")
REGIONS = ("changed_face", "changed_hair", "changed_clothes", "changed_background")
CHANGED = ("changed_area", "mean_delta_e", "visible_change", *REGIONS)
NOT_VISIBLE, VISIBLE = 1.0, 2.0
"""The answers of `visible_change`."""
QUANTITIES = (*SKIN, *DESCRIBED, *CHANGED)
SCALES = ("skin_tone", "gender_change", "age_change")
"""The paper's scales that a measurement decides."""
SOURCE_SKIN = "source_skin_l"
"""How light the portrait's skin is: not a change, but on which skin the judge must be validated."""
