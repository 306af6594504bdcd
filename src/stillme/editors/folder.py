"""Edits that already exist as files: an audit needs no editor, only names or a table that say what each file shows.

    [[editors]]
    use = "folder"
    [editors.parameters]
    folder = "outputs"
    pattern = "{portrait}/{prompt}_{arm}_{seed}.png"     # or manifest = "outputs/edits.csv"

**Missing files.** A request without a file fails with the path, and is not tried again in the same run. The next run
picks up a file that appeared since; exit code 3 says that some are missing. What is there is judged and reported.

**Changed files.** `fingerprint` is the SHA-256 of a request's file and part of the request's key. A changed file is
another request: only it is read and judged again, and the old rows stay. With a hash of the whole folder as a
parameter, one new file would invalidate every paid judgement.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from functools import lru_cache
from pathlib import Path

from pydantic import Field, model_validator

from stillme.core import images
from stillme.core.errors import UnreadableImage
from stillme.core.files import sha256_of
from stillme.core.protocols import Capabilities, Editor, Parameters, spec_of
from stillme.core.types import Arm, Edited, EditOutcome, Failed, Portrait, Prompt, Refused, Request
from stillme.editors.file_names import (
    Cell,
    Manifest,
    ManifestEntry,
    NamePattern,
    files_below,
    names_of,
    same_but_for_case,
    stays_below,
)

_SHOWN = 3
_PROMPTS = 5
"""Prompts that a message about missing files names."""


class FolderParameters(Parameters):
    """Where the files are, and how they are named or which table lists them."""

    folder: str = ""
    """Where the files are; by default the folder of the manifest."""
    pattern: str = Field(default="{portrait}/{prompt}.png", min_length=1)
    """Path below the folder, of {portrait}, {prompt}, {prompt_index} (from 0), {prompt_number} (from 1), {arm}, {seed}
    and the portraits' attributes. `{seed:03d}` pads; an ending of `.*` takes .png, .jpg, .jpeg or .webp."""
    manifest: str = Field(default="", exclude=True)
    """A CSV instead of a pattern: file, portrait, prompt, and if need be arm, seed, refused, note."""
    complete: bool = Field(default=False, exclude=True)
    """Whether the audit refuses to start while a file is missing."""

    @model_validator(mode="after")
    def _are_one_way(self) -> FolderParameters:
        if not (self.folder or self.manifest):
            raise ValueError("give `folder`, or `manifest`")
        if self.manifest and "pattern" in self.model_fields_set:
            raise ValueError("a manifest lists every file, so `pattern` would be ignored; remove one of them")
        return self


