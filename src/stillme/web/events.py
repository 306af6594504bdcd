"""An append-only log: who did what, when. Rows are added and never changed."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import sqlalchemy as sa


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """One line of the log."""

    id: int
    at: str
    """UTC, ISO 8601."""
    actor: str
    kind: str
    detail: dict[str, Any]


def event_table(metadata: sa.MetaData, name: str = "event") -> sa.Table:
    """Declare the log's table; SQLite and PostgreSQL refuse to change its rows once `keep_append_only` was called."""
    return sa.Table(
        name,
        metadata,
        # SQLite counts up by itself only for a plain INTEGER.
        sa.Column("id", sa.BigInteger().with_variant(sa.Integer, "sqlite"), primary_key=True),
        sa.Column("at", sa.Text, nullable=False),
        sa.Column("actor", sa.Text, nullable=False),
        sa.Column("kind", sa.Text, nullable=False),
        sa.Column("detail", sa.Text, nullable=False),
    )


def keep_append_only(connection: sa.Connection, table: sa.Table) -> None:
    """Have the database itself refuse updates and deletes. May be called again."""
    name = table.name
    if connection.dialect.name == "sqlite":
        for verb in ("UPDATE", "DELETE"):
            connection.exec_driver_sql(
                f"CREATE TRIGGER IF NOT EXISTS {name}_no_{verb.lower()} BEFORE {verb} ON {name} "
                f"BEGIN SELECT RAISE(ABORT, '{name} is append-only'); END"
            )
    else:
        connection.exec_driver_sql(
            "CREATE OR REPLACE FUNCTION refuse_change() RETURNS trigger LANGUAGE plpgsql AS "
            "$$ BEGIN RAISE EXCEPTION 'append-only'; END $$"
        )
        connection.exec_driver_sql(
            f"CREATE OR REPLACE TRIGGER {name}_kept BEFORE UPDATE OR DELETE ON {name} EXECUTE FUNCTION refuse_change()"
        )


def append(connection: sa.Connection, table: sa.Table, *, actor: str, kind: str, **detail: Any) -> None:
    """Add a line within the caller's transaction: it is kept if and only if what it records is."""
    connection.execute(
        table.insert().values(at=now(), actor=actor, kind=kind, detail=json.dumps(detail, ensure_ascii=False))
    )


def read(connection: sa.Connection, table: sa.Table, *, after: int = 0) -> Iterator[Event]:
    """All lines after an id, oldest first."""
    for row in connection.execute(sa.select(table).where(table.c.id > after).order_by(table.c.id)):
        yield Event(id=row.id, at=row.at, actor=row.actor, kind=row.kind, detail=json.loads(row.detail))


def now() -> str:
    """The time as the log writes it."""
    return datetime.now(UTC).isoformat(timespec="milliseconds")
