"""What is exported: every row of the ledger, with its columns explained once."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, cast

from stillme.core.types import Json, Spec
from stillme.runs.store.ledger import Store

Kind = Literal["text", "whole", "number", "json"]


@dataclass(frozen=True, slots=True)
class Column:
    """One column of an exported table."""

    name: str
    kind: Kind
    source: str
    """Where the ledger has it, as SQL."""
    meaning: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """One exported table."""

    name: str
    columns: tuple[Column, ...]
    rows: str
    """The rest of the query: tables and order."""

    @property
    def query(self) -> str:
        """The SQL that reads it."""
        return f"SELECT {', '.join(f'{column.source} AS {column.name}' for column in self.columns)} {self.rows}"


def _of_the_plugin(name: str, key: str, meaning: str) -> tuple[Column, ...]:
    return (
        Column(name, "text", "s.use", meaning),
        Column(f"{name}_version", "text", "s.version", "its version"),
        Column(f"{name}_parameters", "json", "s.parameters", "every setting, defaults filled in"),
        Column(f"{name}_key", "text", key, "the hash of plugin, version and settings"),
    )


def _of_the_work(row: str) -> tuple[Column, ...]:
    known = f"CASE WHEN json_extract({row}.effective, '$.cost') = 'unknown' THEN NULL ELSE {row}.cost END"
    return (
        Column("attempts", "whole", f"{row}.attempts", "attempts in that run"),
        Column("seconds", "number", f"{row}.seconds", "work time"),
        Column("cost", "number", known, "US dollars; empty if the price is unknown"),
        Column("at", "text", f"{row}.at", "when, UTC"),
    )


EDITS = Table(
    name="edits",
    columns=(
        Column("edit", "text", "e.key", "key of the request: the hash of everything that can change its outcome"),
        Column("portrait", "text", "p.id", "the source picture's name"),
        Column("portrait_sha256", "text", "p.sha256", "SHA-256 of the source picture"),
        Column("attributes", "json", "p.attributes", "the portrait's labels as JSON; labels, not truth"),
        Column("label_origin", "text", "p.label_origin", "who or what gave the labels"),
        Column("licence", "text", "p.licence", "of the source picture"),
        Column("block", "text", "p.block", "portraits of one block differ only by design"),
        Column("second_portrait", "text", "q.id", "requests with two people: the second picture's name"),
        Column("second_sha256", "text", "q.sha256", "its SHA-256"),
        Column("second_attributes", "json", "q.attributes", "its labels"),
        Column("prompt", "text", "t.id", "the prompt's name"),
        Column("prompt_text", "text", "t.text", "its text"),
        Column("category", "text", "t.category", "of the prompt"),
        Column("subcategory", "text", "t.subcategory", "of the prompt"),
        Column("arm", "text", "e.arm", "how the prompt reached the editor"),
        Column("instruction", "text", "i.text", "the text that the editor read"),
        *_of_the_plugin("editor", "e.editor", "the editor's plugin"),
        Column("seed", "whole", "e.seed", "of the editor's randomness"),
        Column("outcome", "text", "e.outcome", "edited, refused (the editor declined) or failed (an error)"),
        Column("final", "whole", "e.final", "0 marks a failure that was or will be retried"),
        Column("image", "text", "e.image", "SHA-256 of the edited picture in images/"),
        Column("message", "text", "e.message", "the refusal or error message"),
        Column("effective", "json", "e.effective", "parameters that were in effect"),
        Column("truth", "json", "e.truth", "what a known-answer editor planted"),
        *_of_the_work("e"),
    ),
    rows="""
    FROM edit e
    JOIN portrait p ON p.key = json_extract(e.portraits, '$[0]')
    LEFT JOIN portrait q ON q.key = json_extract(e.portraits, '$[1]')
    JOIN prompt t ON t.key = e.prompt
    JOIN instruction i ON i.key = e.instruction
    JOIN spec s ON s.key = e.editor
    ORDER BY e.id
    """,
)

JUDGEMENTS = Table(
    name="judgements",
    columns=(
        Column("number", "whole", "a.id", "of the answer in the ledger, shared by its axes; a retry has its own"),
        Column("assessment", "text", "a.key", "key of the answer: the hash of edit, picture, judge and epoch"),
        Column("edit", "text", "a.edit", "the edit that was judged; of a reading, the SHA-256 of its picture"),
        *_of_the_plugin("judge", "a.judge", "the judge's plugin"),
        Column("epoch", "whole", "a.epoch", "repeats, or people, counted from 0; no name or code of a person"),
        Column("axis", "text", "j.axis", "the question or measured quantity"),
        Column("outcome", "text", "j.outcome", "rated, abstained (the judge gave no score) or failed"),
        Column(
            "score",
            "number",
            "j.score",
            "1 to 5, or the value in the axis's own unit; of a reading, the place of the word; empty unless rated",
        ),
        Column("reason", "text", "j.reason", "evidence, reason of the abstention, or error"),
        Column("final", "whole", "a.final", "0 marks a failure that was or will be retried"),
        Column("raw", "text", "a.raw", "the judge's answer as it came"),
        Column("effective", "json", "a.effective", "parameters that were in effect"),
        *_of_the_work("a"),
    ),
    rows="""
    FROM assessment a
    JOIN judgement j ON j.assessment = a.id
    JOIN spec s ON s.key = a.judge
    ORDER BY a.id, j.axis
    """,
)

FEATURES = Table(
    name="features",
    columns=(
        Column("feature", "text", "f.key", "key of the extraction: the hash of picture and extractor"),
        Column("portrait_sha256", "text", "f.image", "SHA-256 of the source picture that was described"),
        *_of_the_plugin("extractor", "f.extractor", "what described it"),
        Column("outcome", "text", "f.outcome", "described, declined, unusable (it named a group) or failed"),
        Column("sentence", "text", "f.sentence", "the feature prompt"),
        Column("dimensions", "json", "f.dimensions", "its parts"),
        Column("message", "text", "f.message", "why there is none"),
        Column("final", "whole", "f.final", "0 marks a failure that was or will be retried"),
        Column("raw", "text", "f.raw", "the extractor's answer as it came"),
        Column("effective", "json", "f.effective", "parameters that were in effect"),
        *_of_the_work("f"),
    ),
    rows="""
    FROM feature f
    JOIN spec s ON s.key = f.extractor
    ORDER BY f.id
    """,
)

ATTEMPTS = Table(
    name="attempts",
    columns=(
        Column("key", "text", "t.key", "of the edit, assessment or feature"),
        Column("stage", "text", "t.stage", "edit, judge or describe"),
        Column("number", "whole", "t.number", "number of the attempt in that run, from 1"),
        Column("error", "text", "t.error", "the error message, as received"),
        Column("retryable", "whole", "t.retryable", "1 if a retry could help"),
        Column("status", "text", "t.status", "error code, such as an HTTP status"),
        Column("seconds", "number", "t.seconds", "work time of this attempt"),
        Column("cost", "number", "t.cost", "US dollars of this attempt"),
        Column("at", "text", "t.at", "when it was saved, UTC"),
    ),
    rows="FROM attempt t ORDER BY t.id",
)

TABLES = (EDITS, JUDGEMENTS, FEATURES, ATTEMPTS)
_OPTIONAL = ((FEATURES, "feature"), (ATTEMPTS, "attempt"))


def tables_in(store: Store) -> tuple[Table, ...]:
    """The tables that a run has; descriptions and failed tries only where there are any."""
    kept = (table for table, name in _OPTIONAL if store.query(f"SELECT 1 FROM {name} LIMIT 1").fetchone())
    return (EDITS, JUDGEMENTS, *kept)


_NAMED = {
    "edits": Column("editor_name", "text", "e.editor", "its name in the latest recorded design; empty if not there"),
    "judgements": Column("judge_name", "text", "a.judge", "its name in the latest recorded design; empty if not there"),
}


def with_names(table: Table) -> Table:
    """The table with the audit's names of editors or judges: two of them may be one plugin with other settings.

    Bundles have no such column, because names are in their design.
    """
    column = _NAMED.get(table.name)
    if column is None:
        return table
    place = 1 + [known.name for known in table.columns].index(column.name.removesuffix("_name"))
    return replace(table, columns=(*table.columns[:place], column, *table.columns[place:]))


def _names(store: Store, table: Table) -> tuple[str, Mapping[str, str]]:
    """The column that is to hold names, and the name of each specification in the latest design."""
    column = next((column.name for column in table.columns if column in _NAMED.values()), "")
    recorded = store.designs.latest() if column else None
    names: dict[str, str] = {}
    kinds = {"editor_name": ("editors",), "judge_name": ("judges", "readers")}.get(column, ())
    for entry in (entry for kind in kinds for entry in recorded.document.get(kind, ())) if recorded else ():
        key = Spec(**entry["spec"]).key
        # The same settings under two names make the same rows.
        names[key] = f"{names[key]} or {entry['name']}" if key in names else entry["name"]
    return column, names


_PEOPLE = ("participant", "prolific", "rater", "worker", "session", "email", "user_id", "ip_address")
"""Keys that may name a person. The ledger should not have them; an export never does."""


def rows_of(store: Store, table: Table) -> Iterator[dict[str, Any]]:
    """Every row ever written, of every configuration, in the order of writing; nothing that names a rater."""
    hidden = [column.name for column in table.columns if column.name in ("effective", "raw")]
    named, names = _names(store, table)
    for values in store.query(table.query):
        row = {column.name: value for column, value in zip(table.columns, values, strict=True)}
        if named:
            row[named] = names.get(row[named], "")
        for name in hidden:
            if row[name]:
                row[name] = without_people(row[name])
        yield row


def without_people(text: str) -> str:
    """An answer as it came, without the keys that may name a person."""
    if not any(word in text.lower() for word in _PEOPLE):
        return text
    try:
        parsed = json.loads(text)
    except ValueError:
        return text
    cleaned = _cleaned(parsed)
    return text if cleaned == parsed else json.dumps(cleaned, sort_keys=True, ensure_ascii=False)


def _cleaned(value: Json) -> Json:
    if isinstance(value, dict):
        items = cast("dict[str, Json]", value).items()
        return {key: _cleaned(item) for key, item in items if not any(word in key.lower() for word in _PEOPLE)}
    if isinstance(value, list):
        return [_cleaned(item) for item in cast("list[Json]", value)]
    return value


def codebook(tables: Sequence[Table] = TABLES) -> str:
    """What every column means, as Markdown."""
    parts = ["# Codebook", "", "Every row ever written to this run, of every configuration."]
    for table in tables:
        parts += ["", f"## {table.name}", "", "| column | type | meaning |", "|---|---|---|"]
        parts += [f"| {column.name} | {_TYPES[column.kind]} | {column.meaning} |" for column in table.columns]
    return "\n".join(parts) + "\n"


_TYPES: Mapping[Kind, str] = {"text": "text", "whole": "whole number", "number": "number", "json": "JSON"}
