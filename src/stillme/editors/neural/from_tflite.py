"""TensorFlow Lite graphs to ONNX, operator by operator, without TensorFlow.

Pictures keep their channels last, as in the original. Random numbers become inputs (`noise0`, …): the original
draws other ones at every call, and an audit must be able to repeat itself.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from stillme.editors.neural.graph import Graph, Network
from stillme.editors.neural.tflite import Array, Model, Operator, read
from stillme.errors import StillmeError

PICTURE = "picture"
NOISE = "noise"

_STATE = frozenset({"CALL_ONCE", "VAR_HANDLE", "READ_VARIABLE", "ASSIGN_VARIABLE"})
_NORMALISE = "FusedBatchNormV3"
_EPSILON = 0.001
"""MediaPipe's own constant for `FusedBatchNormV3`, whatever the file says."""
_PADDING = {0: "SAME_UPPER", 1: "VALID"}
_FAR = np.iinfo(np.int32).max


def network(data: bytes, name: str, *, threads: int = 1) -> Network:
    """Convert a file and open it."""
    return Network(convert(read(data, name), name), threads=threads)


def convert(model: Model, name: str) -> bytes:
    """The same graph as an ONNX file: `picture`, and `noise0`, `noise1`, … where it draws random numbers."""
    return _Writer(model, name).write()