class Folder(Editor):
    """Reads finished edits from files, by a pattern for their names or by a table."""

    Parameters = FolderParameters

    def __init__(self, parameters: FolderParameters) -> None:
        table = parameters.path(parameters.manifest) if parameters.manifest else None
        self._root = parameters.path(parameters.folder) if parameters.folder or not table else table.parent
        self._pattern = NamePattern(parameters.pattern)
        self._manifest = Manifest(table) if table else None
        self._complete = parameters.complete
        self._casts: Sequence[Cell] = ()
        spec = spec_of("folder", "1", parameters)
        # Only where there is one: what was read by a pattern keeps its key.
        self.spec = (
            replace(spec, parameters={**spec.parameters, "manifest": parameters.manifest})
            if parameters.manifest
            else spec
        )
        self.capabilities = Capabilities(
            inputs=2,
            batching="per_item",
            batch=16,
            concurrency=2,
            seed="exact",
            can_refuse=self._manifest is not None,
            reads_instruction=False,
        )

    def set_prompts(self, prompts: Sequence[Prompt]) -> None:
        """Number the prompts in the audit's order."""
        self._pattern = self._pattern.numbering(prompts)

    def set_casts(self, casts: Sequence[Cell]) -> None:
        """Role prompts with their people: no other portraits are edited with them."""
        self._casts = casts

    def problems(self, portraits: Sequence[Portrait], prompts: Sequence[Prompt]) -> Iterator[str]:
        """Errors in the pattern or the manifest; otherwise, if no file exists or all must, how many are missing."""
        cast = {prompt.id for _, prompt in self._casts}
        alone = [((portrait,), prompt) for portrait in portraits for prompt in prompts if prompt.id not in cast]
        cells: Sequence[Cell] = [*alone, *self._casts]
        mistakes = list(self._mistakes(cells))
        if mistakes or not prompts:
            yield from mistakes
            return
        existing = self._existing(cells)
        missing = [(people, prompt) for people, prompt in cells if (names_of(people), prompt.id) not in existing]
        if missing and (self._complete or len(missing) == len(cells)):
            shown = ", ".join(f"{names_of(people)} × {prompt.id}" for people, prompt in missing[:_SHOWN])
            more = f" and {len(missing) - _SHOWN:,} more" if len(missing) > _SHOWN else ""
            yield f"{len(missing):,} of {len(cells):,} files are missing ({shown}{more}); {self._remedy(*missing[0])}"

    def seed_problems(self, seeds: Sequence[int]) -> Iterator[str]:
        """Without {seed}, a file cannot be the output of several seeds."""
        if self._manifest is None and "seed" not in self._pattern.fields and (other := [s for s in seeds if s != 0]):
            shown = ", ".join(map(str, other[:_SHOWN])) + (", …" if len(other) > _SHOWN else "")
            yield f"`pattern` has no {{seed}}, so there are no files of seed {shown}; add it, or write seeds = [0]"

    def notes(self, requests: Iterable[Request]) -> Iterator[str]:
        """How many files there are and which are missing; and how many of the folder no request asks for."""
        asked: set[Path] = set()
        found, missing = 0, Counter[str]()
        for request in requests:
            cell = (request.portraits, request.prompt, request.arm, request.seed)
            try:
                entry = self._entry(*cell)
                if not (entry and entry.refused):
                    asked.add(self._file(*cell))
                found += 1
            except ValueError:
                missing[request.prompt.id] += 1
        if missing:
            shown = ", ".join(f"{prompt} ({count:,})" for prompt, count in list(missing.items())[:_PROMPTS])
            more = f" and {len(missing) - _PROMPTS:,} more prompts" if len(missing) > _PROMPTS else ""
            yield f"{found:,} of {found + missing.total():,} files found; missing: {shown}{more}"
        extra = [file for file in files_below(self._root) if file not in asked]
        if extra:
            shown = ", ".join(file.relative_to(self._root).as_posix() for file in extra[:_SHOWN])
            more = ", …" if len(extra) > _SHOWN else ""
            yield f"{len(extra):,} pictures in {self._root} belong to no request ({shown}{more}); they are not read"

    def fingerprint(self, portraits: Sequence[Portrait], prompt: Prompt, arm: Arm, seed: int) -> str:
        """The SHA-256 of the request's file, for its key; empty while there is none."""
        try:
            entry = self._entry(portraits, prompt, arm, seed)
            if entry and entry.refused:
                return hashlib.sha256(f"refused: {entry.note}".encode()).hexdigest()
            file = self._file(portraits, prompt, arm, seed)
            stat = file.stat()
        except (ValueError, OSError):
            return ""
        return _sha256(file, stat.st_size, stat.st_mtime_ns)

    def expected_file(self, portraits: Sequence[Portrait], prompt: Prompt, arm: Arm, seed: int) -> Path:
        """Where the request's file must be; an ending of `.*` stands for any of the known ones."""
        if self._manifest is not None:
            entry = self._entry(portraits, prompt, arm, seed)
            if entry is None:
                raise NoFile(
                    f"{self._manifest.path} has no row for {names_of(portraits)} × {prompt.id}, {arm}, seed {seed}"
                )
            if not entry.file:
                raise NoFile(f"{self._manifest.path} says that it was refused (line {entry.line})")
            below = entry.file
        else:
            # One file is never the output of two arms or seeds: without the field it is the baseline's, and of seed 0.
            fields, pattern = self._pattern.fields, self._pattern.text
            if "arm" not in fields and arm is not Arm.BASELINE:
                raise NoFile(
                    f"the pattern {pattern!r} has no {{arm}}, so its files are the baseline's, not the {arm}'s"
                )
            if "seed" not in fields and seed != 0:
                raise NoFile(f"the pattern {pattern!r} has no {{seed}}, so its files are those of seed 0, not {seed}")
            below = self._pattern.filled(portraits, prompt, arm, seed)
        if not stays_below(below):
            raise NoFile(f"{below!r} would leave the folder {self._root}")
        return self._root / below

    def edit_one(self, request: Request) -> EditOutcome:
        """The file of the request."""
        try:
            entry = self._entry(request.portraits, request.prompt, request.arm, request.seed)
            if entry and entry.refused:
                return Refused(message=entry.note or "no reason given", effective={"row": entry.line})
            file = self._file(request.portraits, request.prompt, request.arm, request.seed)
            data = file.read_bytes()
            height, width = images.read_rgb(data, name=str(file)).shape[:2]
        except (ValueError, UnreadableImage, OSError) as error:
            # Waiting does not help; the next run looks again.
            return Failed(error=str(error), retryable=False)
        effective = {
            "file": file.relative_to(self._root).as_posix(),
            "sha256": hashlib.sha256(data).hexdigest(),
            "size": [width, height],
            **({"note": entry.note} if entry and entry.note else {}),
        }
        return Edited(image=data, effective=effective)

    def _entry(self, portraits: Sequence[Portrait], prompt: Prompt, arm: Arm, seed: int) -> ManifestEntry | None:
        if self._manifest is None:
            return None
        return self._manifest.entries.get((names_of(portraits), prompt.id, arm.value, seed))

    def _file(self, portraits: Sequence[Portrait], prompt: Prompt, arm: Arm, seed: int) -> Path:
        path = self.expected_file(portraits, prompt, arm, seed)
        files = same_but_for_case(path)
        if not files:
            raise NoFile(f"there is no file {path}")
        if len(files) > 1:
            raise NoFile(f"{' and '.join(map(str, files))} both exist; keep one")
        return files[0]

    def _existing(self, cells: Sequence[Cell]) -> set[tuple[str, str]]:
        """Portraits and prompts with a file for any arm and seed; which arms and seeds are needed is not known here."""
        if self._manifest is None:
            return self._pattern.existing(self._root, cells)
        return {
            (portrait, prompt)
            for (portrait, prompt, _, _), entry in self._manifest.entries.items()
            if entry.refused or (stays_below(entry.file) and same_but_for_case(self._root / entry.file))
        }

    def _remedy(self, portraits: Sequence[Portrait], prompt: Prompt) -> str:
        if self._manifest is not None:
            return f"add their rows to {self._manifest.path}, and the files to {self._root}"
        example = self._root / self._pattern.filled(portraits, prompt, Arm.BASELINE, 0)
        return f"the first would be {example}. Correct `folder` or `pattern`, or add the files"

    def _mistakes(self, cells: Sequence[Cell]) -> Iterator[str]:
        if self._manifest is not None:
            yield from self._manifest.problems()
        else:
            yield from self._pattern.problems(cells)
        if not self._root.is_dir():
            yield f"`folder` {self._root} does not exist; correct its path"


class NoFile(ValueError):
    """A request without a file, for a reason that the user can change."""


@lru_cache(maxsize=100_000)
def _sha256(file: Path, size: int, modified: int) -> str:
    """Cached until size or time of modification changes."""
    del size, modified
    return sha256_of(file)
