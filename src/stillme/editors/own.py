"""An editor of your own: a function or a program.

- `use = "python:my_module:edit"`, where `def edit(image, instruction, seed)` is enough.
- `use = "command"`, `run = "python edit.py {source} {output} {instruction}"`. The program is blind: pictures are handed
  over under names that tell nothing, and no placeholder names a person, group or arm.
"""

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

import tempfile
from collections.abc import Iterable

from stillme.core.programs.program import Program, ProgramParameters, write_picture
from stillme.core.protocols import revision_note

SUPPLIED = ("image", "images", "instruction", "prompt", "seed", "portrait")
"""What a function may ask for, by the names of its parameters."""
_ACCEPTED = "a PIL image, the bytes of an image file, its path, or an array (height × width × 3, uint8)"
_PLAIN_WITHOUT = {"icc_profile", "transparency"}
"""What Pillow knows of a picture that is more than its pixels."""
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
        from PIL import Image

        # Decoded once for all requests of a portrait; the function gets copies, which it may change.
        pictures = [Image.fromarray(images.read_source(portrait.image.read())) for portrait in request.portraits]
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
            height, width = images.read_rgb(data, name=f"what {self._function.name!r} returned").shape[:2]
        except (UnreadableImage, OSError) as error:
            # Waiting does not help; a corrected function with a fixed `version` has the same key.
            return Failed(error=str(error), retryable=True, retry_after=0.0)
        return Edited(image=data, effective={"size": [width, height]})


def _encoded(result: object) -> bytes:
    """The result as an image file."""
    import numpy as np
    from PIL import Image

    match result:
        case Image.Image(mode="RGB", info=info) if _PLAIN_WITHOUT.isdisjoint(info):
            return images.encode_png(np.asarray(result))
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


PLACEHOLDERS = ("source", "source2", "output", "instruction", "seed")


class EditorCommandParameters(ProgramParameters):
    """Which program edits, and what is known of it."""

    seed: Literal["exact", "best_effort", "none"] | None = Field(default=None, exclude=True)
    """What a seed is worth; by default `best_effort` with {seed} in `run`, else `none`."""


class CommandEditor(Editor):
    """A program of your own, in any language: `run` is its command line."""

    Parameters = EditorCommandParameters
    more_inputs = "; add {source2} to `run`"

    def __init__(self, parameters: EditorCommandParameters) -> None:
        self._program = Program(parameters)
        self._price, self._revision = parameters.price, parameters.revision or parameters.version
        self.spec = self._program.spec()
        placeholders = self._program.placeholders
        self.capabilities = Capabilities(
            inputs=2 if "source2" in placeholders else 1,
            concurrency=parameters.concurrency,
            seed=parameters.seed or ("best_effort" if "seed" in placeholders else "none"),
            size="any",
            can_refuse=True,
        )

    def problems(self, portraits: Sequence[Portrait], prompts: Sequence[Prompt]) -> Iterator[str]:
        """Placeholders that are unknown or missing, and a program that is not there."""
        yield from self._program.problems(PLACEHOLDERS, ("source", "output", "instruction"))

    def notes(self, requests: Iterable[Request]) -> Iterator[str]:
        """That a new checkpoint would not be noticed, unless the audit names its revision."""
        if not self._revision:
            yield revision_note("the program")

    def expected_dollars(self) -> float:
        """The price that the audit gives."""
        return self._price

    def close(self) -> None:
        """Kill what still runs."""
        self._program.close()

    def edit_one(self, request: Request) -> EditOutcome:
        """Start the program once."""
        with tempfile.TemporaryDirectory(prefix="stillme-") as name:
            scratch = Path(name)
            files = [scratch / "source.png", scratch / "source2.png"]
            output = scratch / "output.png"
            for portrait, file in zip(request.portraits, files, strict=False):
                write_picture(portrait.image.path, file)
            values = {
                "source": files[0],
                # A request with one portrait leaves the second place empty.
                "source2": files[1] if len(request.portraits) > 1 else "",
                "output": output,
                "instruction": request.instruction,
                "seed": request.seed,
            }
            finished = self._program.call(values, scratch)
            if isinstance(finished, Failed):
                return finished
            if (words := finished.refusal) is not None:
                return Refused(message=words, cost=self._price)
            return self._edited(output)

    def _edited(self, output: Path) -> EditOutcome:
        try:
            data = output.read_bytes()
            size = images.read_picture(data, name="what the program wrote to {output}").size
        except FileNotFoundError:
            error = "exit code 0, but there is no file at {output}; write the picture there, or end with another code"
            return Failed(error=error, retryable=True, cost=self._price)
        except (UnreadableImage, OSError) as error:
            return Failed(error=str(error), retryable=True, cost=self._price)
        return Edited(image=data, effective={"size": list(size)}, cost=self._price)
