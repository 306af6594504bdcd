"""A program as an editor: `use = "command"`, `run = "python edit.py {source} {output} {instruction}"`.

It is blind: pictures are handed over under names that tell nothing, and no placeholder names a person, group or arm.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Literal

from pydantic import Field

from stillme.core import images
from stillme.core.errors import UnreadableImage
from stillme.core.programs.program import Program, ProgramParameters, write_picture
from stillme.core.protocols import Capabilities, Editor, revision_note
from stillme.core.types import Edited, EditOutcome, Failed, Portrait, Prompt, Refused, Request

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
