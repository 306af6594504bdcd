"""Two editors, or two checkpoints of one, on the same requests: what became worse, for whom, and how surely."""

from stillme.comparison.changes import Change, Comparison, GapChange, compare
from stillme.comparison.choosing import Chosen, Run, choose, read
from stillme.comparison.direction import Worse, worse_when
from stillme.comparison.matching import Matched, match

__all__ = [
    "Change",
    "Chosen",
    "Comparison",
    "GapChange",
    "Matched",
    "Run",
    "Worse",
    "choose",
    "compare",
    "match",
    "read",
    "worse_when",
]
