"""How a model is asked to apply the rubric: Listing 1 of the paper, verbatim, and our text around it."""

from __future__ import annotations

import hashlib
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

from stillme.core.rubric import Axis, load

_INSTRUCTIONS = "DETAILED OBSERVATION"
_LABELS = "SOURCE INFO"


@dataclass(frozen=True, slots=True, kw_only=True)
class Score:
    """A score under the name that Listing 1 gives it."""

    name: str
    axis: Axis
    evidence: str
    """The observation that backs it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Judging:
    """All text that a model is told, apart from the prompt."""

    version: str
    digest: str
    """The hash of this text and of the rubric's scales."""
    listing: str
    """Listing 1 as the paper prints it."""
    task: str
    guard: str
    abstention: str
    aging: str
    role_task: str
    role_question: str
    observations: Mapping[str, str]
    role_observations: Mapping[str, str]
    scores: tuple[Score, ...]

    @property
    def about_the_pair(self) -> str:
        """The part of Listing 1 that differs between pairs, with the labels that the paper discloses."""
        return self.listing.partition(_INSTRUCTIONS)[0].strip()

    @property
    def about_the_pair_blind(self) -> str:
        """The same without the labels."""
        return self.about_the_pair.partition(_LABELS)[0].strip()

    @property
    def instructions(self) -> str:
        """The part of Listing 1 that is the same for all pairs."""
        return self.listing[self.listing.index(_INSTRUCTIONS) :].strip()


@cache
def judging() -> Judging:
    """The text shipped with this version of stillme."""
    folder = files("stillme.core.rubric")
    listing = folder.joinpath("listing1.txt").read_text("utf-8")
    text = folder.joinpath("judging.toml").read_text("utf-8")
    scales = folder.joinpath("rubric.toml").read_text("utf-8").partition("\n# What instruments measure")[0]
    data = tomllib.loads(text)
    axes = load().axes
    return Judging(
        version=data["version"],
        digest=hashlib.sha256("\0".join((listing, text, scales)).encode()).hexdigest()[:12],
        listing=listing,
        task=_one_line(data["task"]),
        guard=_one_line(data["guard"]),
        abstention=_one_line(data["abstention"]),
        aging=_one_line(data["aging"]),
        role_task=_one_line(data["role_task"]),
        role_question=_one_line(data["role_question"]),
        observations=data["observations"],
        role_observations=data["role_observations"],
        scores=tuple(
            Score(name=name, axis=axes[entry["axis"]], evidence=entry["evidence"])
            for name, entry in data["scores"].items()
        ),
    )


def _one_line(text: str) -> str:
    return " ".join(text.split())
