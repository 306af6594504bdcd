"""What `tools/models/quick.py` writes computes the same bits."""

from __future__ import annotations

import importlib
from pathlib import Path

import numpy as np
import onnx
import onnx.parser
import onnxruntime
import pytest
from onnx import numpy_helper

from stillme.instruments import faces

TOOLS = Path(__file__).parents[2] / "tools" / "models"
CHANNELS = 8


def graph(*, clipped_twice: bool = False) -> onnx.ModelProto:
    """A convolution with PRelu, then one with TensorFlow's limited Relu."""
    rng = np.random.default_rng(0)
    arrays = {
        "kernel": rng.normal(size=(CHANNELS, 3, 3, 3)).astype(np.float32),
        "slope": np.linspace(-1.5, 1.5, CHANNELS, dtype=np.float32).reshape(CHANNELS, 1, 1),
        "point": rng.normal(size=(CHANNELS, CHANNELS, 1, 1)).astype(np.float32),
        "six": np.float32(6),
        "none": np.float32(0),
    }
    ends = f"float[1, {CHANNELS}, 9, 9] y" + (f", float[1, {CHANNELS}, 9, 9] z" if clipped_twice else "")
    model = onnx.parser.parse_model(f"""
        <ir_version: 9, opset_import: ["" : 18]>
        tiny (float[1, 3, 9, 9] x) => ({ends}) {{
            a = Conv <pads = [1, 1, 1, 1]> (x, kernel)
            b = PRelu (a, slope)
            c = Conv (b, point)
            d = Relu (c)
            e = Min (d, six)
            y = Max (e, none)
            {"z = Neg (d)" if clipped_twice else ""}
        }}
    """)
    model.graph.initializer.extend(numpy_helper.from_array(array, name) for name, array in arrays.items())
    return model


def outputs(file: Path, x: np.ndarray) -> list[np.ndarray]:
    return onnxruntime.InferenceSession(str(file)).run(None, {"x": x})


@pytest.mark.parametrize("clipped_twice", [False, True])
def test_slow_activations_are_replaced_and_every_output_keeps_its_bits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, clipped_twice: bool
) -> None:
    if not TOOLS.exists():
        pytest.skip("the tools are not part of a source distribution")
    monkeypatch.syspath_prepend(str(TOOLS))
    file = tmp_path / "tiny.onnx"
    onnx.save(graph(clipped_twice=clipped_twice), file)
    pictures = [np.random.default_rng(seed).normal(size=(1, 3, 9, 9)).astype(np.float32) for seed in range(5)]
    before = [outputs(file, picture) for picture in pictures]
    importlib.import_module("quick").quicken(file)
    kinds = {node.op_type for node in onnx.load(file).graph.node}
    assert "PRelu" not in kinds
    # What another node also reads must stay.
    assert ("Clip" in kinds) is not clipped_twice
    for picture, expected in zip(pictures, before, strict=True):
        for made, output in zip(outputs(file, picture), expected, strict=True):
            np.testing.assert_array_equal(made, output)
    once = file.read_bytes()
    importlib.import_module("quick").quicken(file)
    assert file.read_bytes() == once, "a file without slow activations keeps its bytes"


def test_no_shipped_network_has_slow_activations() -> None:
    weights = list(Path(faces.__file__).with_name("weights").glob("*.onnx"))
    assert weights
    for file in weights:
        assert "PRelu" not in {node.op_type for node in onnx.load(file).graph.node}, file.name
