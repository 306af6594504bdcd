"""TensorFlow.js graph models to ONNX, without TensorFlow."""

from __future__ import annotations

import base64
import json
from pathlib import Path

import numpy as np
from graph import Graph, Stored, split

_TO_CHANNELS_FIRST = [0, 3, 1, 2]
_TO_CHANNELS_LAST = [0, 2, 3, 1]
_SAME_NAME = {"Add": "Add", "AddV2": "Add", "Mul": "Mul", "AddN": "Sum", "Relu": "Relu", "Sigmoid": "Sigmoid"}
_SAME_NAME |= {"Minimum": "Min", "Maximum": "Max", "Softmax": "Softmax"}


def convert(model: Path, target: Path, outputs: list[str]) -> None:
    """Convert the graph model `model`, whose weights lie beside it."""
    described = json.loads(model.read_text())
    weights: dict[str, Stored] = {}
    for group in described["weightsManifest"]:
        buffer = b"".join((model.parent / name).read_bytes() for name in group["paths"])
        weights |= split(buffer, group["weights"])
    writer = _Writer(weights)
    for node in described["modelTopology"]["node"]:
        writer.write(node)
    writer.graph.save(target, writer.input, writer.shape, outputs)


class _Writer:
    """Translates node by node; pictures stay channels-last between nodes, as in the original."""

    def __init__(self, weights: dict[str, Stored]) -> None:
        self.graph = Graph()
        self.input = ""
        self.shape: list[int | str] = []
        self._weights = weights
        self._arrays: dict[str, Stored] = {}
        self._wide: dict[str, str] = {}

    def write(self, node: dict) -> None:
        """Add one node of the original."""
        operator, name, attributes = node["op"], node["name"], node.get("attr", {})
        inputs = [value.removesuffix(":0") for value in node.get("input", []) if not value.startswith("^")]
        match operator:
            case "Const":
                self._arrays[name] = self._weights[name]
            case "Placeholder":
                self.input = name
                self.shape = [max(int(size["size"]), 1) for size in attributes["shape"]["shape"]["dim"]]
            case "Conv2D" | "_FusedConv2D" | "DepthwiseConv2dNative":
                self._convolution(operator, name, inputs, attributes)
            case "Conv2DBackpropInput":
                stored = self._arrays[inputs[1]]
                kernel = Stored(stored.array.transpose(3, 2, 0, 1), stored.scale, stored.minimum)
                turned = self.graph.add("Transpose", [inputs[2]], perm=_TO_CHANNELS_FIRST)
                strides = _integers(attributes["strides"])[1:3]
                made = self.graph.add(
                    "ConvTranspose", [turned, self.graph.weights(kernel)], strides=strides, auto_pad="SAME_UPPER",
                    kernel_shape=list(kernel.array.shape[2:]),
                )  # fmt: skip
                self._back(made, name)
            case "MaxPool" | "AvgPool":
                turned = self.graph.add("Transpose", [inputs[0]], perm=_TO_CHANNELS_FIRST)
                made = self.graph.add(
                    {"MaxPool": "MaxPool", "AvgPool": "AveragePool"}[operator], [turned],
                    kernel_shape=_integers(attributes["ksize"])[1:3], strides=_integers(attributes["strides"])[1:3],
                    auto_pad=_padding(attributes),
                )  # fmt: skip
                self._back(made, name)
            case "Prelu":
                self.graph.add("PRelu", [inputs[0], self._constant(inputs[1])], name)
            case "Relu6":
                limits = [self.graph.constant(np.float32(0)), self.graph.constant(np.float32(6))]
                self.graph.add("Clip", [inputs[0], *limits], name)
            case "Pad":
                pads = self._arrays[inputs[1]].values.astype(np.int64)
                self.graph.add("Pad", [inputs[0], self.graph.constant(pads.T.reshape(-1))], name)
            case "Reshape":
                shape = self._arrays[inputs[1]].values.astype(np.int64)
                self.graph.add("Reshape", [inputs[0], self.graph.constant(shape)], name)
            case "Mean":
                axes = self._arrays[inputs[1]].values.astype(np.int64).reshape(-1)
                self.graph.add("ReduceMean", [inputs[0], self.graph.constant(axes)], name, keepdims=0)
            case "_FusedMatMul":
                self._product(name, inputs, attributes)
            case "Identity":
                self.graph.add("Identity", inputs, name)
            case "ResizeBilinear":
                self._resize(name, inputs, attributes)
            case _ if operator in _SAME_NAME:
                self.graph.add(_SAME_NAME[operator], [self._constant(value) for value in inputs], name)
            case _:
                raise SystemExit(f"{name}: no translation for operator {operator}")

    def _convolution(self, operator: str, name: str, inputs: list[str], attributes: dict) -> None:
        stored = self._arrays[inputs[1]]
        if operator == "DepthwiseConv2dNative":
            height, width, channels, times = stored.array.shape
            array = stored.array.transpose(2, 3, 0, 1).reshape(channels * times, 1, height, width)
            groups = channels
        else:
            array, groups = stored.array.transpose(3, 2, 0, 1), 1
        fused = _fused(attributes)
        operands = [
            self.graph.add("Transpose", [inputs[0]], perm=_TO_CHANNELS_FIRST),
            self.graph.weights(Stored(array, stored.scale, stored.minimum)),
        ]
        if "BiasAdd" in fused:
            operands.append(self._constant(inputs[2]))
        made = self.graph.add(
            "Conv", operands, strides=_integers(attributes["strides"])[1:3], group=groups,
            dilations=_integers(attributes["dilations"])[1:3], kernel_shape=list(array.shape[2:]),
            auto_pad=_padding(attributes),
        )  # fmt: skip
        if "Prelu" in fused:
            slope = self._arrays[inputs[3]]
            made = self.graph.add("PRelu", [made, self.graph.weights(Stored(slope.array.reshape(-1, 1, 1)))])
        self._back(made, name)

    def _product(self, name: str, inputs: list[str], attributes: dict) -> None:
        fused = _fused(attributes)
        made = self.graph.add("MatMul", [inputs[0], self._constant(inputs[1])])
        if "BiasAdd" in fused:
            made = self.graph.add("Add", [made, self._constant(inputs[2])], "" if "Relu" in fused else name)
        if "Relu" in fused:
            self.graph.add("Relu", [made], name)

    def _resize(self, name: str, inputs: list[str], attributes: dict) -> None:
        assert attributes["half_pixel_centers"]["b"], name
        assert not attributes["align_corners"]["b"], name
        turned = self.graph.add("Transpose", [inputs[0]], perm=_TO_CHANNELS_FIRST)
        first_two = [self.graph.constant(np.array([0])), self.graph.constant(np.array([2]))]
        channels = self.graph.add("Slice", [self.graph.add("Shape", [turned]), *first_two])
        size = self.graph.constant(self._arrays[inputs[1]].values.astype(np.int64))
        shape = self.graph.add("Concat", [channels, size], axis=0)
        self._back(self.graph.add("Resize", [turned, "", "", shape], mode="linear"), name)

    def _back(self, made: str, name: str) -> None:
        self.graph.add("Transpose", [made], name, perm=_TO_CHANNELS_LAST)

    def _constant(self, name: str) -> str:
        if name not in self._arrays:
            return name
        if name not in self._wide:
            self._wide[name] = self.graph.weights(self._arrays[name])
        return self._wide[name]


def _fused(attributes: dict) -> list[str]:
    return [base64.b64decode(value).decode() for value in attributes.get("fused_ops", {}).get("list", {}).get("s", [])]


def _padding(attributes: dict) -> str:
    return {"SAME": "SAME_UPPER", "VALID": "VALID"}[base64.b64decode(attributes["padding"]["s"]).decode()]


def _integers(attribute: dict) -> list[int]:
    return [int(value) for value in attribute["list"]["i"]]
