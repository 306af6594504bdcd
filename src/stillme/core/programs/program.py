"""One program of the user's: its command line, what keys its results, and one call of it."""

from __future__ import annotations

import os
import shlex
import shutil
import tempfile
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from pydantic import Field, field_validator

from stillme.core import images
from stillme.core.files import sha256_of
from stillme.core.placeholders import fill, names_in, unknown_names
from stillme.core.programs.process import SupervisedProcess, end_of, ended, out_of_time
from stillme.core.programs.supervisor import NOT_EXECUTABLE, NOT_STARTED
from stillme.core.protocols import Parameters
from stillme.core.redaction import redacted
from stillme.core.types import Failed, Json, Spec, digest

REFUSED = "stillme: refused:"
"""A line on standard output that begins so is a refusal, in the words that follow."""


class ProgramParameters(Parameters):
    """Which program is started, and how long it may take."""

    run: tuple[str, ...] = Field(min_length=1)
    """The command line, as one text or as a list. No shell is started."""
    version: str = Field(default="", exclude=True)
    """Replaces the hash of its files; change it when its behaviour changes for a reason outside of them."""
    revision: str = ""
    """Which checkpoint it uses; change it when another one is behind it, and everything is asked again."""
    timeout: float = Field(default=600.0, gt=0, exclude=True)
    """Seconds for one call; then it is killed, with everything that it started."""
    concurrency: int = Field(default=1, ge=1, le=256, exclude=True)
    """Calls at once."""
    price: float = Field(default=0.0, ge=0, exclude=True)
    """US dollars of one call that ends with exit code 0."""

    @field_validator("run", mode="before", json_schema_input_type=str | list[str])
    @classmethod
    def _split(cls, given: object) -> object:
        try:
            return shlex.split(given) if isinstance(given, str) else given
        except ValueError as error:
            raise ValueError(f"{given!r} cannot be split into arguments ({error}); write a list instead") from None


@dataclass(frozen=True, slots=True, kw_only=True)
class Finished:
    """It ended with exit code 0."""

    output: str
    """The end of its standard output, without secrets."""

    @property
    def refusal(self) -> str | None:
        """Its words, if it declined."""
        for line in self.output.splitlines():
            if line.startswith(REFUSED):
                return line.removeprefix(REFUSED).strip() or "no reason given"
        return None


class Program:
    """A command line with placeholders, started in the folder of audit.toml."""

    def __init__(self, parameters: ProgramParameters) -> None:
        self._settings = parameters
        self._folder = parameters.path("").resolve()
        self._running: set[SupervisedProcess] = set()
        self._lock = threading.Lock()
        self.placeholders = names_in(parameters.run)

    def spec(self) -> Spec:
        """What keys its results: its command line as written, and the content of the files that it names."""
        files = {argument: sha256_of(file) for argument, file in self._files()}
        stated: Mapping[str, Json] = self._settings.model_dump(mode="json")
        return Spec(use="command", version=self._settings.version or digest(files), parameters=stated)

    def problems(self, known: Sequence[str], needed: Sequence[str]) -> Iterator[str]:
        """Placeholders that are unknown or missing, and a program that is not there."""
        yield from unknown_names("run", self._settings.run, frozenset(known))
        for name in needed:
            if name not in self.placeholders:
                yield f"`run` has no {{{name}}}; add it where the program expects it"
        program = self._settings.run[0]
        if shutil.which(self._executable()) is None:
            in_folder = (self._folder / program).is_file() and "/" not in program
            yield f"`run` starts {program!r}, which " + (
                f"is in the folder of audit.toml; write './{program}'"
                if in_folder
                else "is not there or not executable; correct it, or install it"
            )

    def call(self, values: Mapping[str, object], scratch: Path) -> Finished | Failed:
        """Start it once with these values, and wait for its end. `scratch` is the folder of this call's pictures."""
        command = [fill(argument, values) for argument in (self._executable(), *self._settings.run[1:])]
        with tempfile.TemporaryFile() as output:
            try:
                process = SupervisedProcess(command, folder=self._folder, stdout=output)
            except (OSError, ValueError) as error:
                return Failed(error=f"the program cannot be started: {error}", retryable=True)
            with self._lock:
                self._running.add(process)
            try:
                code = process.wait(self._settings.timeout)
                process.kill()
                if code == 0:
                    return Finished(output=redacted(end_of(output)))
                words = process.last_words() or end_of(output)
            finally:
                with self._lock:
                    self._running.discard(process)
                process.close()
        # Without the folder of this call, so that equal failures read alike.
        words = redacted(words.replace(f"{scratch}{os.sep}", ""))
        if code is None:
            return Failed(error=out_of_time(self._settings.timeout, words), retryable=True)
        fatal = code in (NOT_STARTED, NOT_EXECUTABLE)
        return Failed(error=ended(code, words), retryable=True, fatal=fatal, status=str(code))

    def close(self) -> None:
        """Kill what still runs."""
        with self._lock:
            for process in self._running:
                process.kill()

    def _executable(self) -> str:
        program = self._settings.run[0]
        return str(self._folder / Path(program).expanduser()) if "/" in program else program

    def _files(self) -> Iterator[tuple[str, Path]]:
        """The arguments that are files in or below the folder of audit.toml; also in `--script=edit.py`."""
        for argument in self._settings.run:
            for written in {argument, argument.partition("=")[2]} - {""}:
                with suppress(OSError, ValueError):  # a text that is too long for a name, or holds what no name can
                    file = (self._folder / written).resolve()
                    if not names_in(written) and file.is_file() and file.is_relative_to(self._folder):
                        yield written, file


def write_picture(source: Path, target: Path) -> Path:
    """A picture under a name that tells nothing of the person: PNG, upright, sRGB."""
    target.write_bytes(images.encode_png(images.read_rgb(source)))
    return target
