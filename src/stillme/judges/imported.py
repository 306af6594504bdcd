"""A judge whose scores were made elsewhere and imported with `stillme import rows`.

    [[judges]]
    use = "imported"
    name = "our raters"
    epochs = 3
    [judges.parameters]
    source = "raters, spring 2026"
    kind = "person"
    axes = ["edit_success", "skin_tone"]

Its rows are in the ledger under the specification that these parameters make, so it is never asked.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import ClassVar, Literal

from pydantic import BaseModel, Field, field_validator

from stillme.core import rubric
from stillme.core.errors import did_you_mean
from stillme.core.protocols import JudgeCapabilities, Needs, Parameters, spec_of
from stillme.core.types import Abstained, Assessment, Pair


class ImportedParameters(Parameters):
    """Where the scores come from, and their axes."""

    source: str = Field(min_length=1)
    """Where the scores come from. Another source is another judge."""
    kind: Literal["model", "instrument", "person"] = "model"
    """People are compared with the other judges and never averaged with them."""
    axes: tuple[str, ...] = Field(min_length=1)
    """The axes that are scored, by their names in the rubric."""

    @field_validator("axes")
    @classmethod
    def _are_known(cls, axes: tuple[str, ...]) -> tuple[str, ...]:
        known = rubric.load().axes
        for axis in axes:
            if axis not in known:
                raise ValueError(f"there is no axis {axis!r}.{did_you_mean(axis, known)} Known: {', '.join(known)}")
        # In a fixed order, so that the same axes have the same key.
        return tuple(name for name in known if name in axes)


class Imported:
    """Scores made elsewhere, imported with `stillme import rows`."""

    Parameters: ClassVar[type[BaseModel]] = ImportedParameters
    needs: ClassVar[Needs] = Needs()

    def __init__(self, parameters: ImportedParameters) -> None:
        self.source = parameters.source
        self.spec = spec_of("imported", "1", parameters)
        self.capabilities = JudgeCapabilities(kind=parameters.kind, axes=parameters.axes, given=True)

    def judge(self, pairs: Sequence[Pair]) -> Iterator[Assessment]:
        """Abstain from every pair: the scores are in the ledger."""
        unscored = Abstained(reason=f"{self.source!r} has no imported score for this edit")
        for _ in pairs:
            yield Assessment(ratings=dict.fromkeys(self.capabilities.axes, unscored))

    def close(self) -> None:
        """Nothing to release."""
