"""How far raters agree with one another, and judges with people.

- `agreement`: Fleiss' and weighted Cohen's kappa, Krippendorff's alpha, exact and within-one agreement of raters.
- `against_people`: a judge's bias, error, correlation and within-one share against people, by axis and by group.
- `corrected`: means and rates by a judge on all edits, corrected by the part that people rated too.
- `choose_informative`: which edits people should rate, drawn with known chances that `corrected` takes.
- `alpha`, `fleiss`, `cohen`: the bare numbers of a table of items × raters.
"""

from stillme.estimates.agreement.choosing import (
    ChosenRows,
    choose_informative,
    disagreement,
    draw_unequally,
    informative_chances,
)
from stillme.estimates.agreement.correcting import Corrected, corrected
from stillme.estimates.agreement.judging import AgainstPeople, against_people, mean_of
from stillme.estimates.agreement.measures import Level, alpha, cohen, fleiss
from stillme.estimates.agreement.raters import Agreement, agreement, ratings_of

__all__ = [
    "AgainstPeople",
    "Agreement",
    "ChosenRows",
    "Corrected",
    "Level",
    "against_people",
    "agreement",
    "alpha",
    "choose_informative",
    "cohen",
    "corrected",
    "disagreement",
    "draw_unequally",
    "fleiss",
    "informative_chances",
    "mean_of",
    "ratings_of",
]
