"""Open a study: its settings, secrets and database, filled from items.json the first time."""

from __future__ import annotations

import json
import secrets
import threading
import time
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

import sqlalchemy as sa
from sqlalchemy.exc import OperationalError

from stillme.core.errors import StillmeError
from stillme.study import config as configs
from stillme.study import items, keys
from stillme.study import schema as t
from stillme.study.assignment import create_slots, set_raters
from stillme.study.config import Config
from stillme.study.items import FOLDER, Drawn, Item
from stillme.study.keys import Keys
from stillme.web.database import Database, append_event, open_database, read_events

_PATIENCE, _PAUSE = 1.0, 0.5
"""Seconds that a request waits, and seconds between attempts afterwards."""


def note_deletion(connection: sa.Connection, study: str) -> None:
    """Count a deletion, in the transaction that deletes."""
    more = sa.func.coalesce(t.study.c.unshredded, 0) + 1
    connection.execute(t.study.update().where(t.study.c.id == study).values(unshredded=more))


def shred(database: Database, study: str, patience: float = _PATIENCE) -> bool:
    """Shred what was deleted; false if a reader prevents it so far, and a thread then goes on trying."""
    until = time.monotonic() + patience
    while not _attempt(database, study):
        if time.monotonic() > until:
            threading.Thread(target=_keep_trying, args=(database, study), daemon=True).start()
            return False
        time.sleep(_PAUSE / 10)
    return True


def is_pending(connection: sa.Connection, study: str) -> bool:
    """Whether something deleted may still be read in the files."""
    return bool(connection.execute(sa.select(t.study.c.unshredded).where(t.study.c.id == study)).scalar())


def _attempt(database: Database, study: str) -> bool:
    with database.reading() as connection:
        count = connection.execute(sa.select(t.study.c.unshredded).where(t.study.c.id == study)).scalar() or 0
    if not count:
        return True
    if not database.shred():
        return False
    # Not to zero: somebody may have withdrawn meanwhile.
    with database.writing() as connection:
        less = t.study.c.unshredded - count
        connection.execute(t.study.update().where(t.study.c.id == study).values(unshredded=less))
    return True


def _keep_trying(database: Database, study: str) -> None:
    while not database.is_closed:
        time.sleep(_PAUSE)
        try:
            if database.is_closed or _attempt(database, study):
                return
        except OperationalError:
            # A full disk, a database that restarts: the next attempt may succeed.
            continue


DATABASE = "study.sqlite"
SECOND_PORTRAIT = -1
"""The place of a second person's portrait among an item's images."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Study:
    """A study with its settings, secrets and open database."""

    folder: Path
    config: Config
    keys: Keys
    drawn: Drawn
    database: Database
    version: int = 1
    """Of whoever agrees from now on."""
    versions: Mapping[int, Config] = field(default_factory=dict[int, Config])
    """What people agreed to and were asked, by version."""

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

    def config_of(self, version: int | None) -> Config:
        """What somebody of that version is shown; without one, what the next participant will be."""
        recorded = self.versions.get(self.version if version is None else version)
        return recorded.with_settings_of(self.config) if recorded else self.config

    @property
    def questions(self) -> tuple[str, ...]:
        """Everything that any version asks."""
        return tuple(dict.fromkeys(name for config in self.versions.values() for name in config.questions))

    def asked(self, questions: str, version: int | None) -> tuple[str, ...]:
        """Which of an item's questions (as JSON) a version asks."""
        # Not through `config_of`: every answer that is read asks this.
        known = self.versions.get(version or self.version, self.config).questions
        return tuple(name for name in json.loads(questions) if name in known)

    def record(self, connection: sa.Connection, actor: str, kind: str, **detail: Any) -> None:
        """Add a line to the audit log."""
        append_event(connection, t.audit, actor=actor, kind=kind, **detail)


@contextmanager
def open_study(folder: Path, database: Path | None = None, *, renew: bool = False) -> Generator[Study]:
    """The study in `folder`, with its database inside it unless `database` names another file.

    With `renew`, a study.toml with other texts or questions becomes a new version, for people who have not begun.
    """
    drawn = items.read(folder)
    secret_keys = keys.load(folder)
    opened = open_database(database or folder / DATABASE)
    try:
        study = _prepared(folder, drawn, secret_keys, opened, renew)
        # What a crash kept from being shredded.
        shred(opened, study.id, patience=0)
        yield study
    finally:
        opened.close()


