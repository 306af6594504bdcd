"""Read a TensorFlow Lite file: its operators, its arrays, and nothing that we do not use.

The file is a FlatBuffer. A table begins with the distance to its vtable, which holds the place of each field by its
number in the schema; what is not there has its default.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from stillme.errors import StillmeError

Array = NDArray[np.generic]

_TYPES = {0: np.float32, 1: np.float16, 2: np.int32, 4: np.int64}
_OPERATORS = {
    0: "ADD", 2: "CONCATENATION", 3: "CONV_2D", 4: "DEPTHWISE_CONV_2D", 6: "DEQUANTIZE", 9: "FULLY_CONNECTED",
    17: "MAX_POOL_2D", 18: "MUL", 19: "RELU", 21: "RELU6", 22: "RESHAPE", 23: "RESIZE_BILINEAR", 28: "TANH",
    34: "PAD", 37: "BATCH_TO_SPACE_ND", 38: "SPACE_TO_BATCH_ND", 39: "TRANSPOSE", 45: "STRIDED_SLICE", 54: "PRELU",
    65: "SLICE", 69: "TILE", 77: "SHAPE", 83: "PACK", 97: "RESIZE_NEAREST_NEIGHBOR", 98: "LEAKY_RELU",
    129: "CALL_ONCE", 142: "VAR_HANDLE", 143: "READ_VARIABLE", 144: "ASSIGN_VARIABLE", 146: "RANDOM_STANDARD_NORMAL",
}  # fmt: skip
_CUSTOM = 32
_FIELDS = {
    "CONV_2D": {"padding": (0, "b"), "stride_w": (1, "i"), "stride_h": (2, "i"), "activation": (3, "b")},
    "DEPTHWISE_CONV_2D": {"padding": (0, "b"), "stride_w": (1, "i"), "stride_h": (2, "i"), "activation": (4, "b")},
    "MAX_POOL_2D": {
        "padding": (0, "b"), "stride_w": (1, "i"), "stride_h": (2, "i"), "width": (3, "i"), "height": (4, "i"),
        "activation": (5, "b"),
    },
    "FULLY_CONNECTED": {"activation": (0, "b")},
    "ADD": {"activation": (0, "b")},
    "MUL": {"activation": (0, "b")},
    "CONCATENATION": {"axis": (0, "i"), "activation": (1, "b")},
    "LEAKY_RELU": {"alpha": (0, "f")},
    "RESIZE_BILINEAR": {"align_corners": (2, "b"), "half_pixel": (3, "b")},
    "RESIZE_NEAREST_NEIGHBOR": {"align_corners": (0, "b"), "half_pixel": (1, "b")},
    "STRIDED_SLICE": {
        "begin_mask": (0, "i"), "end_mask": (1, "i"), "ellipsis": (2, "i"), "new_axis": (3, "i"), "shrink": (4, "i")
    },
}  # fmt: skip
_DILATION = {"CONV_2D": (4, 5), "DEPTHWISE_CONV_2D": (5, 6)}


@dataclass(frozen=True, slots=True, kw_only=True)
class Operator:
    """One step of the graph; tensors are named by their number, and -1 is an operand that was left out."""

    name: str
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    options: Mapping[str, float]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Model:
    """The main graph of a file."""

    operators: tuple[Operator, ...]
    shapes: Mapping[int, tuple[int, ...]]
    constants: Mapping[int, Array]
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]


def read(data: bytes, name: str) -> Model:
    """Read the main graph; `name` is for the message if this is no such file."""
    try:
        return _model(_Table(data, struct.unpack_from("<I", data)[0]))
    except (struct.error, IndexError, KeyError, ValueError) as error:
        raise StillmeError(
            f"{name} is not a TensorFlow Lite file that stillme can read ({error}); fetch it again."
        ) from None


class _Table:
    """One table of the FlatBuffer."""

    def __init__(self, data: bytes, at: int) -> None:
        self._data, self._at = data, at
        self._fields = at - struct.unpack_from("<i", data, at)[0]
        self._size: int = struct.unpack_from("<H", data, self._fields)[0]

    def number(self, field: int, kind: str, default: float = 0) -> float:
        """A number in place."""
        place = self._place(field)
        return default if place is None else struct.unpack_from(f"<{kind}", self._data, place)[0]

    def integer(self, field: int, kind: str, default: int = 0) -> int:
        """A whole number in place."""
        return int(self.number(field, kind, default))

    def table(self, field: int) -> _Table | None:
        """A table somewhere else."""
        place = self._place(field)
        return None if place is None else _Table(self._data, self._follow(place))

    def tables(self, field: int) -> list[_Table]:
        """A vector of tables."""
        start, count = self._vector(field)
        return [_Table(self._data, self._follow(start + 4 * index)) for index in range(count)]

    def array(self, field: int, kind: type[np.generic]) -> Array:
        """A vector of numbers; empty where there is none."""
        start, count = self._vector(field)
        return np.frombuffer(self._data, kind, count, start) if count else np.empty(0, kind)

    def _vector(self, field: int) -> tuple[int, int]:
        place = self._place(field)
        if place is None:
            return 0, 0
        at = self._follow(place)
        return at + 4, struct.unpack_from("<I", self._data, at)[0]

    def _place(self, field: int) -> int | None:
        slot = 4 + 2 * field
        offset = struct.unpack_from("<H", self._data, self._fields + slot)[0] if slot < self._size else 0
        return self._at + offset if offset else None

    def _follow(self, place: int) -> int:
        return place + struct.unpack_from("<I", self._data, place)[0]


def _model(file: _Table) -> Model:
    graph = file.tables(2)[0]
    buffers = [table.array(0, np.uint8) for table in file.tables(4)]
    names = [_operator_name(code) for code in file.tables(1)]
    shapes: dict[int, tuple[int, ...]] = {}
    constants: dict[int, Array] = {}
    for number, tensor in enumerate(graph.tables(0)):
        shapes[number] = _integers(tensor.array(0, np.int32))
        stored = buffers[tensor.integer(2, "I")]
        if len(stored):
            constants[number] = stored.view(_TYPES[tensor.integer(1, "b")]).reshape(shapes[number])
    return Model(
        operators=tuple(_operator(table, names) for table in graph.tables(3)),
        shapes=shapes,
        constants=constants,
        inputs=_integers(graph.array(1, np.int32)),
        outputs=_integers(graph.array(2, np.int32)),
    )


def _operator_name(code: _Table) -> str:
    # Files from before 2020 have the number in one byte.
    number = max(code.integer(0, "b"), code.integer(3, "i"))
    return code.array(1, np.uint8).tobytes().decode() if number == _CUSTOM else _OPERATORS[number]


def _operator(table: _Table, names: list[str]) -> Operator:
    name = names[table.integer(0, "I")]
    stated = table.table(4)
    fields = _FIELDS.get(name, {})
    options = {key: stated.number(field, kind) if stated else 0 for key, (field, kind) in fields.items()}
    if stated and name in _DILATION and any(stated.integer(field, "i", 1) != 1 for field in _DILATION[name]):
        raise ValueError(f"{name} is dilated")
    return Operator(
        name=name,
        inputs=_integers(table.array(1, np.int32)),
        outputs=_integers(table.array(2, np.int32)),
        options=options,
    )


def _integers(array: Array) -> tuple[int, ...]:
    return tuple(int(value) for value in array.tolist())
