"""Rebuild a ledger from exported rows, such as those of a bundle."""

from __future__ import annotations

import itertools
import json
import sqlite3
from collections.abc import Iterable, Mapping
from pathlib import Path

from stillme.design import RecordedRequest
from stillme.errors import StillmeError
from stillme.store.ledger import Store
from stillme.types import Json, digest

Row = Mapping[str, Json]

_EDIT = (
    "INSERT INTO edit (key, final, portraits, prompt, arm, instruction, editor, seed, outcome, image, message,"
    " effective, truth, attempts, seconds, cost, at)"
    " VALUES (:edit, :final AND :outcome != 'failed', :portraits, :prompt_key, :arm, :instruction_key, :editor_key,"
    " :seed, :outcome, :image, :message, :effective, :truth, :attempts, :seconds, COALESCE(:cost, 0.0), :at)"
)
_ASSESSMENT = (
    "INSERT INTO assessment (id, key, final, edit, judge, epoch, raw, effective, attempts, seconds, cost, at)"
    " VALUES (:number, :assessment, :final, :edit, :judge_key, :epoch, :raw, :effective, :attempts, :seconds,"
    " COALESCE(:cost, 0.0), :at)"
)
_JUDGEMENT = "INSERT INTO judgement VALUES (:number, :axis, :outcome, :score, :reason)"


class NotRows(StillmeError):
    """Rows that no run can have."""


def rebuild(
    folder: Path,
    design: Row,
    requests: Iterable[RecordedRequest],
    edits: Iterable[Row],
    judgements: Iterable[Row],
) -> None:
    """Write a ledger with these rows into `folder`."""
    with Store.writing(folder) as store, store.transaction():
        try:
            plan = store.designs.add_plan(requests)
            store.designs.add(str(design.get("hash", "")), design, plan)
            for row in edits:
                _add_edit(store, row)
            for _, axes in itertools.groupby(judgements, lambda row: row["number"]):
                _add_assessment(store, list(axes))
        except sqlite3.Error as error:
            raise NotRows(f"The rows are not those of a run: {error}.") from None


def _add_edit(store: Store, row: Row) -> None:
    _remember_spec(store, row, "editor")
    people = [_portrait(store, row["portrait"], row["portrait_sha256"], row["attributes"], row)]
    if row["second_portrait"]:
        people.append(_portrait(store, row["second_portrait"], row["second_sha256"], row["second_attributes"], row))
    prompt = [row["prompt"], row["prompt_text"], row["category"], row["subcategory"]]
    store.execute(
        "INSERT OR IGNORE INTO prompt (key, id, text, category, subcategory) VALUES (?, ?, ?, ?, ?)",
        (digest(prompt), *prompt),
    )
    instruction = digest([row["instruction"]])
    store.execute("INSERT OR IGNORE INTO instruction VALUES (?, ?)", (instruction, row["instruction"]))
    store.execute(
        _EDIT,
        _bound(row) | {"portraits": json.dumps(people), "prompt_key": digest(prompt), "instruction_key": instruction},
    )


def _add_assessment(store: Store, axes: list[Row]) -> None:
    _remember_spec(store, axes[0], "judge")
    # Earlier versions marked some failures as final.
    failed = any(row["outcome"] == "failed" for row in axes)
    store.execute(_ASSESSMENT, _bound(axes[0]) | ({"final": 0} if failed else {}))
    for row in axes:
        store.execute(_JUDGEMENT, _bound(row))


def _portrait(store: Store, name: Json, sha256: Json, attributes: Json, row: Row) -> str:
    values = (name, sha256, _text(attributes), row["label_origin"], row["licence"], row["block"])
    store.execute("INSERT OR IGNORE INTO portrait VALUES (?, ?, ?, ?, ?, ?, ?)", (digest(values), *values))
    return digest(values)


def _remember_spec(store: Store, row: Row, kind: str) -> None:
    values = (row[f"{kind}_key"], row[kind], row[f"{kind}_version"], _text(row[f"{kind}_parameters"]))
    store.execute("INSERT OR IGNORE INTO spec VALUES (?, ?, ?, ?)", values)


def _bound(row: Row) -> dict[str, Json]:
    return {name: _text(value) if isinstance(value, dict | list) else value for name, value in row.items()}


def _text(value: Json) -> str:
    return value if isinstance(value, str) else json.dumps(value, sort_keys=True, ensure_ascii=False)
