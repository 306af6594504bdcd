"""Close a study: its ratings join the run's ledger as the judge `people`, one assessment per rater and edit."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import sqlalchemy as sa

from stillme.design import assessment_key
from stillme.errors import StillmeError
from stillme.judges.people import People, PeopleParameters
from stillme.store import AssessmentRow, Store
from stillme.study import schema as t
from stillme.study.answers import CANNOT_TELL
from stillme.study.assignment import end_held
from stillme.study.items import Output
from stillme.study.opening import Study
from stillme.study.ratings import Rater, Rating, raters, ratings
from stillme.types import Abstained, Assessment, Json, Rated, Spec


@dataclass(frozen=True, slots=True, kw_only=True)
class Closing:
    """What closing did."""

    added: int
    """Assessments that are new in the ledger."""
    already: int
    raters: int
    excluded: int
    ended: int
    """Tasks that were under way; whoever was at them is thanked and paid."""
    waits_until: str
    """The day up to which participants may withdraw, if it is not over: nothing is added before."""
    run: str
    epochs: int
    """The most ratings that one edit has now."""

    def as_json(self) -> dict[str, Any]:
        """For `--json`."""
        return asdict(self)


def close_study(study: Study, run: Path | None = None, *, wait: float = 0.0) -> Closing:
    """Stop taking answers and put every finished rater's ratings into the run. Safe to repeat."""
    folder = run or Path(study.drawn.run)
    if not Store.exists(folder):
        raise StillmeError(f"{folder} is no run folder. Say where the run is now with `--run`.")
    promised = max((day for config in study.versions.values() if (day := config.consent.withdraw_until)), default=None)
    waits = promised is not None and datetime.now(UTC).date() <= promised
    with Store.writing(folder, wait=wait) as store:
        with study.database.writing() as connection:
            connection.execute(t.study.update().where(t.study.c.id == study.id).values(state="closed"))
            ended = end_held(connection, study.id, "closed", time.time())
            finished = [person for person in raters(study, connection) if person.finished]
            counted = [person for person in finished if not person.excluded]
            # Marked before they are written: from here on nobody of them can withdraw.
            marked = [] if waits else _mark_written(connection, counted)
            rows = [] if waits else ratings(study, connection, counted)
            study.record(connection, "researcher", "closed")
        ledger = _Ledger(store, People(PeopleParameters()).spec)
        made = list(ledger.new_rows(study, rows))
        try:
            store.add_assessments(made)
        except BaseException:
            with study.database.writing() as connection:
                connection.execute(t.participant.update().where(t.participant.c.id.in_(marked)).values(written=None))
            raise
    return Closing(
        added=len(made),
        already=ledger.already,
        raters=len(counted),
        excluded=len(finished) - len(counted),
        ended=ended,
        waits_until=str(promised) if waits else "",
        run=str(folder),
        epochs=ledger.most,
    )


def _mark_written(connection: sa.Connection, people: Sequence[Rater]) -> list[str]:
    """Mark whose answers are written now; returns who was not marked before."""
    marked = connection.execute(
        t.participant.update()
        .where(t.participant.c.id.in_([person.participant for person in people]), t.participant.c.written.is_(None))
        .values(written=time.time())
        .returning(t.participant.c.id)
    )
    return list(marked.scalars())


def _why_not(row: Rating) -> str:
    return "cannot tell" if row.value == CANNOT_TELL else "neither person is drawn as the target"


class _Ledger:
    """The people's assessments in a run: which are there, and which number comes next for an edit."""

    def __init__(self, store: Store, judge: Spec) -> None:
        self._store, self._judge = store, judge
        self._next: defaultdict[str, int] = defaultdict(int)
        self._known: set[tuple[str, str, str]] = set()
        self.already = 0
        for edit, epoch, origin in store.answers_by(judge.key):
            self._next[edit] = max(self._next[edit], epoch + 1)
            self._known.add((origin.get("study", ""), origin.get("rater", ""), edit))

    @property
    def most(self) -> int:
        return max(self._next.values(), default=0)

    def new_rows(self, study: Study, rows: Sequence[Rating]) -> Iterator[AssessmentRow]:
        items = {item.id: item for item in study.drawn.items}
        given: defaultdict[tuple[str, str, int], list[Rating]] = defaultdict(list)
        for row in rows:
            if row.kind == "real":
                given[row.rater, row.item, row.output].append(row)
        for (rater, item, output), answers in given.items():
            edit = items[item].outputs[output]
            if (study.id, rater, edit.edit) in self._known:
                self.already += 1
                continue
            epoch = self._next[edit.edit]
            self._next[edit.edit] += 1
            drawn: dict[str, Json] = {"study": study.id, "rater": rater}
            if (chance := items[item].chance) is not None:
                drawn["chance"] = chance
            yield self._row(edit, answers, epoch, drawn)

    def _row(self, output: Output, answers: Sequence[Rating], epoch: int, origin: Mapping[str, Json]) -> AssessmentRow:
        first = answers[0]
        shown = {"side": "AB"[first.side], "position": first.position + 1}
        said = Assessment(
            ratings={
                row.axis: Rated(score=row.value) if row.is_score else Abstained(reason=_why_not(row)) for row in answers
            },
            effective={**origin, **shown},
        )
        return AssessmentRow(
            key=assessment_key(output.edit, output.sha256, self._judge.key, epoch),
            edit=output.edit,
            epoch=epoch,
            judge=self._judge,
            assessment=said,
            attempts=1,
            seconds=0.0,
            cost=0.0,
        )
