"""Which file is which edit: by a pattern of names, filled in and read back, or by a table that says so."""

from __future__ import annotations

import csv
import re
import string
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path, PurePosixPath

from stillme.core.errors import did_you_mean
from stillme.core.types import Arm, Portrait, Prompt

SUFFIXES = (".png", ".jpg", ".jpeg", ".webp")
_ANY = ".*"
_FIELDS = ("portrait", "prompt", "prompt_index", "prompt_number", "arm", "seed")
_VARYING = ("arm", "seed")
"""Fields that say how an edit was made, not of whom or what."""
_ENDING = re.compile(r"\.\w+$")
_FRESH = 2.0
"""Seconds in which a folder may change again without another time of modification."""


Cell = tuple[Sequence[Portrait], Prompt]
"""Whom an edit shows, and what was asked: one portrait, or two for a role prompt."""


def names_of(portraits: Sequence[Portrait]) -> str:
    """How the people of one edit are written: `anna`, or `anna+ben`."""
    return "+".join(portrait.id for portrait in portraits)


class NamePattern:
    """A path with fields, such as `{race}/{portrait}_{prompt_index:02d}.*`."""

    def __init__(self, text: str, numbers: Mapping[str, int] | None = None) -> None:
        self.text = text
        self._numbers = numbers or {}

    def numbering(self, prompts: Sequence[Prompt]) -> NamePattern:
        """The pattern for prompts in this order."""
        return NamePattern(self.text, {prompt.id: index for index, prompt in enumerate(prompts)})

    @cached_property
    def fields(self) -> frozenset[str]:
        """The names of its fields; empty if it is invalid."""
        try:
            return frozenset(name for _, name, _, _ in string.Formatter().parse(self.text) if name is not None)
        except ValueError:
            return frozenset()

    def filled(self, portraits: Sequence[Portrait], prompt: Prompt, arm: Arm, seed: int) -> str:
        """The path of an edit; raises `ValueError` with the reason if it has none."""
        values = self._values(portraits, prompt) | {"arm": arm.value, "seed": seed}
        try:
            return "".join(text + _formatted(name, spec, values) for text, name, spec in self._parts())
        except LookupError as error:
            raise ValueError(f"the pattern {self.text!r} cannot be filled in ({error} is not known)") from None
        except ValueError as error:
            raise ValueError(f"the pattern {self.text!r} cannot be filled in ({error})") from None

    def existing(self, root: Path, asked: Sequence[Cell]) -> set[tuple[str, str]]:
        """The people and prompts, of those that are asked for, with a file of any arm and seed below a folder."""
        numbered = self._numbered(asked)
        cells: dict[tuple[str, ...], tuple[str, str]] = {}
        choices: dict[str, set[str]] = {"arm": {arm.value for arm in Arm}}
        fields = [(name, spec) for _, name, spec in self._parts() if name and name not in _VARYING]
        for portraits, prompt in asked:
            values = numbered._values(portraits, prompt)
            written = tuple(_formatted(name, spec, values) for name, spec in fields)
            cells[written] = (names_of(portraits), prompt.id)
            for (name, spec), value in zip(fields, written, strict=True):
                choices.setdefault(f"{name}:{spec}", set()).add(value)
        expression = self._expression(choices)
        existing: set[tuple[str, str]] = set()
        for file in files_below(root):
            if match := expression.fullmatch(_folded(file.relative_to(root).as_posix())):
                written = tuple(match[group] for group in match.re.groupindex if group.startswith("of"))
                if cell := cells.get(written):
                    existing.add(cell)
        return existing

    def problems(self, asked: Sequence[Cell]) -> Iterator[str]:
        """Unknown fields, portraits or prompts that would share a file, and names that leave the folder."""
        attributes = {name for portraits, _ in asked for portrait in portraits for name in portrait.attributes}
        known = (*_FIELDS, *sorted(attributes - set(_FIELDS)))
        listed = ", ".join(f"{{{name}}}" for name in known)
        try:
            parsed = list(string.Formatter().parse(self.text))
            for name in sorted({name for _, name, _, _ in parsed if name is not None} - set(known)):
                yield f"`pattern` has the unknown field {name!r}.{did_you_mean(name, known)} Known: {listed}"
                return
            paths = self._paths(asked)
        except ValueError as error:
            yield f"`pattern` {self.text!r} is invalid ({error}); use braces only for {listed}"
            return
        shared = self._shared(paths)
        counts = (len({names_of(portraits) for portraits, _ in asked}), len({prompt.id for _, prompt in asked}))
        for name, count in zip(("portrait", "prompt"), counts, strict=True):
            if name in shared:
                yield f"`pattern` has no {{{name}}}, so {count:,} {name}s would share a file; add it"
        leaving = {cell: path for path, cells in paths.items() for cell in cells[:1] if not stays_below(path)}
        for (portrait, prompt), path in list(leaving.items())[:1]:
            yield f"{portrait!r} and {prompt!r} make the path {path!r}, which leaves the folder; rename them"

    def _paths(self, asked: Sequence[Cell]) -> dict[str, list[tuple[str, str]]]:
        numbered = self._numbered(asked)
        paths: dict[str, list[tuple[str, str]]] = {}
        for portraits, prompt in asked:
            path = numbered.filled(portraits, prompt, Arm.BASELINE, 0)
            paths.setdefault(path, []).append((names_of(portraits), prompt.id))
        return paths

    def _numbered(self, asked: Sequence[Cell]) -> NamePattern:
        prompts = {prompt.id: prompt for _, prompt in asked}
        return self if prompts.keys() <= self._numbers.keys() else self.numbering(list(prompts.values()))

    @staticmethod
    def _shared(paths: Mapping[str, Sequence[tuple[str, str]]]) -> set[str]:
        """Which of portrait and prompt differ between edits that have the same path."""
        shared: set[str] = set()
        for cells in paths.values():
            for index, name in enumerate(("portrait", "prompt")):
                if len({cell[index] for cell in cells}) > 1:
                    shared.add(name)
        return shared

    def _values(self, portraits: Sequence[Portrait], prompt: Prompt) -> dict[str, object]:
        attributes = {name: "+".join(p.attributes.get(name, "") for p in portraits) for name in portraits[0].attributes}
        values: dict[str, object] = {
            **attributes,
            "portrait": names_of(portraits),
            "prompt": prompt.id,
        }
        if (index := self._numbers.get(prompt.id)) is not None:
            values |= {"prompt_index": index, "prompt_number": index + 1}
        return values

    def _parts(self) -> list[tuple[str, str | None, str]]:
        return [(text, name, spec or "") for text, name, spec, _ in string.Formatter().parse(self.text)]

    def _expression(self, choices: Mapping[str, set[str]]) -> re.Pattern[str]:
        """A regular expression for the pattern with any of the values, and any seed."""
        parts: list[str] = []
        small = _ENDING.sub(lambda ending: ending[0].lower(), self.text.removesuffix(_ANY))
        for index, (text, name, spec) in enumerate(NamePattern(small)._parts()):
            parts.append(re.escape(text))
            if name == "seed":
                parts.append(r"-?\d+")
            elif name is not None:
                # The longest first, so that an id which is the beginning of another does not match instead of it.
                values = sorted(choices.get(name if name == "arm" else f"{name}:{spec}", ()), key=len, reverse=True)
                group = "?:" if name == "arm" else f"?P<of{index}>"
                parts.append(f"({group}{'|'.join(map(re.escape, values))})")
        ending = f"(?:{'|'.join(map(re.escape, SUFFIXES))})" if self.text.endswith(_ANY) else ""
        return re.compile("".join(parts) + ending)


