"""Copy finished rows of another run under their own keys."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Literal

from stillme.core.types import Json
from stillme.runs.store.ledger import Store
from stillme.runs.store.merging import insert, rows

Copied = Literal["edit", "assessment", "feature"]

_REFERENCES: Mapping[Copied, Mapping[str, str]] = {
    "edit": {"portraits": "portrait", "prompt": "prompt", "instruction": "instruction", "editor": "spec"},
    "assessment": {"judge": "spec"},
    "feature": {"extractor": "spec"},
}
"""Columns that name a row of another table."""
_KEYS_PER_QUERY = 500


def copy_rows(store: Store, other: Store, table: Copied, keys: Sequence[str]) -> int:
    """Copy what `other` has finished under these keys and `store` has not; returns how many rows.

    A copy costs nothing, as the other run has paid, and says `reused` among its effective parameters.
    """
    finished = other.finished(table, keys) - store.finished(table, keys)
    copied = 0
    lost = _take_pictures(store, other, sorted(finished)) if table == "edit" else set[str]()
    with store.transaction():
        for row in _rows(other, f"SELECT * FROM {table} WHERE final = 1 AND key IN", sorted(finished)):
            if table == "edit" and row["image"] in lost:
                continue
            for column, named in _REFERENCES[table].items():
                references = json.loads(row[column]) if column == "portraits" else [row[column]]
                for reference in _rows(other, f"SELECT * FROM {named} WHERE key IN", references):
                    insert(store, named, reference)
            number = row.pop("id")
            effective = {name: value for name, value in json.loads(row["effective"]).items() if name != "cost"}
            copy = insert(store, table, row | {"cost": 0.0, "effective": json.dumps(effective | {"reused": True})})
            if table == "assessment":
                for judgement in _rows(other, "SELECT * FROM judgement WHERE assessment IN", [number]):
                    insert(store, "judgement", judgement | {"assessment": copy})
            copied += 1
    return copied


def _take_pictures(store: Store, other: Store, keys: Sequence[str]) -> set[str]:
    """Copy the pictures of these edits; returns those that are lost."""
    images = (row["image"] for row in _rows(other, "SELECT image FROM edit WHERE final = 1 AND key IN", keys))
    return store.pictures.take_from(other.pictures, (image for image in images if image))


def _rows(store: Store, query: str, keys: Sequence[Json]) -> Iterator[dict[str, Json]]:
    for start in range(0, len(keys), _KEYS_PER_QUERY):
        chunk = keys[start : start + _KEYS_PER_QUERY]
        yield from rows(store, f"{query} ({','.join('?' * len(chunk))})", chunk)
