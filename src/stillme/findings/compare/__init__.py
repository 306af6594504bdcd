"""Two editors, or two checkpoints of one, on the same requests: what became worse, for whom, with intervals."""

from stillme.findings.compare.changes import Change, Comparison, GapChange, Worse, compare, worse_when
from stillme.findings.compare.matched_edits import ChosenEditor, Matched, choose, identical_edits, match, pick

__all__ = [
    "Change",
    "ChosenEditor",
    "Comparison",
    "GapChange",
    "Matched",
    "Worse",
    "choose",
    "compare",
    "identical_edits",
    "match",
    "pick",
    "worse_when",
]
