"""Edits that already exist as files: an audit needs no editor, only file names that say what they show.

    [[editors]]
    use = "folder"
    [editors.parameters]
    folder = "outputs"
    pattern = "{portrait}/{prompt}_{arm}_{seed}.png"

**Missing files.** A request without a file fails with the path. The failure is retryable, so the next run picks up a
file that appeared since; exit code 3 says that some are missing.

**Changed files.** `fingerprint` is the SHA-256 of a request's file and part of the request's key. A changed file is
another request: only it is read and judged again, and the old rows stay. With a hash of the whole folder as a
parameter, one new file would invalidate every paid judgement.
"""

from __future__ import annotations

import hashlib
import re
import string
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from pathlib import Path, PurePosixPath
from typing import ClassVar

from pydantic import BaseModel, Field

from stillme import images
from stillme.errors import UnreadableImage, did_you_mean
from stillme.files import sha256_of
from stillme.protocols import Capabilities, Needs, Parameters, spec_of
from stillme.types import Arm, Edited, EditOutcome, Failed, Portrait, Prompt, Request

_FIELDS = ("portrait", "prompt", "arm", "seed")
_ANY = ".*"
_SUFFIXES = (".png", ".jpg", ".jpeg", ".webp")
_SHOWN = 3


class FolderParameters(Parameters):
    """Where the files are and how they are named."""

    folder: str = Field(min_length=1)
    pattern: str = Field(default="{portrait}/{prompt}.png", min_length=1)
    """Path below the folder. `{seed:03d}` pads; an ending of `.*` takes .png, .jpg, .jpeg or .webp."""
    complete: bool = Field(default=False, exclude=True)
    """Whether the audit refuses to start while a file is missing."""


class Folder:
    """Reads finished edits from files, by a pattern for their names."""

    Parameters: ClassVar[type[BaseModel]] = FolderParameters
    needs: ClassVar[Needs] = Needs()

    def __init__(self, parameters: FolderParameters) -> None:
        self._root = parameters.path(parameters.folder)
        self._pattern = parameters.pattern
        self._complete = parameters.complete
        self.spec = spec_of("folder", "1", parameters)
        self.capabilities = Capabilities(
            inputs=2, batching="per_item", batch=16, concurrency=2, seed="exact", reads_instruction=False
        )

    def problems(self, portraits: Sequence[Portrait], prompts: Sequence[Prompt]) -> Iterator[str]:
        """Errors in the pattern; otherwise, if no file exists or all must, how many are missing."""
        mistakes = list(self._mistakes(portraits, prompts))
        if mistakes or not prompts:
            yield from mistakes
            return
        cells = [(portrait, prompt) for portrait in portraits for prompt in prompts]
        existing = self._existing(portraits, prompts)
        missing = [(portrait, prompt) for portrait, prompt in cells if (portrait.id, prompt.id) not in existing]
        if missing and (self._complete or len(missing) == len(cells)):
            shown = ", ".join(f"{portrait.id} × {prompt.id}" for portrait, prompt in missing[:_SHOWN])
            more = f" and {len(missing) - _SHOWN:,} more" if len(missing) > _SHOWN else ""
            example = self._path((missing[0][0],), missing[0][1], Arm.BASELINE, 0)
            yield (
                f"{len(missing):,} of {len(cells):,} files are missing ({shown}{more}); "
                f"the first would be {example}. Correct `folder` or `pattern`, or add the files"
            )

    def edit(self, requests: Sequence[Request]) -> Iterator[EditOutcome]:
        """The file of each request."""
        for request in requests:
            yield self._outcome(request)

    def close(self) -> None:
        """Nothing is held."""

    def fingerprint(self, portraits: Sequence[Portrait], prompt: Prompt, arm: Arm, seed: int) -> str:
        """The SHA-256 of the request's file, for its key; empty while there is none."""
        try:
            file = self._find(portraits, prompt, arm, seed)
            stat = file.stat()
        except (ValueError, OSError):
            return ""
        return _sha256(file, stat.st_size, stat.st_mtime_ns)

    def _outcome(self, request: Request) -> EditOutcome:
        if len(request.portraits) > self.capabilities.inputs:
            return Failed(
                error=f"takes {self.capabilities.inputs} portraits, not {len(request.portraits)}", retryable=False
            )
        try:
            file = self._find(request.portraits, request.prompt, request.arm, request.seed)
            data = file.read_bytes()
            height, width = images.read_rgb(data, name=str(file)).shape[:2]
        except (ValueError, UnreadableImage, OSError) as error:
            # Waiting does not help, but the file may exist at the next run.
            return Failed(error=str(error), retryable=True, retry_after=0.0)
        effective = {
            "file": file.relative_to(self._root).as_posix(),
            "sha256": hashlib.sha256(data).hexdigest(),
            "size": [width, height],
        }
        return Edited(image=data, effective=effective)

    def expected_file(self, portraits: Sequence[Portrait], prompt: Prompt, arm: Arm, seed: int) -> Path:
        """Where the request's file must be; an ending of `.*` stands for any of the known ones."""
        # One file is never the output of two arms or seeds: without the field it is the baseline's, and that of seed 0.
        fields, pattern = _fields_of(self._pattern), self._pattern
        if "arm" not in fields and arm is not Arm.BASELINE:
            raise _NoFile(f"the pattern {pattern!r} has no {{arm}}, so its files are the baseline's, not the {arm}'s")
        if "seed" not in fields and seed != 0:
            raise _NoFile(f"the pattern {pattern!r} has no {{seed}}, so its files are those of seed 0, not {seed}")
        return self._path(portraits, prompt, arm, seed)

    def _find(self, portraits: Sequence[Portrait], prompt: Prompt, arm: Arm, seed: int) -> Path:
        path = self.expected_file(portraits, prompt, arm, seed)
        files = [candidate for candidate in _candidates(path) if candidate.is_file()]
        if not files:
            raise _NoFile(f"there is no file {path}")
        if len(files) > 1:
            raise _NoFile(f"{' and '.join(map(str, files))} both exist; keep one")
        return files[0]

    def _path(self, portraits: Sequence[Portrait], prompt: Prompt, arm: Arm, seed: int) -> Path:
        people = "+".join(portrait.id for portrait in portraits)
        try:
            below = self._pattern.format(portrait=people, prompt=prompt.id, arm=arm.value, seed=seed)
        except (ValueError, LookupError, AttributeError) as error:
            raise _NoFile(f"the pattern {self._pattern!r} cannot be filled in ({error})") from None
        if not _stays_below(below):
            raise _NoFile(f"{below!r} would leave the folder {self._root}")
        return self._root / below

    def _existing(self, portraits: Sequence[Portrait], prompts: Sequence[Prompt]) -> set[tuple[str, str]]:
        """Portraits and prompts with a file for any arm and seed; which arms and seeds are needed is not known here."""
        ids = {"portrait": [portrait.id for portrait in portraits], "prompt": [prompt.id for prompt in prompts]}
        expression = _expression(self._pattern, ids | {"arm": [arm.value for arm in Arm]})
        cells: set[tuple[str, str]] = set()
        for file in self._root.rglob("*"):
            if match := expression.fullmatch(file.relative_to(self._root).as_posix()):
                fields = match.groupdict()
                cells.add((fields.get("portrait") or ids["portrait"][0], fields.get("prompt") or ids["prompt"][0]))
        return cells

    def _mistakes(self, portraits: Sequence[Portrait], prompts: Sequence[Prompt]) -> Iterator[str]:
        try:
            fields = _fields_of(self._pattern)
            for name in sorted(fields - set(_FIELDS)):
                yield f"`pattern` has the unknown field {name!r}.{did_you_mean(name, _FIELDS)} Known: {_choices()}"
            if not fields <= set(_FIELDS):
                return
            self._pattern.format(portrait="x", prompt="x", arm="x", seed=0)
        except ValueError as error:
            yield f"`pattern` {self._pattern!r} is invalid ({error}); use braces only for {_choices()}"
            return
        if not self._root.is_dir():
            yield f"`folder` {self._root} does not exist; correct its path"
        for name, things in (("portrait", portraits), ("prompt", prompts)):
            if name not in fields and len(things) > 1:
                yield f"`pattern` has no {{{name}}}, so {len(things):,} {name}s would share each file; add it"
        for name, things in (("portrait", portraits), ("prompt", prompts)):
            for thing in things:
                if name in fields and not _stays_below(_filled(self._pattern, **{name: thing.id})):
                    yield f"the {name} {thing.id!r} makes a path that leaves the folder; rename it"