def files_below(root: Path) -> list[Path]:
    """All pictures below a folder, in order; hidden files are skipped."""
    return sorted(
        file
        for file in root.rglob("*")
        if file.suffix.lower() in SUFFIXES and not file.name.startswith(".") and file.is_file()
    )


def same_but_for_case(path: Path) -> list[Path]:
    """The files at a path whose ending may be in capitals, or any known one where the path ends with `.*`."""
    stem = path.name.removesuffix(_ANY)
    names = [stem + suffix for suffix in SUFFIXES] if path.name.endswith(_ANY) else [path.name]
    if len(names) == 1 and path.is_file():
        return [path]
    listing = _listing(path.parent)
    return [path.parent / name for wanted in names for name in listing.get(_folded(wanted), ())]


def stays_below(path: str) -> bool:
    """Whether the written path stays below its folder. Links inside the folder are the user's and may lead anywhere."""
    parts = PurePosixPath(path.replace("\\", "/"))
    return not parts.is_absolute() and ".." not in parts.parts and "\0" not in path and ":" not in path[:2]


def _formatted(name: str | None, spec: str, values: Mapping[str, object]) -> str:
    return "" if name is None else format(values[name], spec)


def _folded(name: str) -> str:
    suffix = PurePosixPath(name).suffix
    return name.removesuffix(suffix) + suffix.lower()


