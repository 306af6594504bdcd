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
_DATA = (("thresholds.toml",), ("domain.npz",), ("heads", "heads.npz"))
_WEIGHTS = ("yunet", "facemesh", "selfie", "sface", "faceres")


def code_hash() -> str:
    """Changes with everything that can change a measurement; comments and docstrings do not count."""
    package = files("stillme.instruments")
    digest = hashlib.sha256()
    for folder, names in (("faces", _FACES), (".", _INSTRUMENTS)):
        for name in names:
            digest.update(_meaning(package.joinpath(folder, f"{name}.py").read_text("utf-8")))
    for path in (*_DATA, *(("faces", "weights", f"{name}.onnx") for name in _WEIGHTS)):
        digest.update(hashlib.sha256(package.joinpath(*path).read_bytes()).digest())
    return digest.hexdigest()[:16]


def _meaning(source: str) -> bytes:
    """The code without what only people read, and without imports: where a module stands changes no measurement."""
    tree = ast.parse(source)
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef):
            kept = [part for part in node.body if not (_is_text(part) or isinstance(part, ast.Import | ast.ImportFrom))]
            node.body = kept or [ast.Pass()]
    return ast.dump(tree).encode()


def _is_text(part: ast.stmt) -> bool:
    return isinstance(part, ast.Expr) and isinstance(part.value, ast.Constant) and isinstance(part.value.value, str)
