"""An ONNX graph under construction, and networks opened from one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
Floats = NDArray[np.float32]

_OPSET = 18
_IR_VERSION = 9


class Graph:
    """Nodes and arrays, in the order in which they were added."""

    def __init__(self) -> None:
        # onnx is an extra, and has no type information.
        self._onnx: Any = import_module("onnx")
        self._nodes: list[Any] = []
        self._arrays: list[Any] = []

    def constant(self, array: Array | Sequence[int]) -> str:
        """Add an array as it is; whole numbers become those that ONNX counts with."""
        values = np.asarray(array)
        name = f"c{len(self._arrays)}"
        kept = values.astype(np.int64) if values.dtype.kind == "i" else values.astype(np.float32)
        self._arrays.append(self._onnx.numpy_helper.from_array(np.ascontiguousarray(kept).reshape(values.shape), name))
        return name

    def add(self, operator: str, inputs: Sequence[str], **attributes: object) -> str:
        """Add a node and give the name of its output."""
        name = f"n{len(self._nodes)}"
        self._nodes.append(self._onnx.helper.make_node(operator, list(inputs), [name], **attributes))
        return name

    def channels_first(self, operator: str, inputs: Sequence[str], **attributes: object) -> str:
        """Add a node that wants channels first to a graph whose pictures have them last."""
        turned = self.add("Transpose", [inputs[0]], perm=[0, 3, 1, 2])
        made = self.add(operator, [turned, *inputs[1:]], **attributes)
        return self.add("Transpose", [made], perm=[0, 2, 3, 1])

    def serialise(self, inputs: Mapping[str, Sequence[int]], outputs: Mapping[str, Sequence[int]]) -> bytes:
        """The checked file, with the shapes of what goes in and out."""
        helper, single = self._onnx.helper, self._onnx.TensorProto.FLOAT
        made = helper.make_graph(
            self._nodes,
            "editor",
            [helper.make_tensor_value_info(name, single, list(shape)) for name, shape in inputs.items()],
            [helper.make_tensor_value_info(name, single, list(shape)) for name, shape in outputs.items()],
            self._arrays,
        )
        model = helper.make_model(made, opset_imports=[helper.make_opsetid("", _OPSET)], producer_name="stillme")
        model.ir_version = _IR_VERSION
        self._onnx.checker.check_model(model)
        return model.SerializeToString()


class Network:
    """A graph that can be run, from several threads at once."""

    def __init__(self, model: bytes, *, threads: int = 1) -> None:
        ort: Any = import_module("onnxruntime")
        options = ort.SessionOptions()
        options.intra_op_num_threads = threads
        options.inter_op_num_threads = 1
        options.log_severity_level = 3
        self._session: Any = ort.InferenceSession(model, options, providers=["CPUExecutionProvider"])

    @property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Of each input, in order."""
        return {each.name: tuple(each.shape) for each in self._session.get_inputs()}

    def run(self, **inputs: Array) -> list[Floats]:
        """All outputs."""
        feed = {name: np.ascontiguousarray(value, dtype=np.float32) for name, value in inputs.items()}
        return self._session.run(None, feed)
