"""Count what cannot be used, and say each kind in one sentence: a table of 100,000 rows has no room for a line each."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Literal

Kind = Literal["empty", "missing", "special", "repeated", "listed again", "contradicted", "same id", "unusable"]

_WORDS: dict[Kind, tuple[str, str]] = {
    "empty": ("row has no value", "rows have no value"),
    "missing": ("file does not exist", "files do not exist"),
    "special": ("name is not a file's but a folder's or a device's", "names are not files' but folders' or devices'"),
    "repeated": ("file is the same picture as another", "files are the same pictures as others"),
    "listed again": ("row repeats another", "rows repeat others"),
    "contradicted": ("file is listed twice, with different labels", "files are listed twice, with different labels"),
    "same id": ("id is used twice; ids must differ in letters", "ids are used twice; ids must differ in letters"),
    "unusable": ("picture cannot be used", "pictures cannot be used"),
}
_EXAMPLES = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """One row or file that is left out, and why."""

    kind: Kind
    name: str
    """The file, or where the row stands."""
    why: str = ""
    """What an example shows beyond the name."""
    of: str = ""
    """The column, where a value is missing."""


class Faults:
    """What was left out, in order."""

    def __init__(self, faults: Iterable[Fault] = ()) -> None:
        self._faults = list(faults)

    def __iter__(self) -> Iterator[Fault]:
        return iter(self._faults)

    def __len__(self) -> int:
        return len(self._faults)

    def add(self, kind: Kind, name: str, why: str = "", *, of: str = "") -> None:
        """Count one more."""
        self._faults.append(Fault(kind=kind, name=name, why=why, of=of))

    @property
    def sentences(self) -> tuple[str, ...]:
        """One for every kind, with its number and the first examples."""
        kinds: dict[tuple[Kind, str], list[Fault]] = {}
        for fault in self._faults:
            kinds.setdefault((fault.kind, fault.of), []).append(fault)
        return tuple(_sentence(kind, of, faults) for (kind, of), faults in kinds.items())


def _sentence(kind: Kind, of: str, faults: list[Fault]) -> str:
    one, several = _WORDS[kind]
    examples = [fault.why or fault.name for fault in faults[:_EXAMPLES]]
    shown = ("; " if kind == "unusable" else ", ").join(example.rstrip(".") for example in examples)
    column = f" for {of!r}" if of else ""
    more = ", …" if len(faults) > _EXAMPLES else ""
    return f"{len(faults):,} {one if len(faults) == 1 else several}{column}: {shown}{more}."
