"""A function as an editor: `use = "python:my_module:edit"`, where `def edit(image, instruction, seed)` is enough."""

from __future__ import annotations

import io
import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, cast

from pydantic import Field, ValidationError

from stillme.core import images
from stillme.core.errors import InvalidParameters, Refusal, UnreadableImage
from stillme.core.functions import Function, FunctionParameters, name_of
from stillme.core.protocols import Capabilities, Editor
from stillme.core.types import Edited, EditOutcome, Failed, Portrait, Prompt, Refused, Request

if TYPE_CHECKING:
    from numpy.typing import NDArray

SUPPLIED = ("image", "images", "instruction", "prompt", "seed", "portrait")
"""What a function may ask for, by the names of its parameters."""
_ACCEPTED = "a PIL image, the bytes of an image file, its path, or an array (height × width × 3, uint8)"
_AS_IT_IS = ("RGB", "RGBA", "L")
"""Modes of Pillow that PNG keeps exactly."""


class EditorFunctionParameters(FunctionParameters):
    """Which function edits, and what is known of it."""

    inputs: int = Field(default=1, ge=1, exclude=True)
    """How many portraits one request may carry; above 1 the function asks for `images`."""
    seed: Literal["exact", "best_effort", "none"] | None = Field(default=None, exclude=True)
    """What a seed is worth; by default `best_effort` if the function asks for one, else `none`."""


class FunctionEditor(Editor):
    """A Python function of your own: `python:my_module:edit` or `python:./edit.py:edit`."""

    Parameters = EditorFunctionParameters
    shorthand = "function"
    runs_foreign_code = True

    def __init__(self, parameters: EditorFunctionParameters, function: Callable[..., Any] | None = None) -> None:
        self._function = Function.of(parameters, function)
        self.spec = self._function.spec(parameters)
        seed = parameters.seed or ("best_effort" if self._function.asks_for("seed") else "none")
        self.capabilities = Capabilities(
            inputs=parameters.inputs, concurrency=parameters.concurrency, seed=seed, size="any", can_refuse=True
        )

    @classmethod
    def of(cls, function: Callable[..., Any], name: str | None = None, **settings: Any) -> FunctionEditor:
        """An editor from a function at hand. `settings` are those of audit.toml: `inputs`, `seed`, `arguments`, …"""
        name = name or name_of(function)
        try:
            return cls(EditorFunctionParameters(function=name, **settings), function)
        except ValidationError as error:
            raise InvalidParameters(f"The editor {name!r}", error, EditorFunctionParameters, settings) from None

    def problems(self, portraits: Sequence[Portrait], prompts: Sequence[Prompt]) -> Iterator[str]:
        """Parameters of the function that are not supplied, and arguments that it does not have."""
        yield from self._function.problems(SUPPLIED)
        if self.capabilities.inputs > 1 and not self._function.asks_for("images"):
            yield f"`inputs = {self.capabilities.inputs}`, yet {self._function.name!r} does not ask for `images`"

    def edit_one(self, request: Request) -> EditOutcome:
        """Call the function once."""
        pictures = [images.read_picture(portrait.image.path) for portrait in request.portraits]
        supplied = {
            "image": pictures[0],
            "images": pictures,
            "instruction": request.instruction,
            "prompt": request.instruction,
            "seed": request.seed,
            "portrait": request.portraits[0].id,
        }
        try:
            result = self._function(supplied)
        except Refusal as refusal:
            return Refused(message=str(refusal) or "no reason given")
        except (Exception, SystemExit) as error:
            return Failed(error=f"{type(error).__name__}: {error}", retryable=True)
        try:
            data = _encoded(result)
            size = images.read_picture(data, name=f"what {self._function.name!r} returned").size
        except (UnreadableImage, OSError) as error:
            # Waiting does not help; a corrected function with a fixed `version` has the same key.
            return Failed(error=str(error), retryable=True, retry_after=0.0)
        return Edited(image=data, effective={"size": list(size)})


def _encoded(result: object) -> bytes:
    """The result as an image file."""
    import numpy as np
    from PIL import Image

    match result:
        case Image.Image():
            buffer = io.BytesIO()
            kept = result if result.mode in _AS_IT_IS else result.convert("RGB")
            kept.save(buffer, "PNG", compress_level=1)
            return buffer.getvalue()
        case bytes() | bytearray() | memoryview():
            return bytes(cast("bytes", result))
        case str() | os.PathLike():
            return Path(cast("str", result)).read_bytes()
        case np.ndarray():
            pixels = cast("NDArray[Any]", result)
            if pixels.ndim == 3 and pixels.shape[2] == 3 and pixels.dtype == np.uint8 and pixels.size:
                return images.encode_png(np.ascontiguousarray(pixels))
            came = f"an array of shape {pixels.shape} and type {pixels.dtype}"
        case None:
            came = "None"
        case _:
            came = f"{type(result).__module__}.{type(result).__qualname__}"
    raise UnreadableImage(f"the function returned {came}; it must return {_ACCEPTED}")
