"""Close a study: its ratings join the run's ledger as the judge `people`, one assessment per rater and edit."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from stillme.design import assessment_key
from stillme.errors import StillmeError
from stillme.judges.people import People, PeopleParameters
from stillme.store import AssessmentRow, Store
from stillme.study import schema as t
from stillme.study.answers import CANNOT_TELL
from stillme.study.items import Output
from stillme.study.opening import Study
from stillme.study.ratings import Rating, raters, ratings
from stillme.types import Abstained, Assessment, Rated, Spec


@dataclass(frozen=True, slots=True, kw_only=True)
class Closing:
    """What closing did."""

    added: int
    """Assessments that are new in the ledger."""
    already: int
    raters: int
    excluded: int
    under_way: int
    """Tasks that were begun and may still be finished; closing again then adds them."""
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
    with study.database.writing() as connection:
        connection.execute(t.study.update().where(t.study.c.id == study.id).values(state="closed"))
        study.record(connection, "researcher", "closed")
    with study.database.reading() as connection:
        people = raters(study, connection)
        finished = [person for person in people if person.state == "done"]
        counted = [person for person in finished if not person.excluded]
        rows = ratings(study, connection, counted)
    judge = People(PeopleParameters()).spec
    with Store.writing(folder, wait=wait) as store:
        ledger = _Ledger(store, judge)
        made = list(ledger.new_rows(study, rows))
        store.add_assessments(made)
    return Closing(
        added=len(made),
        already=ledger.already,
        raters=len(counted),
        excluded=len(finished) - len(counted),
        under_way=len(people) - len(finished),
        run=str(folder),
        epochs=ledger.most,
    )


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
            yield self._row(edit, answers, epoch, {"study": study.id, "rater": rater})

    def _row(self, output: Output, answers: Sequence[Rating], epoch: int, origin: Mapping[str, str]) -> AssessmentRow:
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
