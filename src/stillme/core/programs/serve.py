"""The worker's side: reads requests from stdin and writes outcomes to stdout.

Run by path, often with the interpreter of another environment, `python serve.py backend.py`, so it imports only the
standard library and runs on Python 3.9. A backend is a module with

    def load(parameters: dict) -> object
    def edit(loaded: object, message: dict, attached: list[bytes]) -> tuple[dict, list[bytes]]
    OUT_OF_MEMORY = "what to do then"  # optional

where both sides of `edit` are a message and its attachments. A frame is b"STIL", the length of a JSON text in four
bytes, the text, and the attachments whose lengths it lists under "attached".
"""

from __future__ import annotations

import importlib.util
import json
import os
import platform
import struct
import sys
from typing import IO, Any

MAGIC = b"STIL"
LIMIT = 1 << 30
"""Bytes; a greater length is not one of our frames."""


class BadFrame(Exception):
    """Bytes that are not a frame."""


def write_frame(stream: IO[bytes], message: dict[str, Any], attached: list[bytes]) -> None:
    """Send a message with its attachments."""
    text = json.dumps({**message, "attached": [len(data) for data in attached]}).encode()
    stream.write(MAGIC + struct.pack(">I", len(text)) + text)
    for data in attached:
        stream.write(data)
    stream.flush()


def read_frame(stream: IO[bytes]) -> tuple[dict[str, Any], list[bytes]] | None:
    """The next message, or None if the other side has closed."""
    start = stream.read(8)
    if not start:
        return None
    if len(start) < 8 or start[:4] != MAGIC:
        raise BadFrame(f"expected a frame and got {start!r}")
    message: Any
    try:
        message = json.loads(_exactly(stream, struct.unpack(">I", start[4:])[0]))
        lengths = [int(length) for length in message.pop("attached")]
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise BadFrame(f"a frame without a readable message ({error})") from None
    return message, [_exactly(stream, length) for length in lengths]


def _exactly(stream: IO[bytes], length: int) -> bytes:
    if length > LIMIT:
        raise BadFrame(f"a frame of {length} bytes")
    data = stream.read(length)
    if len(data) < length:
        raise BadFrame("a truncated frame")
    return data


def serve(backend: Any, requests: IO[bytes], answers: IO[bytes]) -> None:
    """Answer until the other side closes."""
    loaded: Any = None
    while (frame := read_frame(requests)) is not None:
        message, attached = frame
        try:
            if message["do"] == "load":
                loaded = backend.load(message["parameters"])
                write_frame(answers, {"ok": True, "python": platform.python_version()}, [])
            else:
                reply, pictures = backend.edit(loaded, message, attached)
                write_frame(answers, {"ok": True, **reply}, pictures)
        except Exception as error:
            memory = isinstance(error, MemoryError) or "OutOfMemory" in type(error).__name__
            # Always the same words: a run stops when its first answers fail alike.
            advice = getattr(backend, "OUT_OF_MEMORY", "one call does not fit")
            text = f"out of memory: {advice}" if memory else f"{type(error).__name__}: {error}"
            retryable = not memory and not isinstance(error, (ValueError, TypeError))
            write_frame(answers, {"ok": False, "error": text[:2000], "retryable": retryable}, [])


def main() -> None:
    """Reserve stdout for frames: what libraries print goes to stderr."""
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    # This folder's modules must not shadow those of the environment.
    here = os.path.dirname(os.path.abspath(__file__))  # noqa: PTH100, PTH120 - compared with what Python put there
    sys.path[:] = [entry for entry in sys.path if entry != here]
    spec = importlib.util.spec_from_file_location("backend", sys.argv[1])
    if spec is None or spec.loader is None:
        raise SystemExit(f"{sys.argv[1]} is not a Python module")
    backend = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(backend)
    serve(backend, sys.stdin.buffer, answers)


if __name__ == "__main__":
    main()
