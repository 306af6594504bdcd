"""Apparent race, in FairFace's taxonomy: how far an edit moves a face between groups, never what anyone is."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from importlib.resources import as_file, files

import numpy as np
from numpy.typing import NDArray

from stillme.colour import Floats


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Heads:
    """A linear classifier on face embeddings, trained by `tools/models/train_heads.py`."""

    groups: tuple[str, ...]
    weights: Floats
    bias: Floats
    centre: Floats
    spread: Floats

    def read(self, embedding: Floats) -> Floats:
        """The probability of each group's label for a face, in the order of `groups`."""
        scores = self.weights @ ((embedding - self.centre) / self.spread) + self.bias
        raised = np.exp(scores - scores.max())
        return (raised / raised.sum()).astype(np.float32)


@cache
def heads() -> Heads:
    """Read the classifier that ships with this version."""
    with as_file(files("stillme.instruments").joinpath("heads", "race.npz")) as path, np.load(path) as data:
        return Heads(
            groups=tuple(str(group) for group in data["groups"]),
            weights=data["weights"],
            bias=data["bias"],
            centre=data["centre"],
            spread=data["spread"],
        )


def divergence(p: Floats, q: Floats) -> float:
    """Jensen–Shannon distance (base 2) of two probability vectors: 0 the same, 1 nothing in common."""
    middle = (p + q) / 2
    return float(np.sqrt(max((_relative(p, middle) + _relative(q, middle)) / 2, 0.0)))


def _relative(p: Floats, q: NDArray[np.floating]) -> float:
    some = p > 0
    return float((p[some] * np.log2(p[some] / q[some])).sum())
