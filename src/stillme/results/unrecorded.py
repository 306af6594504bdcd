"""Read a ledger from before designs were recorded: its audit is loaded again, and keys come from its rows."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import TypeVar

from stillme import audit as audits
from stillme.design import Design, EditorRecord, JudgeRecord, RecordedRequest
from stillme.errors import StillImporting, StillmeError, StillRecording
from stillme.stages.described import with_features
from stillme.store import Store
from stillme.types import Json, Spec

R = TypeVar("R", EditorRecord, JudgeRecord)


def recover(store: Store) -> tuple[Design, tuple[RecordedRequest, ...]]:
    """The design and requests of an old run.

    Plugins may have changed since. So the specifications that wrote the rows are kept, and a request with a row keeps
    that row's key.
    """
    latest = store.latest_audit()
    # Where designs are kept, the design comes before the first row, or at least the first of its requests does.
    if latest is None or ("rows" not in latest.resolved and store.designs.are_kept and not any(store.newest())):
        raise StillRecording(
            f"{store.folder} has none of its requests recorded yet. If a run is at work there, look again in a moment; "
            f"if not, `stillme run {store.folder}` starts it."
        )
    if "rows" in latest.resolved:
        raise StillImporting(
            f"The rows are not all in {store.folder} yet. If no import is at work there, it was interrupted: run the "
            "same `stillme import rows` again to finish it."
        )
    try:
        audit = with_features(audits.load(store.folder, ready=False), store)
    except StillmeError as error:
        raise StillmeError(
            f"{store.folder} was made by an older stillme that recorded no design, so its audit must be loaded again. "
            f"That failed: {error}"
        ) from None
    design = audit.design()
    design = replace(
        design,
        hash=latest.hash,
        resolved=latest.resolved,
        editors=tuple(_as_before(editor, latest.resolved["editors"]) for editor in design.editors),
        judges=tuple(_as_before(judge, latest.resolved["judges"]) for judge in design.judges),
    )
    keys = store.keys_by_cell()
    specs = {editor.name: editor.spec.key for editor in design.editors}
    return design, tuple(_keyed(request, specs, keys, design) for request in audit.recorded_requests())


def _as_before(record: R, entries: list[Mapping[str, Json]]) -> R:
    for entry in entries:
        if entry["name"] == record.name:
            spec = Spec(use=record.spec.use, version=entry["version"], parameters=entry["parameters"])
            return replace(record, spec=spec)
    return record


def _keyed(
    request: RecordedRequest,
    specs: Mapping[str, str],
    keys: Mapping[tuple[str, str, str, str, int], str],
    design: Design,
) -> RecordedRequest:
    cell = (specs[request.editor], json.dumps(list(request.portraits)), request.prompt, str(request.arm), request.seed)
    return replace(request, key=keys.get(cell) or request.request(design).key)
