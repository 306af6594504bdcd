"""The vendored networks: opened on first use, then shared by all threads."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from functools import cache
from importlib import import_module
from importlib.resources import as_file, files
from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float32]

_opening = threading.Lock()


class Network:
    """One ONNX graph. `run` may be called from several threads at once and gives the same numbers each time."""

    def __init__(self, name: str) -> None:
        # onnxruntime has no type information.
        ort: Any = import_module("onnxruntime")
        options = ort.SessionOptions()
        # Pairs are judged in parallel; a pool of threads within each network only makes them wait for each other.
        options.intra_op_num_threads = 1
        options.inter_op_num_threads = 1
        options.log_severity_level = 3
        with as_file(files("stillme.instruments.faces").joinpath("weights", f"{name}.onnx")) as path:
            self._session: Any = ort.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
        self._input: str = self._session.get_inputs()[0].name
        self._outputs: tuple[str, ...] = tuple(output.name for output in self._session.get_outputs())

    def run(self, batch: NDArray[Any], outputs: Sequence[str] | None = None) -> list[Floats]:
        """Compute the named outputs (all by default), in that order."""
        feed = {self._input: np.ascontiguousarray(batch, dtype=np.float32)}
        return self._session.run(list(outputs or self._outputs), feed)


def network(name: str) -> Network:
    """Open `faces/weights/NAME.onnx`, once."""
    with _opening:
        return _open(name)


@cache
def _open(name: str) -> Network:
    return Network(name)
