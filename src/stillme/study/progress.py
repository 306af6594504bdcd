"""How far a study has come, and whether its pay is as promised."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from statistics import median
from typing import Any

import sqlalchemy as sa

from stillme.study import schema as t
from stillme.study.opening import Study
from stillme.study.ratings import minutes_taken, raters


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """How far a study has come."""

    state: str
    slots: Mapping[str, int]
    needed: int
    """Tasks that must be finished so that every item has its raters."""
    counting: int
    """Finished tasks whose answers count."""
    under_way: int
    """Tasks that somebody is at whose answers will count."""
    excluded: int
    """Raters whose answers do not count."""
    answers: int
    """Answers that count."""
    participants: Mapping[str, int]
    withdrawn: int
    median_minutes: float | None
    per_hour: float | None
    alarm: str
    """What is wrong with the pay; empty if nothing."""
    deletion_pending: bool
    """Whether something deleted may still be read in the database's files."""
    version: int

    @property
    def raters_needed(self) -> int:
        """How many people must still come."""
        return max(0, self.needed - self.counting - self.under_way)

    def as_json(self) -> dict[str, Any]:
        """For `--json`."""
        return {**asdict(self), "raters_needed": self.raters_needed}


def progress(study: Study, connection: sa.Connection) -> Progress:
    """Counts, and whether the pay is as promised."""
    row = connection.execute(sa.select(t.study).where(t.study.c.id == study.id)).one()
    by_slot = connection.execute(
        sa.select(t.slot.c.state, sa.func.count())
        .join(t.batch, t.batch.c.id == t.slot.c.batch)
        .where(t.batch.c.study == study.id)
        .group_by(t.slot.c.state)
    )
    by_participant = connection.execute(
        sa.select(t.participant.c.state, sa.func.count())
        .where(t.participant.c.study == study.id)
        .group_by(t.participant.c.state)
    )
    active = raters(study, connection)
    counting = [rater for rater in active if rater.counts]
    minutes = [taken for rater in active if (taken := minutes_taken(connection, rater)) is not None]
    median_minutes = median(minutes) if minutes else None
    pay = study.config.pay
    per_hour = 60 * pay.amount / max(median_minutes, 0.1) if median_minutes is not None and pay.amount else None
    alarm = ""
    if per_hour is not None and per_hour < pay.floor:
        alarm = (
            f"The median pay is {per_hour:.2f} {pay.currency} per hour, below the floor of {pay.floor:.2f}: "
            "raise the reward, or pay the difference as a bonus."
        )
    slot_ids = [rater.slot for rater in counting]
    answers = connection.execute(
        sa.select(sa.func.count()).where(t.answer.c.slot.in_(slot_ids), t.answer.c.value.is_not(None))
    ).scalar_one()
    return Progress(
        state=row.state,
        slots={row[0]: row[1] for row in by_slot},
        needed=row.k * study.drawn.batches,
        counting=len(counting),
        under_way=sum(not rater.finished and not rater.excluded for rater in active),
        excluded=sum(bool(rater.excluded) for rater in active),
        answers=answers,
        participants={row[0]: row[1] for row in by_participant},
        withdrawn=row.withdrawn,
        median_minutes=median_minutes,
        per_hour=per_hour,
        alarm=alarm,
        deletion_pending=bool(row.unshredded),
        version=study.version,
    )
