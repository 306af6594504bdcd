"""People as a judge: the ratings of a human study, in the same form as the models'."""

from __future__ import annotations

from stillme.core import rubric
from stillme.core.protocols import Judge, JudgeCapabilities, Parameters, spec_of
from stillme.core.types import Abstained, Assessment, Pair


class PeopleParameters(Parameters):
    """None: the study says who was asked what."""


class People(Judge):
    """Ratings by people, from a human study; `epochs` is the largest number of ratings per edit."""

    Parameters = PeopleParameters

    def __init__(self, parameters: PeopleParameters) -> None:
        self.spec = spec_of("people", rubric.load().version, parameters)
        asked = tuple(name for name, axis in rubric.load().axes.items() if axis.is_asked)
        self.capabilities = JudgeCapabilities(kind="person", axes=asked, given=True)

    def judge_one(self, pair: Pair) -> Assessment:
        """Abstain: `stillme study close` adds the ratings."""
        return self.alike(Abstained(reason="no one has rated this edit in a study"))
