"""Outputs that somebody already has: an audit needs no editor at all, only files whose names say what they show.

    [[editors]]
    use = "folder"
    [editors.parameters]
    folder = "outputs"
    pattern = "{portrait}/{prompt}_{arm}_{seed}.png"

**Missing files.** A request without a file fails, naming the path, and counts as missing. It fails as something that a
rerun tries again, so a file that appears later is picked up by the next run; exit code 3 says that some are missing.

**Changed files.** `fingerprint` is the SHA-256 of a request's file. Where it is part of the request's key, a changed
file is another request: it is read and judged anew, it alone, and the old rows stay as they were. The hash of the whole
folder would not do as a parameter: one more file would then make every paid judgement worthless.
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
    """Whether the audit must not start while a file is missing."""


class Folder:
    """Takes the edits from files that are already there, by a pattern for their names."""

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

    def objections(self, portraits: Sequence[Portrait], prompts: Sequence[Prompt]) -> Iterator[str]:
        """Mistakes in the pattern; then, if nothing fits it or everything must, how many files are missing."""
        mistakes = list(self._mistakes(portraits, prompts))
        if mistakes or not prompts:
            yield from mistakes
            return
        cells = [(portrait, prompt) for portrait in portraits for prompt in prompts]
        there = self._there(portraits, prompts)
        missing = [(portrait, prompt) for portrait, prompt in cells if (portrait.id, prompt.id) not in there]
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
        """The SHA-256 of the request's file, to be part of its key; empty while there is none."""
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
            # Nothing is gained by waiting, but a later run may find what this one did not.
            return Failed(error=str(error), retryable=True, retry_after=0.0)
        effective = {
            "file": file.relative_to(self._root).as_posix(),
            "sha256": hashlib.sha256(data).hexdigest(),
            "size": [width, height],
        }
        return Edited(image=data, effective=effective)

    def _find(self, portraits: Sequence[Portrait], prompt: Prompt, arm: Arm, seed: int) -> Path:
        # One file cannot be the output of two arms or two seeds: without the field it is that of the plain request.
        named, pattern = _fields_of(self._pattern), self._pattern
        if "arm" not in named and arm is not Arm.BASELINE:
            raise _NoFile(f"the pattern {pattern!r} has no {{arm}}, so its files are the baseline's, not the {arm}'s")
        if "seed" not in named and seed != 0:
            raise _NoFile(f"the pattern {pattern!r} has no {{seed}}, so its files are those of seed 0, not {seed}")
        path = self._path(portraits, prompt, arm, seed)
        found = [each for each in _candidates(path) if each.is_file()]
        if not found:
            raise _NoFile(f"there is no file {path}")
        if len(found) > 1:
            raise _NoFile(f"{' and '.join(map(str, found))} are both there; keep one")
        return found[0]

    def _path(self, portraits: Sequence[Portrait], prompt: Prompt, arm: Arm, seed: int) -> Path:
        whose = "+".join(portrait.id for portrait in portraits)
        try:
            below = self._pattern.format(portrait=whose, prompt=prompt.id, arm=arm.value, seed=seed)
        except (ValueError, LookupError, AttributeError) as error:
            raise _NoFile(f"the pattern {self._pattern!r} cannot be filled in ({error})") from None
        if not _stays_below(below):
            raise _NoFile(f"{below!r} would leave the folder {self._root}")
        return self._root / below

    def _there(self, portraits: Sequence[Portrait], prompts: Sequence[Prompt]) -> set[tuple[str, str]]:
        """Portraits and prompts that have a file for any arm and seed: which of these are wanted is not known yet."""
        ids = {"portrait": [each.id for each in portraits], "prompt": [each.id for each in prompts]}
        fits = _expression(self._pattern, ids | {"arm": [arm.value for arm in Arm]})
        found: set[tuple[str, str]] = set()
        for file in self._root.rglob("*"):
            if match := fits.fullmatch(file.relative_to(self._root).as_posix()):
                named = match.groupdict()
                found.add((named.get("portrait") or ids["portrait"][0], named.get("prompt") or ids["prompt"][0]))
        return found

    def _mistakes(self, portraits: Sequence[Portrait], prompts: Sequence[Prompt]) -> Iterator[str]:
        try:
            fields = _fields_of(self._pattern)
            for name in sorted(fields - set(_FIELDS)):
                yield f"`pattern` has the unknown field {name!r}.{did_you_mean(name, _FIELDS)} Known: {_choices()}"
            if not fields <= set(_FIELDS):
                return
            self._pattern.format(portrait="x", prompt="x", arm="x", seed=0)
        except ValueError as error:
            yield f"`pattern` {self._pattern!r} cannot be read ({error}); write braces only around {_choices()}"
            return
        if not self._root.is_dir():
            yield f"`folder` {self._root} is no folder here; write its path"
        for name, things in (("portrait", portraits), ("prompt", prompts)):
            if name not in fields and len(things) > 1:
                yield f"`pattern` has no {{{name}}}, so {len(things):,} {name}s would share each file; add it"
        for name, things in (("portrait", portraits), ("prompt", prompts)):
            for thing in things:
                if name in fields and not _stays_below(_filled(self._pattern, **{name: thing.id})):
                    yield f"the {name} {thing.id!r} makes a path that leaves the folder; rename it"


class _NoFile(ValueError):
    """There is nothing to return, for a reason that the user can change."""


@lru_cache
def _fields_of(pattern: str) -> frozenset[str]:
    return frozenset(name for _, name, _, _ in string.Formatter().parse(pattern) if name is not None)


def _filled(pattern: str, **known: str) -> str:
    """The pattern as a glob: what is known filled in, the rest open."""
    parts: list[str] = []
    for text, name, _, _ in string.Formatter().parse(pattern):
        parts.append(text)
        if name is not None:
            parts.append(known.get(name, "*"))
    return "".join(parts)


def _expression(pattern: str, known: Mapping[str, Sequence[str]]) -> re.Pattern[str]:
    """What fits the pattern with any of the known values."""
    parts: list[str] = []
    ending = pattern.endswith(_ANY)
    for text, name, _, _ in string.Formatter().parse(pattern.removesuffix(_ANY)):
        parts.append(re.escape(text))
        if name is not None:
            # The longest first, so that one id which begins like another does not cut it short.
            values = sorted(known.get(name, ()), key=len, reverse=True)
            choice = "|".join(map(re.escape, values)) if values else r"-?\d+"
            again = any(part.startswith(f"(?P<{name}>") for part in parts)
            parts.append(f"(?P={name})" if again else f"(?P<{name}>{choice})")
    return re.compile("".join(parts) + (f"(?:{'|'.join(map(re.escape, _SUFFIXES))})" if ending else ""))


def _candidates(path: Path) -> Iterator[Path]:
    if path.name.endswith(_ANY):
        yield from (path.with_name(path.name.removesuffix(_ANY) + suffix) for suffix in _SUFFIXES)
    else:
        yield path


def _stays_below(path: str) -> bool:
    """By the path's own words. Links inside the folder are the user's, and may lead anywhere."""
    parts = PurePosixPath(path.replace("\\", "/"))
    return not parts.is_absolute() and ".." not in parts.parts and "\0" not in path and ":" not in path[:2]


def _choices() -> str:
    return ", ".join(f"{{{name}}}" for name in _FIELDS)


@lru_cache(maxsize=100_000)
def _sha256(file: Path, size: int, modified: int) -> str:
    """Of the content; size and time only tell when to read it again."""
    del size, modified
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()
