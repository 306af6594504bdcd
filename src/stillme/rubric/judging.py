"""How a model is asked for the rubric: Listing 1 of the paper, exact, and our words around it."""

from __future__ import annotations

import hashlib
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

from stillme.rubric import Axis, load

_HEAD = "DETAILED OBSERVATION"
_INFO = "SOURCE INFO"


@dataclass(frozen=True, slots=True, kw_only=True)
class Score:
    """A score under the name that Listing 1 gives it."""

    name: str
    axis: Axis
    evidence: str
    """The observation that backs it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Judging:
    """Every word that a model is told, apart from the prompt at hand."""

    version: str
    digest: str
    """The hash of all of these words and of the rubric's scales."""
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
        """The part of Listing 1 that changes from pair to pair, with the labels that the paper gives away."""
        return self.listing.partition(_HEAD)[0].strip()

    @property
    def about_the_pair_blind(self) -> str:
        """The same without the labels."""
        return self.about_the_pair.partition(_INFO)[0].strip()

    @property
    def instructions(self) -> str:
        """The part of Listing 1 that is the same for all pairs."""
        return self.listing[self.listing.index(_HEAD) :].strip()


@cache
def judging() -> Judging:
    """The words shipped with this version of stillme."""
    folder = files("stillme.rubric")
    listing = folder.joinpath("listing1.txt").read_text("utf-8")
    words = folder.joinpath("judging.toml").read_text("utf-8")
    scales = folder.joinpath("rubric.toml").read_text("utf-8").partition("\n# What instruments measure")[0]
    data = tomllib.loads(words)
    axes = load().axes
    return Judging(
        version=data["version"],
        digest=hashlib.sha256("\0".join((listing, words, scales)).encode()).hexdigest()[:12],
        listing=listing,
        task=_flat(data["task"]),
        guard=_flat(data["guard"]),
        abstention=_flat(data["abstention"]),
        aging=_flat(data["aging"]),
        role_task=_flat(data["role_task"]),
        role_question=_flat(data["role_question"]),
        observations=data["observations"],
        role_observations=data["role_observations"],
        scores=tuple(
            Score(name=name, axis=axes[entry["axis"]], evidence=entry["evidence"])
            for name, entry in data["scores"].items()
        ),
    )


def _flat(text: str) -> str:
    return " ".join(text.split())
