"""Find pictures that should not both become portraits: the same picture twice, or the same person."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np

from stillme.colour import Floats
from stillme.curation.criteria import load_criteria
from stillme.curation.measuring import Measured

_MIN_PRESENCE = 0.9
"""The mesh's presence below which a face is too hidden to be compared with others."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SimilarPair:
    """Two pictures, by their ids."""

    first: str
    second: str
    kind: Literal["picture", "person"]
    distance: float
    """Bits of 64 for a picture, distance of embeddings for a person."""

    @property
    def words(self) -> str:
        """What they seem to show, as text."""
        return "one picture" if self.kind == "picture" else "perhaps one person"


def find_similar(measured: Mapping[str, Measured]) -> tuple[SimilarPair, ...]:
    """Pairs that show one picture (by its coarse shape) or perhaps one person (by the face's embedding)."""
    return tuple(sorted(_pairs(measured), key=lambda pair: (pair.kind, pair.distance, pair.first)))


def _pairs(measured: Mapping[str, Measured]) -> Iterator[SimilarPair]:
    limits = load_criteria()
    ids = list(measured)
    if len(ids) < 2:
        return
    hashes = np.array([picture.hash for picture in measured.values()], dtype=np.uint64)
    faces = np.stack([_face(picture) for picture in measured.values()])
    for index, first in enumerate(ids[:-1]):
        bits = np.bitwise_count(hashes[index + 1 :] ^ hashes[index])
        apart = ((faces[index + 1 :] - faces[index]) ** 2).sum(axis=1) / 2
        person = apart <= limits.same_person
        # Portraits with the same framing share a coarse shape; where both show a face, it must be the same one too.
        picture = (bits <= limits.same_picture) & (person | np.isnan(apart))
        for place in np.flatnonzero(picture | person):
            same = bool(picture[place])
            yield SimilarPair(
                first=first,
                second=ids[index + 1 + int(place)],
                kind="picture" if same else "person",
                distance=float(bits[place]) if same else round(float(apart[place]), 3),
            )


def _face(measured: Measured) -> Floats:
    """The embedding; NaN, which is near nothing, where no face is certain."""
    if measured.embedding is None or measured.values.get("presence", 0.0) < _MIN_PRESENCE:
        return np.full(128, np.nan, dtype=np.float32)
    return measured.embedding