def _listing(folder: Path) -> Mapping[str, Sequence[str]]:
    try:
        modified = folder.stat().st_mtime_ns
    except (OSError, ValueError):
        return {}
    if time.time() - modified / 1e9 < _FRESH:
        return _read_listing.__wrapped__(folder, modified)
    return _read_listing(folder, modified)


@lru_cache(maxsize=10_000)
def _read_listing(folder: Path, modified: int) -> Mapping[str, Sequence[str]]:
    """The files of a folder by name with a small ending. Cached until the folder changes."""
    del modified
    names: dict[str, list[str]] = {}
    for file in folder.iterdir():
        if file.is_file():
            names.setdefault(_folded(file.name), []).append(file.name)
    return names


_NEEDED = ("file", "portrait", "prompt")
_YES, _NO = frozenset({"1", "true", "yes", "x"}), frozenset({"", "0", "false", "no"})
_SHOWN = 3

ManifestKey = tuple[str, str, str, int]
"""Portrait (two are joined by `+`), prompt, arm and seed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ManifestEntry:
    """One row."""

    line: int
    file: str
    refused: bool
    note: str


class Manifest:
    """A CSV with the columns file, portrait and prompt; arm, seed, refused and note may be left out or empty."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @property
    def entries(self) -> Mapping[ManifestKey, ManifestEntry]:
        """The rows by what they show."""
        return self._read[0]

    def problems(self) -> Iterator[str]:
        """One sentence per kind of mistake, with the first rows that have it."""
        yield from self._read[1]

    @cached_property
    def _read(self) -> tuple[Mapping[ManifestKey, ManifestEntry], list[str]]:
        try:
            with self.path.open(encoding="utf-8-sig", newline="") as stream:
                reader = csv.DictReader(stream)
                columns = [name.strip() for name in reader.fieldnames or ()]
                reader.fieldnames = columns
                rows = [(reader.line_num, row) for row in reader]
        except FileNotFoundError:
            return {}, [f"`manifest` {self.path} does not exist; correct its path"]
        except (OSError, UnicodeDecodeError, csv.Error) as error:
            return {}, [f"`manifest` {self.path} cannot be read ({error}); save it as CSV in UTF-8"]
        if missing := [name for name in _NEEDED if name not in columns]:
            close = did_you_mean(missing[0], columns)
            return {}, [
                f"`manifest` {self.path} has no column {missing[0]!r}.{close} Its columns: {', '.join(columns)}"
            ]
        entries: dict[ManifestKey, ManifestEntry] = {}
        mistakes: dict[str, list[str]] = {}
        for line, row in rows:
            cells = {name: (value or "").strip() for name, value in row.items() if isinstance(value, str | None)}
            try:
                cell, entry = _parsed(line, cells)
                if other := entries.get(cell):
                    raise _Mistake("name the same edit as another row; remove one", f"{line} and {other.line}")
                entries[cell] = entry
            except _Mistake as mistake:
                mistakes.setdefault(mistake.what, []).append(mistake.where)
        return entries, [
            f"`manifest` {self.path}: {len(where):,} rows {what} (line {', '.join(where[:_SHOWN])}"
            f"{', …' if len(where) > _SHOWN else ''})"
            for what, where in mistakes.items()
        ]


class _Mistake(Exception):
    def __init__(self, what: str, where: str) -> None:
        super().__init__(what)
        self.what, self.where = what, where


def _parsed(line: int, cells: Mapping[str, str]) -> tuple[ManifestKey, ManifestEntry]:
    arm, seed, refused = (
        cells.get("arm") or Arm.BASELINE.value,
        cells.get("seed") or "0",
        cells.get("refused", "").lower(),
    )
    if not (cells["portrait"] and cells["prompt"]):
        raise _Mistake("have no portrait or prompt; fill them in", str(line))
    if arm not in [known.value for known in Arm]:
        raise _Mistake(f"have an unknown arm; write {', '.join(known.value for known in Arm)}", f"{line}: {arm!r}")
    if not seed.removeprefix("-").isdecimal():
        raise _Mistake("have a seed that is no whole number", f"{line}: {seed!r}")
    if refused not in _YES | _NO:
        raise _Mistake("say neither yes nor no under `refused`; write yes, or nothing", f"{line}: {refused!r}")
    if not cells["file"] and refused in _NO:
        raise _Mistake("name no file and are not refused; fill in `file`, or write yes under `refused`", str(line))
    entry = ManifestEntry(line=line, file=cells["file"], refused=refused in _YES, note=cells.get("note", ""))
    return (cells["portrait"], cells["prompt"], arm, int(seed)), entry
