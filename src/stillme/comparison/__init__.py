"""Two editors, or two checkpoints of one, on the same requests: what became worse, for whom, with intervals."""

from stillme.comparison.changes import Change, Comparison, GapChange, compare
from stillme.comparison.choosing import Chosen, choose, pick
from stillme.comparison.direction import Worse, worse_when
from stillme.comparison.matching import Matched, match

__all__ = [
    "Change",
    "Chosen",
    "Comparison",
    "GapChange",
    "Matched",
    "Worse",
    "choose",
    "compare",
    "match",
    "pick",
    "worse_when",
]
