"""How far a run has come."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from stillme.audit import Audit, NamedEditor, NamedExtractor
from stillme.errors import StillmeError
from stillme.mitigation import extraction_key
from stillme.stages import described
from stillme.store import Store, Totals
from stillme.types import Failed

_CHUNK = 500


@dataclass(frozen=True, slots=True, kw_only=True)
class Status:
    """How far a run has come, by extractor, by editor and by judge."""

    folder: Path
    extractors: Mapping[str, Mapping[str, int]]
    editors: Mapping[str, Mapping[str, int]]
    judges: Mapping[str, Mapping[str, int]]
    totals: Totals
    changed: bool
    """Whether audit.toml differs from what the last run used."""

    def as_json(self) -> dict[str, Any]:
        """For `--json`."""
        return {
            "folder": str(self.folder),
            "extractors": [{"name": name, **counts} for name, counts in self.extractors.items()],
            "editors": [{"name": name, **counts} for name, counts in self.editors.items()],
            "judges": [{"name": name, **counts} for name, counts in self.judges.items()],
            "cost": self.totals.cost,
            "seconds": self.totals.seconds,
            "audit_changed": self.changed,
        }

    def as_text(self) -> str:
        """For people."""
        lines = [f"{self.folder}"]
        for kind, entries in (("words", self.extractors), ("edit", self.editors), ("judge", self.judges)):
            for name, counts in entries.items():
                rest = ", ".join(f"{n:,} {word}" for word, n in counts.items() if word not in ("total", "done") and n)
                done, total = counts["done"], counts["total"]
                share = f"{done / total:4.0%}" if total else "  –"
                lines.append(f"  {kind:<6}{name:<20}{share}  {done:,} of {total:,}{f' ({rest})' if rest else ''}")
        lines.append(f"  cost  ${self.totals.cost:,.2f}, {self.totals.seconds:,.0f} s of work")
        if self.changed:
            lines.append("  audit.toml has changed since the last run; `stillme run` explains what would be redone.")
        return "\n".join(lines)


def status_of(path: Path, out: Path | None) -> Status:
    """Count the rows of the audit at `path`, without disturbing a process that is writing them."""
    loaded = described.load(path, out=out, ready=False)
    if not Store.exists(loaded.folder):
        raise StillmeError(f"{loaded.folder} has no run yet. `stillme run {path}` starts it.")
    editors = {named.name: Counter(total=_askable(loaded, named), done=0) for named in loaded.editors}
    judges = {named.name: Counter(total=0, done=0) for named in loaded.judges}
    with Store.reading(loaded.folder) as store:
        for editor, chunk in _chunks(loaded):
            stored = store.edits([request.key for request in chunk])
            for found in stored.values():
                editors[editor]["done"] += found.final
                editors[editor][found.outcome if found.final else "to retry"] += 1
            for named in loaded.judges:
                keys = [
                    key
                    for request in chunk
                    if (found := stored.get(request.key)) and found.image
                    for key, _ in loaded.assessments(named, request, found.image)
                ]
                judges[named.name].update(total=len(keys), done=len(store.finished_assessments(keys)))
        for named in loaded.judges:
            if handed_over := store.tickets.open(named.judge.spec.key):
                judges[named.name]["in a batch"] = sum(len(ticket.questions) for ticket in handed_over)
        latest = store.latest_audit()
        return Status(
            folder=loaded.folder,
            extractors={named.name: _described(loaded, named, store) for named in loaded.extractors},
            editors=editors,
            judges=judges,
            totals=store.totals(),
            changed=latest is not None and latest.hash != loaded.hash,
        )


def _described(loaded: Audit, named: NamedExtractor, store: Store) -> Mapping[str, int]:
    """What an extractor has said of the portraits that it is to describe."""
    keys = {extraction_key(portrait.image, named.extractor.spec) for portrait in loaded.portraits_to_describe}
    found = store.features(sorted(keys)).values()
    counts = Counter(total=len(keys), done=0)
    for extraction in found:
        waits = isinstance(extraction, Failed) and extraction.retryable
        counts["done"] += not waits
        counts["to retry" if waits else type(extraction).__name__.lower()] += 1
    return counts


def _askable(loaded: Audit, named: NamedEditor) -> int:
    """Requests that can be made, now or once the portraits are described."""
    never = sum(not lacking.retryable for _, lacking in loaded.unasked(named))
    return loaded.request_count(named) - never


def _chunks(loaded: Audit) -> Iterator[tuple[str, list[Any]]]:
    for named in loaded.editors:
        requests = loaded.requests(named)
        while chunk := list(itertools.islice(requests, _CHUNK)):
            yield named.name, chunk
