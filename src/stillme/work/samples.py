"""What a limited run shows: every edit with its picture's size, and what each judge said of it."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from typing import Any

from stillme.audit import Audit
from stillme.core import images
from stillme.core.types import ImageFile
from stillme.runs.store import Store
from stillme.runs.store.exported import EDITS, JUDGEMENTS, rows_of

_LONGEST = 80
"""Characters of a judge's reason that are shown."""


def samples(audit: Audit, store: Store, limit: int) -> Iterator[str]:
    """A line for each of the first edits of every editor, and one for each judge's answer to it."""
    edits = {row["edit"]: row for row in rows_of(store, EDITS)}
    said: dict[tuple[str, str, int], list[Mapping[str, Any]]] = {}
    for row in rows_of(store, JUDGEMENTS):
        said.setdefault((row["edit"], row["judge_key"], row["epoch"]), []).append(row)
    names = {named.judge.spec.key: named.name for named in audit.judges}
    for editor in audit.editors:
        for request in itertools.islice(audit.requests(editor), limit):
            edit = edits.get(request.key)
            if edit is None:
                continue
            shown = " + ".join(portrait.id for portrait in request.portraits)
            yield f"{editor.name}: {shown}, {request.prompt.id}, {request.arm}: {_outcome(edit, store)}"
            for (key, judge, _), rows in said.items():
                if key == request.key and judge in names:
                    yield f"  {names[judge]}: {'; '.join(map(_answer, rows))}"


def _outcome(edit: Mapping[str, Any], store: Store) -> str:
    size = ""
    if edit["image"]:
        kept = store.pictures.located(ImageFile(path=store.pictures.where(edit["image"]), sha256=edit["image"]))
        width, height = images.read_picture(kept.read()).size
        size = f"{width} × {height} pixels, "
    cost = "cost unknown" if edit["cost"] is None else f"${edit['cost']:,.4f}"
    words = f": {edit['message']}" if edit["message"] else ""
    return f"{edit['outcome']}{words} ({size}{edit['seconds']:.1f} s, {cost})"


def _answer(row: Mapping[str, Any]) -> str:
    reason = " ".join(str(row["reason"] or "").split())
    short = reason if len(reason) <= _LONGEST else f"{reason[:_LONGEST]}…"
    value = f"{row['score']:g}" if row["score"] is not None else row["outcome"]
    return f"{row['axis']} {value}{f' ({short})' if short else ''}"
