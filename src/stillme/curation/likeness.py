"""Find pictures that should not both become portraits: one picture twice, or one person."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np

from stillme.colour import Floats
from stillme.curation.criteria import load_criteria
from stillme.curation.measuring import Measured

_SURE = 0.9
"""The mesh's presence below which a face is too hidden to be compared with others."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Alike:
    """Two pictures, by their ids."""

    first: str
    second: str
    kind: Literal["picture", "person"]
    distance: float
    """Bits of 64 for a picture, distance of embeddings for a person."""

    @property
    def words(self) -> str:
        """What they seem to show."""
        return "one picture" if self.kind == "picture" else "perhaps one person"


def find_alike(measured: Mapping[str, Measured]) -> tuple[Alike, ...]:
    """Pairs that show one picture (by its coarse shape) or perhaps one person (by the face's embedding)."""
    return tuple(sorted(_pairs(measured), key=lambda pair: (pair.kind, pair.distance, pair.first)))


def _pairs(measured: Mapping[str, Measured]) -> Iterator[Alike]:
    limits = load_criteria()
    ids = list(measured)
    if len(ids) < 2:
        return
    hashes = np.array([each.hash for each in measured.values()], dtype=np.uint64)
    faces = np.stack([_face(each) for each in measured.values()])
    for at, first in enumerate(ids[:-1]):
        bits = np.bitwise_count(hashes[at + 1 :] ^ hashes[at])
        apart = np.linalg.norm(faces[at + 1 :] - faces[at], axis=1)
        person = apart <= limits.same_person
        # Portraits taken alike have one coarse shape; where both show a face, it must be the same one.
        picture = (bits <= limits.same_picture) & (person | np.isnan(apart))
        for place in np.flatnonzero(picture | person):
            same = bool(picture[place])
            yield Alike(
                first=first,
                second=ids[at + 1 + int(place)],
                kind="picture" if same else "person",
                distance=float(bits[place]) if same else round(float(apart[place]), 3),
            )


def _face(measured: Measured) -> Floats:
    """The embedding; nothing that compares as near where there is no face to be sure of."""
    if measured.embedding is None or measured.values.get("presence", 0.0) < _SURE:
        return np.full(128, np.nan, dtype=np.float32)
    return measured.embedding
