"""A part of the grid for one of many processes: by the hash of each request, so it never depends on the others."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from stillme.audit import Audit
from stillme.core.errors import StillmeError
from stillme.core.protocols import expected_dollars

FOLDER = "shards"


@dataclass(frozen=True, slots=True, kw_only=True)
class Shard:
    """Part `number` of `count`, counted from 1."""

    number: int
    count: int

    def holds(self, key: str) -> bool:
        """Whether a request belongs to this part."""
        return int(key[:15], 16) % self.count == self.number - 1

    def folder(self, audit: Audit) -> Path:
        """Where its run is kept, unless the user says otherwise."""
        return audit.folder / FOLDER / self.folder_name

    @property
    def folder_name(self) -> str:
        """What that folder is called."""
        return f"{self.number}-of-{self.count}"

    @property
    def all(self) -> tuple[Shard, ...]:
        """All parts, this one included."""
        return tuple(Shard(number=number, count=self.count) for number in range(1, self.count + 1))

    def __str__(self) -> str:
        return f"{self.number}/{self.count}"


def parse_shard(text: str) -> Shard:
    """`1/4` is the first of four."""
    written = re.fullmatch(r"(\d+)/(\d+)", text.strip())
    if not written or not 1 <= int(written[1]) <= int(written[2]):
        raise StillmeError(f"{text!r} is not a shard. Write 1/4 for the first of four, up to 4/4.")
    return Shard(number=int(written[1]), count=int(written[2]))


def require_free_descriptions(audit: Audit) -> None:
    """Every shard describes the portraits for itself; the user should not pay for that several times."""
    paid = [named.name for named in audit.extractors if expected_dollars(named.extractor) != 0.0]
    if paid:
        raise StillmeError(
            f"Every shard would pay {', '.join(paid)} to describe the same portraits. Describe them once in a run of "
            "their own, and name it in [reuse]."
        )
