"""Write ONNX graphs whose weights stay as small as they came: bytes or half floats, widened when the file is opened."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

OPSET = 18
IR_VERSION = 9


@dataclass(frozen=True)
class Stored:
    """An array as a package ships it: possibly as bytes with a scale and an offset."""

    array: NDArray
    scale: float = 1.0
    minimum: float = 0.0

    @property
    def values(self) -> NDArray:
        """The numbers it stands for."""
        if self.array.dtype == np.uint8:
            return self.array.astype(np.float32) * np.float32(self.scale) + np.float32(self.minimum)
        return self.array.astype(np.int32 if self.array.dtype.kind == "i" else np.float32)


class Graph:
    """An ONNX graph under construction."""

    def __init__(self) -> None:
        self.nodes: list[onnx.NodeProto] = []
        self.initializers: list[onnx.TensorProto] = []
        self._count = 0

    def constant(self, array: NDArray | float) -> str:
        """Add an array as it is."""
        name = self._name("c")
        self.initializers.append(numpy_helper.from_array(np.ascontiguousarray(array), name))
        return name

    def weights(self, stored: Stored) -> str:
        """Add an array in its small form; onnxruntime widens it once, on loading."""
        if stored.array.dtype == np.float32:
            return self.constant(stored.array)
        wide = self.add("Cast", [self.constant(stored.array)], to=TensorProto.FLOAT)
        if stored.array.dtype == np.uint8:
            wide = self.add("Mul", [wide, self.constant(np.float32(stored.scale))])
            wide = self.add("Add", [wide, self.constant(np.float32(stored.minimum))])
        return wide

    def add(self, operator: str, inputs: list[str], output: str | None = None, **attributes: object) -> str:
        """Add a node and give the name of its output."""
        output = output or self._name(operator.lower())
        self.nodes.append(helper.make_node(operator, inputs, [output], **attributes))
        return output

    def save(self, path: Path, name: str, shape: list[int | str], outputs: list[str]) -> None:
        """Check the graph and write it, without what nobody uses."""
        used = {value for node in self.nodes for value in node.input}
        graph = helper.make_graph(
            self.nodes,
            path.stem,
            [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)],
            [helper.make_tensor_value_info(output, TensorProto.FLOAT, None) for output in outputs],
            [tensor for tensor in self.initializers if tensor.name in used],
        )
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], producer_name="stillme")
        model.ir_version = IR_VERSION
        model = onnx.shape_inference.infer_shapes(model)
        del model.graph.value_info[:]
        onnx.checker.check_model(model)
        path.write_bytes(model.SerializeToString(deterministic=True))

    def _name(self, kind: str) -> str:
        self._count += 1
        return f"{kind}{self._count}"


def split(buffer: bytes, entries: list[dict]) -> dict[str, Stored]:
    """Cut a TensorFlow.js weight file into its arrays."""
    arrays: dict[str, Stored] = {}
    start = 0
    for entry in entries:
        quantised = entry.get("quantization")
        kind = np.dtype(quantised["dtype"] if quantised else {"float32": "f4", "int32": "i4"}[entry["dtype"]])
        count = int(np.prod(entry["shape"])) if entry["shape"] else 1
        array = np.frombuffer(buffer, kind, count, start).reshape(entry["shape"])
        start += count * kind.itemsize
        if kind == np.uint8:
            arrays[entry["name"]] = Stored(array, quantised["scale"], quantised["min"])
        else:
            arrays[entry["name"]] = Stored(array)
    return arrays
