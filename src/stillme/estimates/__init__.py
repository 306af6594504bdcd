"""What the rows say, and how surely."""

from stillme.estimates.disparity import Disparity, NullBand
from stillme.estimates.estimating import estimate, gap
from stillme.estimates.rows import Edits, EditState, RatingState, Scores
from stillme.estimates.settings import Settings
from stillme.estimates.standing import Standing, mark
from stillme.estimates.tables import write_tables

__all__ = [
    "Disparity",
    "EditState",
    "Edits",
    "NullBand",
    "RatingState",
    "Scores",
    "Settings",
    "Standing",
    "estimate",
    "gap",
    "mark",
    "write_tables",
]
