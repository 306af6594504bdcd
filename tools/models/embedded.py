"""Write what instruments read from the embedded portraits at the demo's size: `python tools/models/embedded.py`.

Run it after every change of the instruments' code or weights; a test says when.
"""

from __future__ import annotations

import tempfile
from importlib.resources import as_file, files
from pathlib import Path

import numpy as np
from fingerprint import code_hash

from stillme.api.demo import write_demo
from stillme.core.images import read_rgb
from stillme.instruments import faces
from stillme.instruments.faces import memory
from stillme.instruments.faces.landmarks import Mesh
from stillme.instruments.faces.memory import describe, drawn
from stillme.portraits.folder import load


def main() -> None:
    memory.embedded = dict  # what was shipped before is not what the networks see now
    with tempfile.TemporaryDirectory() as scratch:
        write_demo(Path(scratch))
        for portrait in load(Path(scratch) / "portraits"):
            rgb = read_rgb(portrait.image.path)
            mesh = faces.mesh(rgb, faces.find(rgb)[0])
            describe(rgb, mesh)
            drawn(rgb, mesh)
    seen = memory.remembered()
    found = {key: value[0] for key, value in seen.items() if isinstance(value, list)}
    meshes = {key: value for key, value in seen.items() if isinstance(value, Mesh)}
    described = {key: value for key, value in seen.items() if isinstance(value, np.ndarray)}
    drawings = {key: value for key, value in seen.items() if isinstance(value, float)}
    boxes = [[f.left, f.top, f.width, f.height, f.score, *f.points.ravel()] for f in found.values()]
    with as_file(files("stillme.instruments.faces")) as folder:
        np.savez_compressed(
            folder / memory.EMBEDDED,
            code=code_hash(),
            find_keys=_keys(found),
            find=np.array(boxes, dtype=np.float64),
            mesh_keys=_keys(meshes),
            points=np.array([mesh.points for mesh in meshes.values()]),
            depth=np.array([mesh.depth for mesh in meshes.values()]),
            presence=np.array([mesh.presence for mesh in meshes.values()]),
            describe_keys=_keys(described),
            describe=np.array(list(described.values())),
            drawn_keys=_keys(drawings),
            drawn=np.array(list(drawings.values())),
        )


def _keys(seen: dict[bytes, object]) -> np.ndarray:
    return np.array([np.frombuffer(key, dtype=np.uint8) for key in seen])


if __name__ == "__main__":
    main()
