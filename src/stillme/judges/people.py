"""People as a judge: the ratings of a human study, in the same form as the models'."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import ClassVar

from pydantic import BaseModel

from stillme.core import rubric
from stillme.core.protocols import JudgeCapabilities, Needs, Parameters, spec_of
from stillme.core.types import Abstained, Assessment, Pair


class PeopleParameters(Parameters):
    """None: the study says who was asked what."""


class People:
    """Ratings by people, from a human study; `epochs` is the largest number of ratings per edit."""

    Parameters: ClassVar[type[BaseModel]] = PeopleParameters
    needs: ClassVar[Needs] = Needs()

    def __init__(self, parameters: PeopleParameters) -> None:
        self.spec = spec_of("people", rubric.load().version, parameters)
        asked = tuple(name for name, axis in rubric.load().axes.items() if axis.is_asked)
        self.capabilities = JudgeCapabilities(kind="person", axes=asked, given=True)

    def judge(self, pairs: Sequence[Pair]) -> Iterator[Assessment]:
        """Abstain from every pair: `stillme study close` adds the ratings."""
        unrated = Abstained(reason="nobody has rated this edit in a study")
        for _ in pairs:
            yield Assessment(ratings=dict.fromkeys(self.capabilities.axes, unrated))

    def close(self) -> None:
        """Nothing to release."""
