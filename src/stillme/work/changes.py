"""What a changed audit.toml, plugin or file would do to the rows of its run."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import cast

from stillme import audit as audits
from stillme.audit.audit import Audit
from stillme.audit.loading import FILE
from stillme.core.errors import AuditChanged, StillmeError
from stillme.core.types import Json, Spec
from stillme.runs.store import Store
from stillme.work.features import with_features
from stillme.work.recording import Calibrations, keep_files, may_ask_otherwise, record

_SHOWN = 12
_CHUNK = 500


@dataclass(frozen=True, slots=True, kw_only=True)
class Changes:
    """The difference between the configuration that made the rows and the current one."""

    since: str
    differences: tuple[str, ...]
    """Each as `editors[0].parameters.strength: 3 → 5`."""
    kept: int
    """Edits that both configurations share."""
    new: int
    """Edits that the new one asks for and the run does not have."""
    left_out: int
    """Edits of the run that the new one does not ask for."""
    judges_redone: tuple[str, ...]
    """Judges whose version or parameters changed: they would rate every edit again."""

    @property
    def redo(self) -> bool:
        """Whether finished work would be redone in another way."""
        return (self.left_out > 0 and self.new > 0) or bool(self.judges_redone)

    def __str__(self) -> str:
        shown = [f"  {line}" for line in self.differences[:_SHOWN]]
        if len(self.differences) > _SHOWN:
            shown.append(f"  … and {len(self.differences) - _SHOWN} more")
        changed = "The configuration" if self.differences else "Files of finished edits"
        return "\n".join(
            [
                f"{changed} changed since this run was recorded ({self.since}){':' if self.differences else '.'}",
                *shown,
                f"{self.kept:,} edits kept, {self.new:,} to make.",
                f"{self.left_out:,} edits of the old configuration stay in the ledger, but not in the estimates.",
                *(f"The judge {name!r} would rate all edits again." for name in self.judges_redone),
            ]
        )


def explain_changes(audit: Audit, store: Store, *, files: bool = False) -> Changes:
    """Compare the audit with the last configuration that wrote to the store.

    With `files`, also if the configuration is the same and only files of finished edits may have changed.
    """
    latest = store.latest_audit()
    if latest is None or (latest.hash == audit.hash and not (files and may_ask_otherwise(audit))):
        return Changes(since=latest.at if latest else "", differences=(), kept=0, new=0, left_out=0, judges_redone=())
    before, after = dict(_flat(latest.resolved)), dict(_flat(audit.resolved))
    differences = tuple(
        f"{_titled(path, before)}: {before.get(path, 'absent')} → {after.get(path, 'absent')}"
        for path in sorted(before.keys() | after.keys())
        if before.get(path) != after.get(path)
    )
    wanted = kept = 0
    keys = (request.key for named in audit.editors for request in audit.requests(named))
    while chunk := list(itertools.islice(keys, _CHUNK)):
        wanted += len(chunk)
        kept += len(store.finished("edit", chunk))
    # What waits for a description will be asked for as well.
    wanted += sum(lacking.retryable for named in audit.editors for _, lacking in audit.unasked(named))
    return Changes(
        since=latest.at,
        differences=differences,
        kept=kept,
        new=wanted - kept,
        left_out=store.count_edits() - kept,
        judges_redone=tuple(_judges_redone(audit, store, latest.resolved)),
    )


def require_unchanged(audit: Audit, store: Store, *, accept: bool) -> str:
    """What changed since the rows of this run were made; raises if work would be redone without consent."""
    changes = explain_changes(audit, store)
    if changes.redo and not accept:
        raise AuditChanged(f"{changes}\nTo continue with the new configuration, add `--allow-changes`.")
    return str(changes) if changes.differences else ""


def adopt(folder: Path, store: Store, calibrations: Callable[[Audit], Calibrations] = lambda _: {}) -> str:
    """Record what audit.toml says now, if that changes no existing row: other estimates, more judges or editors.

    Returns why it was not adopted; empty if the recorded design is that of audit.toml, or there is none.
    """
    if not (folder / FILE).is_file() or store.latest_audit() is None:
        return ""
    try:
        audit = with_features(audits.load(folder, out=store.folder, ready=False), store)
        changes = explain_changes(audit, store, files=True)
    except StillmeError as error:
        return str(error)
    if changes.redo:
        return str(changes)
    record(audit, store, calibrations(audit), to_read_only=True)
    keep_files(audit)
    return ""


def _judges_redone(audit: Audit, store: Store, resolved: Mapping[str, Json]) -> Iterator[str]:
    """Judges under a name of the run whose key changed; the number of epochs does not change their answers."""
    design = store.designs.latest()
    if design:
        before = {judge["name"]: Spec(**judge["spec"]) for judge in design.document["judges"]}
    else:
        before = {
            judge["name"]: Spec(use=named.judge.spec.use, version=judge["version"], parameters=judge["parameters"])
            for judge in resolved["judges"]
            for named in audit.judges
            if named.name == judge["name"]
        }
    for named in audit.judges:
        if before.get(named.name, named.judge.spec).key != named.judge.spec.key:
            yield named.name


def _titled(path: str, before: Mapping[str, Json]) -> str:
    """`judge 'flash' version changed` for `judges[0].version`; any other path as it is."""
    plugin = re.fullmatch(r"(editor|judge)s(\[\d+\])\.version", path)
    if not plugin:
        return path
    return f"{plugin[1]} {before.get(f'{plugin[1]}s{plugin[2]}.name')!r} version changed"


def _flat(value: Json, path: str = "") -> Iterator[tuple[str, Json]]:
    if isinstance(value, Mapping):
        for key, item in cast("Mapping[str, Json]", value).items():
            yield from _flat(item, f"{path}.{key}" if path else str(key))
    elif isinstance(value, list):
        for index, item in enumerate(cast("list[Json]", value)):
            yield from _flat(item, f"{path}[{index}]")
    else:
        yield path, value
