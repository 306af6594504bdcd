"""Which code, thresholds and weights a measured number belongs to."""

from __future__ import annotations

import ast
import hashlib
from importlib.resources import files

_FACES = ("chips", "detection", "landmarks", "networks", "raster")
_INSTRUMENTS = (
    *("alignment", "change", "domain", "heads", "identity", "light", "measurements"),
    *("quality", "scene", "skin", "thresholds", "tones"),
)
_DATA = (("instruments", "thresholds.toml"), ("instruments", "domain.npz"), ("instruments", "heads", "heads.npz"))
_WEIGHTS = ("yunet", "facemesh", "selfie", "sface", "faceres")


def code_hash() -> str:
    """Changes with everything that can change a measurement; comments, docstrings and imports do not count."""
    package = files("stillme")
    digest = hashlib.sha256()
    for room, names in (("faces", _FACES), ("instruments", _INSTRUMENTS)):
        for name in names:
            digest.update(_meaning(package.joinpath(room, f"{name}.py").read_text("utf-8")))
    for path in (*_DATA, *(("faces", "weights", f"{name}.onnx") for name in _WEIGHTS)):
        digest.update(hashlib.sha256(package.joinpath(*path).read_bytes()).digest())
    return digest.hexdigest()[:16]


def _meaning(source: str) -> bytes:
    """The code without what only people read, nor where its names come from: a moved module measures the same."""
    tree = ast.parse(source)
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef):
            node.body = [part for part in node.body if not _is_silent(part)] or [ast.Pass()]
    return ast.dump(tree).encode()


def _is_silent(part: ast.stmt) -> bool:
    text = isinstance(part, ast.Expr) and isinstance(part.value, ast.Constant) and isinstance(part.value.value, str)
    return text or isinstance(part, ast.Import | ast.ImportFrom)
