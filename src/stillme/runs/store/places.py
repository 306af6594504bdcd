"""Where a run's pictures are, as its ledger says: in the run folder, or at addresses elsewhere."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from stillme.runs.store.rows import now

HERE = ""
"""The address of the run folder itself."""


@dataclass(frozen=True, slots=True)
class PicturePlace:
    """Where pictures are kept; can be sent to another process or machine, which has credentials of its own."""

    folder: Path
    """The run's own."""
    addresses: tuple[str, ...] = ()
    """Elsewhere, in the order in which they are asked. New pictures go to the first; empty is the run's own folder."""

    @property
    def is_elsewhere(self) -> bool:
        """Whether new pictures leave the run folder."""
        return bool(self.addresses) and self.addresses[0] != HERE

    @property
    def reaches_elsewhere(self) -> bool:
        """Whether pictures of before may be outside of the run folder, too."""
        return any(address != HERE for address in self.addresses)


class Places:
    """The addresses of one ledger."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection

    def addresses(self) -> tuple[str, ...]:
        """Every address once, the latest first; empty where pictures were never kept elsewhere."""
        rows = self._connection.execute("SELECT address FROM place ORDER BY id DESC")
        return tuple(dict.fromkeys(address for (address,) in rows))

    @property
    def current(self) -> str:
        """Where new pictures go."""
        return next(iter(self.addresses()), HERE)

    def move_to(self, address: str) -> None:
        """Record that new pictures go there from now on."""
        if address != self.current:
            self._connection.execute("INSERT INTO place (address, at) VALUES (?, ?)", (address, now()))

    def also_read(self, addresses: Iterable[str]) -> None:
        """Record that pictures are there, too; new ones go where they went."""
        current, known = self.current, self.addresses()
        for address in addresses:
            if address != HERE and address not in known:
                self.move_to(address)
        self.move_to(current)
