"""What instruments read from a picture is computed once: it is remembered by the picture's pixels.

Several rooms look at the same portrait, and an editor that changed nothing gives its pixels back. What is read from
the embedded portraits, at the size of the demo, is shipped; `tools/models/embedded.py` computes it, also after a
change of code or weights.
"""

from __future__ import annotations

import hashlib
import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, Any, TypeVar, cast

import numpy as np

from stillme.instruments.faces import detection, landmarks
from stillme.instruments.faces.detection import MIN_SCORE, Face
from stillme.instruments.faces.landmarks import Mesh
from stillme.instruments.faces.raster import Picture

if TYPE_CHECKING:
    from stillme.instruments.identity import FaceDescription

T = TypeVar("T")

EMBEDDED = "embedded.npz"
_IDENTITY = 128
"""Numbers of a description that tell people apart; the rest is appearance."""
_REMEMBERED = 1024
"""Results of at most 6 kB each."""

_memory: OrderedDict[bytes, Any] = OrderedDict()
_latest = threading.local()


def find(rgb: Picture, *, min_score: float = MIN_SCORE) -> list[Face]:
    """All faces in a picture, the most prominent first; an empty list where there is none."""
    about = np.float64(min_score).tobytes()
    return list(recalled("find", rgb, about, lambda: detection.find(rgb, min_score=min_score)))


def mesh(rgb: Picture, face: Face) -> Mesh:
    """Fit the mesh to `face`."""
    box = np.array([face.left, face.top, face.width, face.height], dtype=np.float64)
    return recalled("mesh", rgb, box.tobytes() + face.points.tobytes(), lambda: landmarks.mesh(rgb, face))


def describe(rgb: Picture, mesh: Mesh) -> FaceDescription:
    """Read a face that the mesh was fitted to."""
    from stillme.instruments import identity  # which itself needs faces

    features = recalled("describe", rgb, _bytes_of(mesh), lambda: identity.describe(rgb, mesh).features)
    return identity.FaceDescription(identity=features[:_IDENTITY], appearance=features[_IDENTITY:])


def drawn(rgb: Picture, mesh: Mesh) -> float:
    """How much a face looks drawn; up to 0 it passes for a photograph."""
    from stillme.instruments import domain  # which itself needs faces

    return recalled("drawn", rgb, _bytes_of(mesh), lambda: domain.drawn(rgb, mesh))


def recalled(what: str, rgb: Picture, about: bytes, compute: Callable[[], T]) -> T:
    """The result for these pixels and `about`; two threads may compute the same, but none waits for the other."""
    key = hashlib.sha256(_hash_of(rgb) + what.encode() + about).digest()
    found = _memory.get(key, embedded().get(key))
    if found is None:
        found = compute()
        while len(_memory) >= _REMEMBERED:
            _memory.popitem(last=False)
        _memory[key] = found
    return cast("T", found)


def remembered() -> Mapping[bytes, Any]:
    """What was computed of late, by key."""
    return dict(_memory)


@cache
def embedded() -> Mapping[bytes, Any]:
    """What is shipped, by key."""
    seen: dict[bytes, Any] = {}
    with files("stillme.instruments.faces").joinpath(EMBEDDED).open("rb") as stream, np.load(stream) as data:
        for key, row in zip(data["find_keys"], data["find"], strict=True):
            left, top, width, height, score = row[:5].tolist()
            points = row[5:].reshape(5, 2).astype(np.float32)
            face = Face(left=left, top=top, width=width, height=height, points=points, score=score)
            seen[key.tobytes()] = [face]
        for key, points, depth, presence in zip(
            data["mesh_keys"], data["points"], data["depth"], data["presence"], strict=True
        ):
            seen[key.tobytes()] = Mesh(points=points, depth=depth, presence=float(presence))
        for key, numbers in zip(data["describe_keys"], data["describe"], strict=True):
            seen[key.tobytes()] = numbers
        for key, number in zip(data["drawn_keys"], data["drawn"], strict=True):
            seen[key.tobytes()] = float(number)
    return seen


def _bytes_of(mesh: Mesh) -> bytes:
    return mesh.points.tobytes() + np.float64(mesh.presence).tobytes()


def _hash_of(rgb: Picture) -> bytes:
    """Several results of one picture are asked for in a row; only pixels that nothing can change are hashed once."""
    if getattr(_latest, "rgb", None) is rgb:
        return _latest.digest
    digest = hashlib.sha256(repr(rgb.shape).encode() + np.ascontiguousarray(rgb).data).digest()
    if not rgb.flags.writeable:
        _latest.rgb, _latest.digest = rgb, digest
    return digest
