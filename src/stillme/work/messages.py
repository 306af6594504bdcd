"""What a run and its worker processes say to each other: pickled frames. Both are the same installation.

Not in `worker_process`: run as a program, that module is `__main__`, and its classes could not be unpickled here.
"""

from __future__ import annotations

import pickle
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import IO, Any

_HEADER = struct.Struct(">Q")


@dataclass(frozen=True, slots=True)
class TaskBatch:
    """Tasks with a number by which their results are recognised."""

    number: int
    tasks: Sequence[Any]


@dataclass(frozen=True, slots=True)
class Ready:
    """The worker is built; or why it could not be."""

    problem: str = ""


@dataclass(frozen=True, slots=True)
class TaskResults:
    """What became of a batch."""

    number: int
    results: Sequence[Any]
    problem: str = ""
    """Why there are none."""


def write(stream: IO[bytes], frame: object) -> None:
    """Send one frame."""
    data = pickle.dumps(frame)
    stream.write(_HEADER.pack(len(data)) + data)
    stream.flush()


def read(stream: IO[bytes]) -> Any:
    """The next frame; None when the other side is gone."""
    header = stream.read(_HEADER.size)
    if len(header) < _HEADER.size:
        return None
    (size,) = _HEADER.unpack(header)
    data = stream.read(size)
    return pickle.loads(data) if len(data) == size else None