class _Writer:
    def __init__(self, model: Model, name: str) -> None:
        self._model, self._name = model, name
        self._graph = Graph()
        self._names: dict[int, str] = {model.inputs[0]: PICTURE}
        self._constants: dict[int, Array] = dict(model.constants)
        self._inputs: dict[str, tuple[int, ...]] = {PICTURE: model.shapes[model.inputs[0]]}

    def write(self) -> bytes:
        for operator in self._model.operators:
            self._write(operator)
        outputs = {self._names[number]: self._model.shapes[number] for number in self._model.outputs}
        return self._graph.serialise(self._inputs, outputs)

    def _write(self, operator: Operator) -> None:
        if operator.name in _STATE:
            return
        if operator.name == "DEQUANTIZE":
            self._constants[operator.outputs[0]] = self._constants[operator.inputs[0]].astype(np.float32)
            return
        makers: dict[str, Callable[[Operator], str]] = {
            "ADD": lambda step: self._plain("Add", step),
            "MUL": lambda step: self._plain("Mul", step),
            "TANH": lambda step: self._plain("Tanh", step),
            "RELU": lambda step: self._plain("Relu", step),
            "PRELU": lambda step: self._plain("PRelu", step),
            "RESHAPE": lambda step: (
                self._plain("Reshape", step)
                if len(step.inputs) > 1
                else self._reshape(self._input(step, 0), list(self._model.shapes[step.outputs[0]]))
            ),
            "TILE": lambda step: self._plain("Tile", step),
            "SHAPE": lambda step: self._plain("Shape", step),
            "RELU6": lambda step: self._clip(self._input(step, 0)),
            "LEAKY_RELU": lambda step: self._plain("LeakyRelu", step, alpha=step.options["alpha"]),
            "CONCATENATION": lambda step: self._plain("Concat", step, axis=int(step.options["axis"])),
            "TRANSPOSE": lambda step: self._graph.add(
                "Transpose", [self._input(step, 0)], perm=self._integers(step, 1).tolist()
            ),
            "PAD": lambda step: self._pad(self._input(step, 0), self._integers(step, 1)),
            "CONV_2D": self._convolution,
            "DEPTHWISE_CONV_2D": self._convolution,
            "MAX_POOL_2D": self._pool,
            "FULLY_CONNECTED": lambda step: self._plain("Gemm", step, transB=1),
            "RESIZE_BILINEAR": self._resize,
            "RESIZE_NEAREST_NEIGHBOR": self._resize,
            "STRIDED_SLICE": self._strided_slice,
            "SLICE": self._slice,
            "PACK": self._pack,
            "SPACE_TO_BATCH_ND": self._space_to_batch,
            "BATCH_TO_SPACE_ND": self._batch_to_space,
            "RANDOM_STANDARD_NORMAL": self._noise,
            _NORMALISE: self._normalise,
        }
        made = makers[operator.name](operator)
        self._names[operator.outputs[0]] = self._activated(made, int(operator.options.get("activation", 0)))

    def _plain(self, kind: str, step: Operator, **attributes: float) -> str:
        inputs = [self._input(step, place) for place, number in enumerate(step.inputs) if number >= 0]
        return self._graph.add(kind, inputs, **attributes)

    def _input(self, step: Operator, place: int) -> str:
        number = step.inputs[place]
        if number not in self._names:
            self._names[number] = self._graph.constant(self._constants[number])
        return self._names[number]

    def _integers(self, step: Operator, place: int) -> NDArray[np.int64]:
        return self._constants[step.inputs[place]].astype(np.int64)

    def _activated(self, made: str, activation: int) -> str:
        match activation:
            case 0:
                return made
            case 1:
                return self._graph.add("Relu", [made])
            case 3:
                return self._clip(made)
            case _:
                raise StillmeError(f"{self._name} uses activation {activation}, which stillme cannot convert.")

    def _clip(self, made: str) -> str:
        limits = [self._graph.constant(np.array(limit, dtype=np.float32)) for limit in (0, 6)]
        return self._graph.add("Clip", [made, *limits])

    def _pad(self, made: str, pads: Array) -> str:
        return self._graph.add("Pad", [made, self._graph.constant(pads.T.reshape(-1))])

    def _convolution(self, step: Operator) -> str:
        kernel = self._constants[step.inputs[1]]
        channels = self._model.shapes[step.inputs[0]][3]
        if step.name == "DEPTHWISE_CONV_2D":
            groups, turned = channels, kernel.transpose(3, 0, 1, 2)
        else:
            groups, turned = channels // kernel.shape[3], kernel.transpose(0, 3, 1, 2)
        bias = [self._input(step, 2)] if len(step.inputs) > 2 and step.inputs[2] >= 0 else []
        return self._graph.channels_first(
            "Conv",
            [self._input(step, 0), self._graph.constant(turned), *bias],
            group=groups,
            kernel_shape=list(turned.shape[2:]),
            strides=[int(step.options["stride_h"]), int(step.options["stride_w"])],
            auto_pad=_PADDING[int(step.options["padding"])],
        )

    def _pool(self, step: Operator) -> str:
        return self._graph.channels_first(
            "MaxPool",
            [self._input(step, 0)],
            kernel_shape=[int(step.options["height"]), int(step.options["width"])],
            strides=[int(step.options["stride_h"]), int(step.options["stride_w"])],
            auto_pad=_PADDING[int(step.options["padding"])],
        )

    def _resize(self, step: Operator) -> str:
        height, width = self._integers(step, 1).tolist()
        before = self._model.shapes[step.inputs[0]][1:3]
        if step.options["align_corners"] or not step.options["half_pixel"] or height % before[0] or width % before[1]:
            raise StillmeError(f"{self._name} resizes in a way that stillme cannot convert.")
        scales = np.array([1, 1, height // before[0], width // before[1]], dtype=np.float32)
        # Whole multiples: the nearest pixel's centre is the pixel that the place falls into.
        how = (
            {"mode": "linear"}
            if step.name == "RESIZE_BILINEAR"
            else {"mode": "nearest", "coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}
        )
        return self._graph.channels_first("Resize", [self._input(step, 0), "", self._graph.constant(scales)], **how)

    def _strided_slice(self, step: Operator) -> str:
        if step.options["ellipsis"] or step.options["new_axis"]:
            raise StillmeError(f"{self._name} slices in a way that stillme cannot convert.")
        begin, end, strides = (self._integers(step, place) for place in (1, 2, 3))
        axes = np.arange(len(begin))
        begin = np.where((int(step.options["begin_mask"]) >> axes) & 1, 0, begin)
        end = np.where((int(step.options["end_mask"]) >> axes) & 1, _FAR, end)
        operands = [self._graph.constant(value) for value in (begin, end, axes, strides)]
        made = self._graph.add("Slice", [self._input(step, 0), *operands])
        dropped = axes[((int(step.options["shrink"]) >> axes) & 1) > 0]
        return self._graph.add("Squeeze", [made, self._graph.constant(dropped)]) if len(dropped) else made

    def _slice(self, step: Operator) -> str:
        begin, size = self._integers(step, 1), self._integers(step, 2)
        end = np.where(size < 0, _FAR, begin + size)
        operands = [self._graph.constant(value) for value in (begin, end, np.arange(len(begin)))]
        return self._graph.add("Slice", [self._input(step, 0), *operands])

    def _pack(self, step: Operator) -> str:
        first = self._graph.constant([0])
        parts = [self._graph.add("Unsqueeze", [self._input(step, place), first]) for place in range(len(step.inputs))]
        return self._graph.add("Concat", parts, axis=0)

    def _space_to_batch(self, step: Operator) -> str:
        rows, columns = self._integers(step, 1).tolist()
        pads = self._integers(step, 2)
        _, height, width, channels = self._model.shapes[step.inputs[0]]
        height, width = height + int(pads[0].sum()), width + int(pads[1].sum())
        made = self._pad(self._input(step, 0), np.vstack([[[0, 0]], pads, [[0, 0]]]))
        made = self._reshape(made, [-1, height // rows, rows, width // columns, columns, channels])
        made = self._graph.add("Transpose", [made], perm=[2, 4, 0, 1, 3, 5])
        return self._reshape(made, [-1, height // rows, width // columns, channels])

    def _batch_to_space(self, step: Operator) -> str:
        rows, columns = self._integers(step, 1).tolist()
        _, height, width, channels = self._model.shapes[step.inputs[0]]
        if self._integers(step, 2).any():
            raise StillmeError(f"{self._name} crops a batch, which stillme cannot convert.")
        made = self._reshape(self._input(step, 0), [rows, columns, -1, height, width, channels])
        made = self._graph.add("Transpose", [made], perm=[2, 3, 0, 4, 1, 5])
        return self._reshape(made, [-1, height * rows, width * columns, channels])

    def _reshape(self, made: str, shape: list[int]) -> str:
        return self._graph.add("Reshape", [made, self._graph.constant(shape)])

    def _noise(self, step: Operator) -> str:
        name = f"{NOISE}{len(self._inputs) - 1}"
        self._inputs[name] = self._model.shapes[step.outputs[0]]
        return name

    def _normalise(self, step: Operator) -> str:
        # MediaPipe normalises by the picture's own mean and variance, never by the stored ones.
        inputs = [self._input(step, place) for place in (0, 1, 2)]
        return self._graph.channels_first("InstanceNormalization", inputs, epsilon=_EPSILON)
