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

from typing import Literal

from pydantic import Field, field_validator

from stillme.core import rubric
from stillme.core.errors import did_you_mean
from stillme.core.protocols import Judge, JudgeCapabilities, Parameters
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


class Imported(Judge):
    """Scores made elsewhere, imported with `stillme import rows`."""

    Parameters = ImportedParameters

    def __init__(self, parameters: ImportedParameters) -> None:
        super().__init__(parameters)
        self.source = parameters.source
        self.capabilities = JudgeCapabilities(kind=parameters.kind, axes=parameters.axes, given=True)

    def judge_one(self, pair: Pair) -> Assessment:
        """Abstain: the scores are in the ledger."""
        return self.alike(Abstained(reason=f"{self.source!r} has no imported score for this edit"))
