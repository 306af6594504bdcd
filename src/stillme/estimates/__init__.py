"""Estimates with their uncertainty.

Rows come as columns: `Edits`, and one `Scores` for each judge and axis. Settings say what is compared and how finely.

- `estimate`: every mean and named rate, for all, by group, as contrast and as disparity; `gap` is one contrast.
- `by_prompt`, `by_intersection`, `at_every_cut`: the same for each prompt or kind of prompt, for intersections of
  attributes, and at every cut of the scales. `Edits.where`, `.pooled` and `.crossed` make other parts.
- `contrasts`: difference and ratio against the reference, the rest or each other, and their tests.
- `intraclass_correlations`: the correlation of one portrait's edits, and their design effect.
- `paired_effects`: a mitigation against the baseline. `above_floor`: minus the same under the no-op arm.
- `gap_changes`: how the gap of every pair of groups differs between two arms or editors.
- `adherence`: role prompts.
- `row_tests`, `paired_row_tests`: the classical tests on single edits, marked naive where they are.
- `agreement`, `people` (modules of their own): agreement of raters; judges against people, rates corrected by people.
- `find_gaps`: every gap that can make a headline, with its word.
- `holm`, `benjamini_hochberg`: adjustment for multiple tests.
"""

from stillme.core.types import Genders, Settings
from stillme.estimates.classical import (
    IntraclassCorrelation,
    RowTest,
    intraclass_correlations,
    paired_row_tests,
    row_tests,
)
from stillme.estimates.contrasts import Contrast, contrasts
from stillme.estimates.estimating import Disparity, at_every_cut, by_intersection, by_prompt, estimate, gap
from stillme.estimates.gap_changes import GapChanges, PairChange, gap_changes
from stillme.estimates.headlines import Finding, Standing, find_gaps, mark
from stillme.estimates.paired import PairedEffect, above_floor, paired_effects
from stillme.estimates.permutation import NullBand, PermutationTest, benjamini_hochberg, holm
from stillme.estimates.roles import Adherence, adherence
from stillme.estimates.rows import Edits, EditState, JudgeKind, RatingState, Scores, headline, one_judge

__all__ = [
    "Adherence",
    "Contrast",
    "Disparity",
    "EditState",
    "Edits",
    "Finding",
    "GapChanges",
    "Genders",
    "IntraclassCorrelation",
    "JudgeKind",
    "NullBand",
    "PairChange",
    "PairedEffect",
    "PermutationTest",
    "RatingState",
    "RowTest",
    "Scores",
    "Settings",
    "Standing",
    "above_floor",
    "adherence",
    "at_every_cut",
    "benjamini_hochberg",
    "by_intersection",
    "by_prompt",
    "contrasts",
    "estimate",
    "find_gaps",
    "gap",
    "gap_changes",
    "headline",
    "holm",
    "intraclass_correlations",
    "mark",
    "one_judge",
    "paired_effects",
    "paired_row_tests",
    "row_tests",
]
