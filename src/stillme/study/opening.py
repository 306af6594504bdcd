"""Open a study: its settings, secrets and database, filled from items.json the first time."""

from __future__ import annotations

import json
import secrets
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import sqlalchemy as sa

from stillme.errors import StillmeError
from stillme.study import config as configs
from stillme.study import items, keys
from stillme.study import schema as t
from stillme.study.assignment import create_slots
from stillme.study.blinding import FOLDER
from stillme.study.config import Config
from stillme.study.items import Drawn, Item
from stillme.study.keys import Keys
from stillme.web import events
from stillme.web.database import Database, open_database

DATABASE = "study.sqlite"
SECOND_PORTRAIT = -1
"""The place of a second person's portrait among an item's images."""
_LOCK = 7_151_468_813
"""Our advisory lock in PostgreSQL: workers that start together create the tables one after the other."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Study:
    """A study with its settings, secrets and open database."""

    folder: Path
    config: Config
    keys: Keys
    drawn: Drawn
    database: Database

    @property
    def id(self) -> str:
        """The study's id in its database."""
        return self.drawn.study

    @property
    def pictures(self) -> Path:
        """Where the blinded pictures are."""
        return self.folder / FOLDER

    @property
    def is_open(self) -> bool:
        """Whether it still takes answers."""
        with self.database.reading() as connection:
            return connection.execute(sa.select(t.study.c.state).where(t.study.c.id == self.id)).scalar() == "open"

    def record(self, connection: sa.Connection, actor: str, kind: str, **detail: Any) -> None:
        """Add a line to the audit log."""
        events.append(connection, t.audit, actor=actor, kind=kind, **detail)


@contextmanager
def open_study(folder: Path, database: str | None = None) -> Generator[Study]:
    """The study in `folder`, on SQLite inside it unless `database` names PostgreSQL."""
    config = configs.load(folder)
    drawn = items.read(folder)
    secret_keys = keys.load(folder)
    opened = open_database(database or folder / DATABASE)
    try:
        study = Study(folder=folder, config=config, keys=secret_keys, drawn=drawn, database=opened)
        _prepare(study)
        yield study
    finally:
        opened.close()


def _prepare(study: Study) -> None:
    with study.database.writing() as connection:
        if not study.database.is_sqlite:
            connection.execute(sa.select(sa.func.pg_advisory_xact_lock(_LOCK)))
        t.create(connection)
        row = connection.execute(sa.select(t.study).where(t.study.c.id == study.id)).first()
        if row is None:
            _fill(connection, study)
        elif row.config_hash != study.config.hash:
            if _has_begun(connection, study.id):
                raise StillmeError(
                    f"{study.folder / configs.FILE} has changed in `raters`, `questions`, `can_abstain` or `texts` "
                    "since participants began. Restore it, or draw a new study for the new wording."
                )
            _empty(connection, study.id)
            _fill(connection, study)
        else:
            connection.execute(
                t.study.update().where(t.study.c.id == study.id).values(lease_s=60 * study.config.lease_minutes)
            )


def _has_begun(connection: sa.Connection, study: str) -> bool:
    return connection.execute(sa.select(t.participant.c.id).where(t.participant.c.study == study)).first() is not None


def _empty(connection: sa.Connection, study: str) -> None:
    items_of_study = sa.select(t.item.c.id).where(t.item.c.study == study)
    batches = sa.select(t.batch.c.id).where(t.batch.c.study == study)
    connection.execute(t.slot.delete().where(t.slot.c.batch.in_(batches)))
    connection.execute(t.batch_item.delete().where(t.batch_item.c.batch.in_(batches)))
    connection.execute(t.image.delete().where(t.image.c.item.in_(items_of_study)))
    for table in (t.item, t.batch, t.invitation, t.admin_session):
        connection.execute(table.delete().where(table.c.study == study))
    connection.execute(t.study.delete().where(t.study.c.id == study))


def _fill(connection: sa.Connection, study: Study) -> None:
    config, drawn = study.config, study.drawn
    connection.execute(
        t.study.insert().values(
            id=study.id,
            config_json=config.model_dump_json(),
            config_hash=config.hash,
            k=config.raters,
            lease_s=60 * config.lease_minutes,
            state="open",
            withdrawn=0,
        )
    )
    # Ids in the database are random: a browser must not learn the number or the kind of items from them.
    names = {item.id: secrets.token_hex(16) for item in drawn.items}
    batches = [f"{study.id}-{number:04d}" for number in range(drawn.batches)]
    connection.execute(t.batch.insert(), [{"id": batch, "study": study.id} for batch in batches])
    connection.execute(t.item.insert(), [_item(study, item, names) for item in drawn.items])
    connection.execute(t.image.insert(), [row for item in drawn.items for row in _images(item, names[item.id])])
    connection.execute(
        t.batch_item.insert(),
        [{"batch": batches[item.batch], "item": names[item.id]} for item in drawn.items if item.batch >= 0],
    )
    create_slots(connection, batches, config.raters)


def _item(study: Study, item: Item, names: dict[str, str]) -> dict[str, Any]:
    return {
        "id": names[item.id],
        "study": study.id,
        "drawn": item.id,
        "kind": item.kind,
        "prompt": item.prompt,
        "questions": json.dumps([name for name in item.questions if name in study.config.questions]),
        "sides": len(item.outputs),
        "offset": secrets.randbelow(2),
        "repeats": names[item.repeats] if item.repeats else None,
    }


def _images(item: Item, name: str) -> Sequence[dict[str, Any]]:
    rows: list[dict[str, Any]] = [{"role": 0, "file": item.source, "expected_json": None}]
    if item.second:
        rows.append({"role": SECOND_PORTRAIT, "file": item.second, "expected_json": None})
    for role, output in enumerate(item.outputs, start=1):
        expected = json.dumps(output.expected) if output.expected else None
        rows.append({"role": role, "file": output.file, "expected_json": expected})
    return [{"id": secrets.token_hex(16), "item": name, **row} for row in rows]