def _prepared(folder: Path, drawn: Drawn, secret_keys: Keys, database: Database, renew: bool) -> Study:
    with database.writing() as connection:
        t.create(connection)
        row = connection.execute(sa.select(t.study).where(t.study.c.id == drawn.study)).first()
        versions = _versions(connection, drawn.study)
        try:
            config = configs.load(folder)
            _record_rules(connection, config)
        except StillmeError:
            # Progress and exports need only what was recorded.
            if renew or not versions:
                raise
            config = versions[max(versions)]
        if row is None:
            _fill(connection, drawn, config)
        if not versions or (renew and versions[max(versions)].hash != config.hash):
            versions[len(versions) + 1] = config
            _add_version(connection, drawn.study, len(versions), config)
        if renew and row is not None:
            k = set_raters(connection, drawn.study, config.raters)
            settings = {"lease_s": 60 * config.lease_minutes, "k": k}
            connection.execute(t.study.update().where(t.study.c.id == drawn.study).values(**settings))
        return Study(
            folder=folder,
            config=config,
            keys=secret_keys,
            drawn=drawn,
            database=database,
            version=max(versions),
            versions=versions,
        )


RULES = "exclusion rules"
"""The log's word for what study.toml says about whom to exclude."""


def _record_rules(connection: sa.Connection, config: Config) -> None:
    """Keep since when study.toml excludes whom, so that a rule made after the answers can be told from one before."""
    known = [line.detail["rules"] for line in read_events(connection, t.audit) if line.kind == RULES]
    if (known[-1] if known else []) != config.checks.exclude:
        append_event(connection, t.audit, actor="researcher", kind=RULES, rules=list(config.checks.exclude))


def rules_came_first(connection: sa.Connection) -> bool:
    """Whether the exclusion rules were recorded before the first answer."""
    last = [line.at for line in read_events(connection, t.audit) if line.kind == RULES][-1:]
    first = connection.execute(sa.select(sa.func.min(t.answer.c.at))).scalar()
    return bool(last) and (first is None or datetime.fromisoformat(last[0]).timestamp() <= first)


def _versions(connection: sa.Connection, study: str) -> dict[int, Config]:
    rows = connection.execute(sa.select(t.version).where(t.version.c.study == study).order_by(t.version.c.number))
    return {row.number: Config.model_validate_json(row.config_json) for row in rows}


def _add_version(connection: sa.Connection, study: str, number: int, config: Config) -> None:
    written = {"config_hash": config.hash, "config_json": config.model_dump_json()}
    connection.execute(t.version.insert().values(study=study, number=number, at=time.time(), **written))
    connection.execute(t.study.update().where(t.study.c.id == study).values(**written))


def _fill(connection: sa.Connection, drawn: Drawn, config: Config) -> None:
    connection.execute(
        t.study.insert().values(
            id=drawn.study,
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
    batches = [f"{drawn.study}-{number:04d}" for number in range(drawn.batches)]
    connection.execute(t.batch.insert(), [{"id": batch, "study": drawn.study} for batch in batches])
    offsets = _offsets(drawn.items)
    connection.execute(t.item.insert(), [_item(drawn.study, item, names, offsets) for item in drawn.items])
    connection.execute(t.image.insert(), [row for item in drawn.items for row in _images(item, names[item.id])])
    connection.execute(
        t.batch_item.insert(),
        [{"batch": batches[item.batch], "item": names[item.id]} for item in drawn.items if item.batch >= 0],
    )
    create_slots(connection, batches, range(config.raters))


def _offsets(items: Sequence[Item]) -> dict[str, int]:
    """The side of each item's first output for a task's first rater: random, and of each kind half on either side.

    Coins alone would put all of a short task on one side now and then, and its raters would look biased.
    """
    alike: dict[tuple[int, str], list[str]] = {}
    for item in items:
        alike.setdefault((item.batch, item.kind), []).append(item.id)
    offsets: dict[str, int] = {}
    for ids in alike.values():
        secrets.SystemRandom().shuffle(ids)
        first = secrets.randbelow(2)
        offsets.update({name: (first + place) % 2 for place, name in enumerate(ids)})
    return offsets


def _item(study: str, item: Item, names: dict[str, str], offsets: dict[str, int]) -> dict[str, Any]:
    return {
        "id": names[item.id],
        "study": study,
        "drawn": item.id,
        "kind": item.kind,
        "prompt": item.prompt,
        "questions": json.dumps(item.questions),
        "sides": len(item.outputs),
        "offset": offsets[item.id],
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