class _NoFile(ValueError):
    """A request without a file, for a reason that the user can change."""


@lru_cache
def _fields_of(pattern: str) -> frozenset[str]:
    return frozenset(name for _, name, _, _ in string.Formatter().parse(pattern) if name is not None)


def _filled(pattern: str, **known: str) -> str:
    """The pattern as a glob: known fields filled in, the others as `*`."""
    parts: list[str] = []
    for text, name, _, _ in string.Formatter().parse(pattern):
        parts.append(text)
        if name is not None:
            parts.append(known.get(name, "*"))
    return "".join(parts)


def _expression(pattern: str, known: Mapping[str, Sequence[str]]) -> re.Pattern[str]:
    """A regular expression for the pattern with any of the known values."""
    parts: list[str] = []
    ending = pattern.endswith(_ANY)
    for text, name, _, _ in string.Formatter().parse(pattern.removesuffix(_ANY)):
        parts.append(re.escape(text))
        if name is not None:
            # The longest first, so that an id which is the beginning of another does not match instead of it.
            values = sorted(known.get(name, ()), key=len, reverse=True)
            choice = "|".join(map(re.escape, values)) if values else r"-?\d+"
            repeated = any(part.startswith(f"(?P<{name}>") for part in parts)
            parts.append(f"(?P={name})" if repeated else f"(?P<{name}>{choice})")
    return re.compile("".join(parts) + (f"(?:{'|'.join(map(re.escape, _SUFFIXES))})" if ending else ""))


def _candidates(path: Path) -> Iterator[Path]:
    if path.name.endswith(_ANY):
        yield from (path.with_name(path.name.removesuffix(_ANY) + suffix) for suffix in _SUFFIXES)
    else:
        yield path


def _stays_below(path: str) -> bool:
    """Whether the written path stays below its folder. Links inside the folder are the user's and may lead anywhere."""
    parts = PurePosixPath(path.replace("\\", "/"))
    return not parts.is_absolute() and ".." not in parts.parts and "\0" not in path and ":" not in path[:2]


def _choices() -> str:
    return ", ".join(f"{{{name}}}" for name in _FIELDS)


@lru_cache(maxsize=100_000)
def _sha256(file: Path, size: int, modified: int) -> str:
    """Cached until size or time of modification changes."""
    del size, modified
    return sha256_of(file)
