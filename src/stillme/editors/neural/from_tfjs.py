"""TensorFlow.js graph models to ONNX for pictures of one size, without TensorFlow.

Everything is translated node by node, also the arithmetic on shapes: for a picture of fixed size, onnxruntime computes
that once, when the file is opened.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Mapping, Sequence
from math import prod
from typing import Any

import numpy as np

from stillme.editors.neural.from_tflite import PICTURE
from stillme.editors.neural.graph import Array, Graph
from stillme.errors import StillmeError

Node = Mapping[str, Any]

_SAME_MEANING = {
    "AddV2": "Add", "Sub": "Sub", "Mul": "Mul", "RealDiv": "Div", "Maximum": "Max", "Minimum": "Min", "Neg": "Neg",
    "Exp": "Exp", "Abs": "Abs", "Sign": "Sign", "Floor": "Floor", "Tanh": "Tanh", "Reciprocal": "Reciprocal",
    "LogicalAnd": "And", "Greater": "Greater", "GreaterEqual": "GreaterOrEqual", "Less": "Less",
    "LessEqual": "LessOrEqual", "SelectV2": "Where", "BroadcastTo": "Expand", "Reshape": "Reshape", "Range": "Range",
    "Shape": "Shape", "Identity": "Identity", "FloorMod": "Mod", "ExpandDims": "Unsqueeze",
    # Only shapes are divided so, and they are positive.
    "FloorDiv": "Div",
}  # fmt: skip
_TYPES = {"DT_FLOAT": 1, "DT_INT32": 7}
_FAR = np.iinfo(np.int32).max


def convert(model: Mapping[str, Any], buffer: bytes, side: int, name: str) -> bytes:
    """A graph model and all its weights as an ONNX file that takes one square picture."""
    return _Writer(model, buffer, side, name).write()


class _Writer:
    def __init__(self, model: Mapping[str, Any], buffer: bytes, side: int, name: str) -> None:
        self._nodes: Sequence[Node] = model["modelTopology"]["node"]
        self._side, self._name = side, name
        self._arrays = _arrays(model, buffer)
        self._graph = Graph()
        self._names: dict[str, str] = {}
        self._makers: dict[str, Callable[[Node], str]] = {
            "Square": lambda node: self._graph.add("Mul", self._inputs(node) * 2),
            "Rsqrt": lambda node: self._graph.add("Reciprocal", [self._graph.add("Sqrt", self._inputs(node))]),
            "NotEqual": lambda node: self._graph.add("Not", [self._graph.add("Equal", self._inputs(node))]),
            "Cast": lambda node: self._graph.add("Cast", self._inputs(node), to=_TYPES[_type(node, "DstT")]),
            "Einsum": lambda node: self._graph.add("Einsum", self._inputs(node), equation=_text(node, "equation")),
            "Sum": self._sum,
            "Pack": self._pack,
            "ConcatV2": lambda node: self._graph.add(
                "Concat", self._inputs(node)[:-1], axis=int(self._array(node, -1).item())
            ),
            "Squeeze": lambda node: self._graph.add(
                "Squeeze", [*self._inputs(node), self._graph.constant(_integers(node, "squeeze_dims"))]
            ),
            "Transpose": lambda node: self._graph.add(
                "Transpose", self._inputs(node)[:1], perm=self._array(node, 1).tolist()
            ),
            "GatherV2": lambda node: self._graph.add(
                "Gather", self._inputs(node)[:2], axis=int(self._array(node, 2).item())
            ),
            "StridedSlice": self._slice,
            "Conv2D": self._convolution,
            "Conv2DBackpropInput": self._transposed_convolution,
        }

    def write(self) -> bytes:
        for node in self._nodes:
            match node["op"]:
                case "Const":
                    pass
                case "Placeholder":
                    self._names[node["name"]] = PICTURE
                case operator if operator in _SAME_MEANING:
                    self._names[node["name"]] = self._graph.add(_SAME_MEANING[operator], self._inputs(node))
                case operator if operator in self._makers:
                    self._names[node["name"]] = self._makers[operator](node)
                case operator:
                    raise StillmeError(f"{self._name} uses {operator}, which stillme cannot convert.")
        shape = (1, self._side, self._side, 3)
        return self._graph.serialise({PICTURE: shape}, {self._names[self._nodes[-1]["name"]]: shape})

    def _inputs(self, node: Node) -> list[str]:
        return [self._named(name) for name in _names(node)]

    def _named(self, name: str) -> str:
        if name not in self._names:
            self._names[name] = self._graph.constant(self._arrays[name])
        return self._names[name]

    def _array(self, node: Node, place: int) -> Array:
        return self._arrays[_names(node)[place]]

    def _sum(self, node: Node) -> str:
        keep = int(bool(node["attr"]["keep_dims"].get("b", False)))
        return self._graph.add("ReduceSum", self._inputs(node), keepdims=keep)

    def _pack(self, node: Node) -> str:
        first = self._graph.constant([0])
        return self._graph.add(
            "Concat", [self._graph.add("Unsqueeze", [part, first]) for part in self._inputs(node)], axis=0
        )

    def _slice(self, node: Node) -> str:
        masks = {key: int(node["attr"][f"{key}_mask"]["i"]) for key in ("begin", "end", "shrink_axis")}
        if any(int(node["attr"][f"{key}_mask"]["i"]) for key in ("ellipsis", "new_axis")):
            raise StillmeError(f"{self._name} slices in a way that stillme cannot convert.")
        sliced, begin, end, strides = _names(node)
        axes = list(range(self._arrays[strides].size))
        limits = [self._named(begin), self._named(end)]
        for place, (name, key, default) in enumerate(((begin, "begin", 0), (end, "end", _FAR))):
            if masks[key]:
                stated: list[int] = self._arrays[name].tolist()
                limits[place] = self._graph.constant(
                    [default if masks[key] >> axis & 1 else stated[axis] for axis in axes]
                )
        operands = [self._named(sliced), *limits, self._graph.constant(axes), self._named(strides)]
        made = self._graph.add("Slice", operands)
        dropped = [axis for axis in axes if masks["shrink_axis"] >> axis & 1]
        return self._graph.add("Squeeze", [made, self._graph.constant(dropped)]) if dropped else made

    def _convolution(self, node: Node) -> str:
        kernel = self._array(node, 1).transpose(3, 2, 0, 1)
        return self._graph.channels_first(
            "Conv",
            [self._inputs(node)[0], self._graph.constant(kernel)],
            kernel_shape=list(kernel.shape[2:]),
            strides=_integers(node, "strides")[1:3],
            auto_pad={"SAME": "SAME_UPPER", "VALID": "VALID"}[_text(node, "padding")],
        )

    def _transposed_convolution(self, node: Node) -> str:
        kernel = self._array(node, 1).transpose(3, 2, 0, 1)
        strides = _integers(node, "strides")[1:3]
        if _text(node, "padding") != "VALID" or list(kernel.shape[2:]) != strides:
            raise StillmeError(f"{self._name} enlarges in a way that stillme cannot convert.")
        return self._graph.channels_first(
            "ConvTranspose",
            [self._named(_names(node)[2]), self._graph.constant(kernel)],
            kernel_shape=list(kernel.shape[2:]),
            strides=strides,
        )


def _arrays(model: Mapping[str, Any], buffer: bytes) -> dict[str, Array]:
    arrays: dict[str, Array] = {}
    start = 0
    for group in model["weightsManifest"]:
        for entry in group["weights"]:
            kind = np.dtype({"float32": "<f4", "int32": "<i4"}[entry["dtype"]])
            shape: list[int] = entry["shape"]
            count = prod(shape)
            arrays[entry["name"]] = np.frombuffer(buffer, kind, count, start).reshape(shape)
            start += count * kind.itemsize
    return arrays


def _names(node: Node) -> list[str]:
    return [name.removesuffix(":0") for name in node.get("input", []) if not name.startswith("^")]


def _text(node: Node, attribute: str) -> str:
    return base64.b64decode(node["attr"][attribute]["s"]).decode()


def _type(node: Node, attribute: str) -> str:
    return node["attr"][attribute]["type"]


def _integers(node: Node, attribute: str) -> list[int]:
    return [int(value) for value in node["attr"][attribute]["list"]["i"]]
