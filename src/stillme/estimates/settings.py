"""Settings of the estimates."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Literal

from stillme.core.errors import StillmeError
from stillme.estimates.rows import TIMES


def _none() -> Mapping[str, str]:
    return {}


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """The estimates section of an audit."""

    factors: tuple[str, ...]
    """The attributes whose groups are compared."""
    reference: Mapping[str, str] = field(default_factory=_none)
    """Factor to the level that others are compared with; without one, each level against the rest."""
    confidence: float = 0.95
    prompts: Literal["fixed", "sample"] = "fixed"
    """`fixed`: results are about these prompts. `sample`: about prompts like these, so prompts are clusters too."""
    smallest_effects: Mapping[str, float] = field(default_factory=dict[str, float])
    """The smallest differences that matter, where the audit has its own."""
    matched_on: tuple[str, ...] = ()
    """Attributes that portraits are matched on although they are not compared here; those compared always count."""

    def __post_init__(self) -> None:
        if not 0.5 <= self.confidence < 1:
            raise StillmeError(f"confidence is {self.confidence}; give a share from 0.5 to below 1.")
        if self.prompts not in ("fixed", "sample"):
            raise StillmeError(f"prompts is {self.prompts!r}; give 'fixed' or 'sample'.")
        if stray := sorted(set(self.reference) - set(self.factors)):
            raise StillmeError(f"reference names {stray[0]!r}, which is not among the factors {list(self.factors)}.")

    def comparing(self, *factors: str, reference: Mapping[str, str] | None = None) -> Settings:
        """The same with other factors compared; portraits stay matched as they were."""
        matched_on = tuple(dict.fromkeys((*self.factors, *self.matched_on)))
        return replace(self, factors=factors, reference=reference or {}, matched_on=matched_on)

    def matched_with(self, factor: str) -> tuple[str, ...]:
        """The attributes that the portraits of a factor's levels are matched on: all declared ones but its own."""
        own = factor.split(TIMES)
        return tuple(name for name in self.design_factors if name not in own)

    @property
    def design_factors(self) -> tuple[str, ...]:
        """Every attribute that the portraits were chosen by."""
        declared = (*self.factors, *self.matched_on)
        return tuple(dict.fromkeys(part for factor in declared for part in factor.split(TIMES)))
