"""The judge that is people: a human study's ratings, read beside the models'."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import ClassVar

from pydantic import BaseModel

from stillme import rubric
from stillme.protocols import JudgeCapabilities, Needs, Parameters, spec_of
from stillme.types import Abstained, Assessment, Pair


class PeopleParameters(Parameters):
    """Nothing to set: who was asked what is in the study."""


class People:
    """What the raters of human studies answered; `epochs` says how many ratings an edit may have."""

    Parameters: ClassVar[type[BaseModel]] = PeopleParameters
    needs: ClassVar[Needs] = Needs()

    def __init__(self, parameters: PeopleParameters) -> None:
        self.spec = spec_of("people", rubric.load().version, parameters)
        scales = tuple(name for name, axis in rubric.load().axes.items() if axis.is_scale)
        self.capabilities = JudgeCapabilities(kind="person", axes=scales, given=True)

    def judge(self, pairs: Sequence[Pair]) -> Iterator[Assessment]:
        """A program cannot ask people: `stillme study close` brings their ratings."""
        unseen = Abstained(reason="people rate in a study, and none has rated this picture")
        for _ in pairs:
            yield Assessment(ratings=dict.fromkeys(self.capabilities.axes, unseen))

    def close(self) -> None:
        """Nothing is held."""
