"""What a curator sees and may do, without the web: candidates in their own order, hints, actions, other cells."""

from __future__ import annotations

import threading
import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Literal, cast

from stillme.core import images
from stillme.core.errors import StillmeError
from stillme.core.types import digest
from stillme.curation.decisions import CHOOSING, CurationTally, Kind, Log, order_for
from stillme.curation.measuring import Hint, MeasuredPicture, find_similar, hints, load_criteria
from stillme.curation.pools import Cell, Pools

MAX_NAME = 40
MAX_NOTE = 500


class NotAllowed(StillmeError):
    """A request that our pages would not have sent."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CandidateView:
    """A candidate as a curator sees it: no pool, no file name."""

    id: str
    number: int
    """Its place on the screen, from 1."""
    hints: tuple[Hint, ...]
    alike: tuple[str, ...]
    """Which candidates it resembles, in words."""


class Workspace:
    """One folder of pools, its log, and the instruments' numbers. Safe for several threads."""

    def __init__(self, pools: Pools, log: Log, checks: Mapping[str, MeasuredPicture]) -> None:
        self.pools = pools
        self.cells: Sequence[Cell] = pools.design.cells
        self._log = log
        self._checks = checks
        self._similar = find_similar(
            {candidate.id: checks[candidate.sha256] for candidate in pools.candidates if candidate.sha256 in checks}
        )
        self._lock = threading.Lock()
        self._tally: tuple[int, CurationTally] | None = None

    @property
    def tally(self) -> CurationTally:
        """What follows from everything logged until now, by this process or another."""
        actions = self._log.actions()
        with self._lock:
            if self._tally is None or self._tally[0] != len(actions):
                self._tally = len(actions), CurationTally(self.pools, actions)
            return self._tally[1]

    def cell(self, number: int) -> Cell:
        """The cell of that number, from 1."""
        if not 1 <= number <= len(self.cells):
            raise NotAllowed(f"There is no cell {number}.")
        return self.cells[number - 1]

    def open(self, curator: str, cell: Cell) -> tuple[CandidateView, ...]:
        """The candidates of a cell in this curator's order, which is drawn and logged the first time."""
        order = self.tally.opinion(curator, cell).order
        if not order:
            order = order_for(curator, cell, self.pools)
            token = digest(["open", curator, cell, self.pools.key])
            self._log.append(curator, cell, "open", {"order": order}, token=token)
        places = {candidate: place for place, candidate in enumerate(order, start=1)}
        return tuple(
            CandidateView(
                id=candidate,
                number=place,
                hints=self._hints(candidate),
                alike=tuple(self._resembles(candidate, places)),
            )
            for candidate, place in places.items()
        )

    def view(self, candidate: str, number: int) -> CandidateView:
        """A candidate in no curator's order."""
        return CandidateView(id=candidate, number=number, hints=self._hints(candidate), alike=())

    def state(self, curator: str, cell: Cell) -> dict[str, Any]:
        """What this curator has done in the cell, for the page's script."""
        opinion = self.tally.opinion(curator, cell)
        return {
            "ticked": {who: sorted(criteria) for who, criteria in opinion.ticked.items()},
            "rejected": {
                who: {"reasons": list(reasons), "note": note} for who, (reasons, note) in opinion.rejected.items()
            },
            "chosen": list(opinion.chosen),
            "none_fits": opinion.none_fits,
            "final": opinion.compared,
            "can_undo": self.tally.last_action(curator, cell) is not None,
        }

    def act(self, curator: str, cell: Cell, kind: Kind, detail: Mapping[str, Any], token: str) -> None:
        """Log one action of a curator, if it is valid."""
        if kind == "undo":
            # Looked up here: the page may be older than the log.
            last = self.tally.last_action(curator, cell)
            if last is not None:
                self._log.append(curator, cell, "undo", {"action": last.id}, token=token)
            return
        if kind not in CHOOSING:
            raise NotAllowed(f"There is no action {kind!r}.")
        if self.tally.opinion(curator, cell).compared:
            raise NotAllowed(
                "You have seen whether others agree here, so your choice is final. Settle the cell instead."
            )
        self._log.append(curator, cell, kind, self._checked(cell, kind, detail), token=token)

    def compare(self, curator: str) -> int:
        """Show this curator where others disagree; choices in these cells are final from now on. Says how many."""
        cells = self.tally.comparable(curator)
        for cell in cells:
            self._log.append(curator, cell, "compare", token=digest(["compare", curator, cell, self.pools.key]))
        return len(cells)

    def votes(self, curator: str, cell: Cell) -> list[str]:
        """The candidates that curators chose, in no order that tells by whom; for a curator who may settle the cell."""
        self._require_contested(curator, cell)
        votes = self.tally.outcomes[cell].votes
        return sorted({candidate for chosen in votes.values() for candidate in chosen})

    def settle(self, curator: str, cell: Cell, candidates: Sequence[str], note: str, token: str) -> None:
        """Decide a cell for all: these candidates, or none."""
        self._require_contested(curator, cell)
        for candidate in candidates:
            self._known(cell, candidate)
        per_cell = self.pools.design.per_cell
        if len(set(candidates)) not in (0, per_cell):
            raise NotAllowed(f"Choose {per_cell}, or say that no candidate fits.")
        detail = {"candidates": sorted(set(candidates)), "note": _short(note)}
        self._log.append(curator, cell, "settle", detail, token=token)

    def invite(self, names: Sequence[str]) -> tuple[str, ...]:
        """All who curate here: these people, and those of before."""
        known = {name.casefold(): name for name in self.tally.invited}
        for name in names:
            kept = clean_name(name)
            if not kept:
                raise NotAllowed(f"{name!r} is not a name for a curator; give 1 to {MAX_NAME} letters.")
            if kept.casefold() not in known:
                self._log.append("stillme", (), "invite", {"curator": kept})
                known[kept.casefold()] = kept
        return self.tally.invited

    def require_curators(self, count: int) -> None:
        """Set how many curators must decide a cell before it counts."""
        if self.tally.needed != count:
            self._log.append("stillme", (), "rule", {"curators": count})

    def _require_contested(self, curator: str, cell: Cell) -> None:
        tally = self.tally
        if not tally.opinion(curator, cell).compared:
            raise NotAllowed("Decide this cell yourself, then compare, before you see what others chose.")
        if tally.outcomes[cell].state != "contested":
            raise NotAllowed("There is nothing to settle here: curators agree, or one of them has settled it.")

    def _checked(self, cell: Cell, kind: Kind, detail: Mapping[str, Any]) -> dict[str, Any]:
        if kind == "none":
            return {"note": _short(str(detail.get("note", "")))}
        kept: dict[str, Any] = {"candidate": self._known(cell, str(detail.get("candidate", "")))}
        if kind in ("tick", "untick"):
            criterion = str(detail.get("criterion", ""))
            if criterion not in {known.key for known in load_criteria().criteria}:
                raise NotAllowed(f"There is no criterion {criterion!r}.")
            kept["criterion"] = criterion
        if kind == "tick_all":
            kept["criteria"] = [known.key for known in load_criteria().criteria]
        if kind == "reject":
            given = detail.get("reasons")
            reasons = [str(reason) for reason in cast("list[object]", given)] if isinstance(given, list) else []
            if not reasons or not set(reasons) <= set(load_criteria().rejections):
                raise NotAllowed("Say why: choose at least one of the reasons.")
            kept |= {"reasons": sorted(set(reasons)), "note": _short(str(detail.get("note", "")))}
        return kept

    def _known(self, cell: Cell, candidate: str) -> str:
        if candidate not in {known.id for known in self.pools.cells[cell]}:
            raise NotAllowed("This candidate does not belong to the cell.")
        return candidate

    def _hints(self, candidate: str) -> tuple[Hint, ...]:
        measured = self._checks.get(self.pools.by_id[candidate].sha256)
        return hints(measured.values if measured else {})

    def _resembles(self, candidate: str, places: Mapping[str, int]) -> list[str]:
        """A sentence for each way of being alike: the candidates of this cell by number, then those of other cells."""
        here: dict[str, set[int]] = {"picture": set(), "person": set()}
        elsewhere: dict[str, set[str]] = {"picture": set(), "person": set()}
        for pair in self._similar:
            if candidate in (pair.first, pair.second):
                other = pair.second if pair.first == candidate else pair.first
                if other in places:
                    here[pair.kind].add(places[other])
                else:
                    elsewhere[pair.kind].add(", ".join(self.pools.by_id[other].attributes.values()))
        warnings: list[str] = []
        for kind, words in (("picture", "Shows the same picture as"), ("person", "Perhaps the same person as")):
            alike = [f"candidate {number}" for number in sorted(here[kind])]
            alike += [f"one of {cell}" for cell in sorted(elsewhere[kind])]
            if alike:
                warnings.append(f"{words} {'; '.join(alike)}")
        return warnings


def clean_name(name: str) -> str:
    """A curator's name as it is kept; empty where it is not valid."""
    kept = " ".join(unicodedata.normalize("NFC", name).split())
    usable = kept.isprintable() and 0 < len(kept) <= MAX_NAME and kept.lower() != "stillme"
    return kept if usable else ""


def _short(note: str) -> str:
    return " ".join(note.split())[:MAX_NOTE]


Size = Literal["small", "large"]
_SIZES: dict[Size, tuple[int, int]] = {"small": (480, 82), "large": (1600, 92)}
"""Pixels and WebP quality."""


class EncodedPictures:
    """Candidates' pictures as WebP, cached."""

    def __init__(self, pools: Pools) -> None:
        self._pools = pools
        self.webp = lru_cache(maxsize=400)(self._encode)
        """Of a candidate's id and a size; raises `KeyError` for an unknown one."""

    def _encode(self, candidate: str, size: Size) -> bytes:
        width, quality = _SIZES[size]
        picture = images.read_picture(self._pools.path_of(self._pools.by_id[candidate]))
        return images.encode_webp(picture, width=width, quality=quality)
