"""Close a study: its ratings join the run's ledger as the judge `people`, one assessment per rater and edit."""

from __future__ import annotations

import time
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from stillme.audit.design import assessment_key
from stillme.core.errors import StillmeError
from stillme.core.types import Abstained, Assessment, Json, Rated, Spec
from stillme.judges.given import People, PeopleParameters
from stillme.runs.participants import RatersOfStudy, add_raters
from stillme.runs.store import AssessmentRow, Store
from stillme.study.answers import CANNOT_TELL
from stillme.study.assignment import end_held, exclude
from stillme.study.config import Failing
from stillme.study.items import Output
from stillme.study.opening import Study, read_log, rules_came_first
from stillme.study.quality import Rater, RaterQuality, Rating, rater_qualities, raters, ratings
from stillme.web.database import Transaction

FAILING: tuple[Failing, ...] = ("attention", "gold", "straight-lining")
Flagged = Literal["ask", "exclude", "include"]
"""What becomes of raters who failed checks; `ask` follows study.toml, and stops where that says nothing."""


_CLOSED = "closed"
"""The kind of the audit log's line that keeps the decision."""


class UndecidedRaters(StillmeError):
    """Finished raters failed checks, and no one has decided about them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FailedChecks:
    """A finished rater who failed checks, and what they answered."""

    rater: str
    flags: tuple[str, ...]
    answers: str

    def __str__(self) -> str:
        return f"{self.rater}: {', '.join(self.flags)}; {self.answers}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Closing:
    """What closing did, or would do."""

    added: int
    """Assessments that are new in the ledger."""
    already: int
    raters: int
    excluded: Mapping[str, int]
    """How many finished raters do not count, by reason."""
    flagged: tuple[FailedChecks, ...]
    """Finished raters who failed checks, whether they count or not."""
    rule: str
    """What was decided about them, and when."""
    ended: int
    """Tasks that were under way; their participants are thanked and paid."""
    waits_until: str
    """The day up to which participants may withdraw, if it is not over: nothing is added before."""
    run: str
    epochs: int
    """The most ratings that one edit has now."""


def close_study(
    study: Study, run: Path | None = None, *, wait: float = 0.0, flagged: Flagged = "ask", dry_run: bool = False
) -> Closing:
    """Stop taking answers and put every finished rater's ratings into the run. Safe to repeat.

    With `dry_run` nothing changes: it only says who would count.
    """
    folder = run or Path(study.drawn.run)
    if not Store.exists(folder):
        raise StillmeError(f"{folder} is not a run folder. Say where the run is now with `--run`.")
    waits = study.withdraw_until
    with Store.writing(folder, wait=wait) as store:
        with study.database.writing() as connection:
            failed = list(_failed_checks(study, connection))
            rule = _decide(study, connection, failed, flagged, dry_run)
            finished = [person for person in raters(study, connection) if person.finished]
            counted = [person for person in finished if not person.excluded]
            ended, marked, rows = 0, list[str](), list[Rating]()
            if dry_run:
                # What `_decide` excluded to be counted here.
                connection.rollback()
            else:
                connection.execute("UPDATE study SET state = 'closed'")
                ended = end_held(connection, "closed", time.time())
                # Marked before they are written: from here on none of them can withdraw.
                marked = [] if waits else _mark_written(connection, counted)
                rows = [] if waits else ratings(study, connection, counted)
                study.record(connection, "researcher", _CLOSED, rule=rule)
        ledger = _Ledger(store, People(PeopleParameters()).spec)
        made = list(ledger.new_rows(study, rows))
        try:
            store.add(made)
        except BaseException:
            with study.database.writing() as connection:
                unmarked = "UPDATE participant SET written = NULL WHERE id = ?"
                connection.executemany(unmarked, [(participant,) for participant in marked])
            raise
    excluded = dict(Counter(person.excluded for person in finished if person.excluded))
    if rows:
        add_raters(folder, RatersOfStudy(study=study.id, counted=len(counted), excluded=excluded, rule=rule))
    return Closing(
        added=len(made),
        already=ledger.already,
        raters=len(counted),
        excluded=excluded,
        flagged=tuple(failed for _, failed in failed),
        rule=rule,
        ended=ended,
        waits_until=str(waits or ""),
        run=str(folder),
        epochs=ledger.most,
    )


def _failed_checks(study: Study, connection: Transaction) -> Iterator[tuple[Rater, FailedChecks]]:
    """Finished raters whose answers could still be left out, and who failed checks."""
    people = {person.name: person for person in raters(study, connection) if person.finished and not person.written}
    given = ratings(study, connection, list(people.values()))
    for quality in rater_qualities(study, connection):
        flags = tuple(flag for flag in quality.flags if flag in FAILING)
        if quality.rater in people and flags:
            answers = _summary(quality, [row for row in given if row.rater.name == quality.rater])
            yield people[quality.rater], FailedChecks(rater=quality.rater, flags=flags, answers=answers)


def _summary(quality: RaterQuality, rows: Sequence[Rating]) -> str:
    passed, seen = quality.attention
    checks = Counter(row.value for row in rows if row.item.kind == "attention")
    scores = Counter(row.value for row in rows if row.item.kind == "real")
    parts = [f"passed {passed} of {seen} attention checks{_counts(checks)}"]
    if quality.gold is not None:
        parts.append(f"{100 * quality.gold:.0f} % of known answers right")
    return ", ".join([*parts, f"answers to real items{_counts(scores)}"])


def _counts(values: Counter[int]) -> str:
    """` (5 × 120, cannot tell × 3)`, the most frequent first."""
    named = [f"{value or 'cannot tell'} × {count}" for value, count in values.most_common()]
    return f" ({', '.join(named)})" if named else ""


def _decide(
    study: Study,
    connection: Transaction,
    failed: Sequence[tuple[Rater, FailedChecks]],
    flagged: Flagged,
    dry_run: bool,
) -> str:
    """Exclude raters who failed checks, where that is decided; returns the decision in words."""
    ruled = study.config.checks.exclude
    open_cases = [(rater, case) for rater, case in failed if not rater.excluded]
    if not open_cases:
        if before := read_log(connection, _CLOSED):
            return str(before[-1]["detail"]["rule"])
        decided = f"Rule of study.toml: exclude {', '.join(ruled)}." if ruled else "No rater who counts failed checks."
        return f"{decided} {_when(connection)}" if ruled else decided
    if flagged == "include":
        if not dry_run:
            study.record(connection, "researcher", "kept flagged raters", raters=[case.rater for _, case in open_cases])
        return f"{len(open_cases)} who failed checks were kept; decided when the study was closed."
    if flagged == "ask" and not ruled:
        if dry_run:
            return f"{len(open_cases)} failed checks; not decided yet."
        cases = "\n".join(f"  {case}" for _, case in open_cases)
        raise UndecidedRaters(
            f"{len(open_cases)} finished {'rater' if len(open_cases) == 1 else 'raters'} failed checks:\n{cases}\n"
            "Add --exclude-flagged or --include-flagged. Nothing was closed."
        )
    wanted = ruled if flagged == "ask" else FAILING
    when = _when(connection) if flagged == "ask" else "Decided when the study was closed."
    for rater, case in open_cases:
        if why := [flag for flag in case.flags if flag in wanted]:
            reason = f"failed {', '.join(why)}"
            exclude(connection, rater.participant, reason, time.time())
            study.record(connection, "researcher", "excluded", rater=case.rater, reason=f"{reason}. {when}")
    return f"Raters who failed {', '.join(wanted)} were excluded. {when}"


def _when(connection: Transaction) -> str:
    first = rules_came_first(connection)
    return "The rule was fixed before the first answer." if first else "The rule was made after answers were there."


def _mark_written(connection: Transaction, people: Sequence[Rater]) -> list[str]:
    """Mark whose answers are written now; returns who was not marked before."""
    marked = [person.participant for person in people if not person.written]
    now = time.time()
    connection.executemany("UPDATE participant SET written = ? WHERE id = ?", [(now, who) for who in marked])
    return marked


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
        given: defaultdict[tuple[str, str, int], list[Rating]] = defaultdict(list)
        for row in rows:
            if row.item.kind == "real":
                given[row.rater.name, row.item.id, row.output].append(row)
        for (rater, name, output), answers in given.items():
            item = study.drawn.by_id[name]
            edit = item.outputs[output]
            if (study.id, rater, edit.edit) in self._known:
                self.already += 1
                continue
            epoch = self._next[edit.edit]
            self._next[edit.edit] += 1
            drawn: dict[str, Json] = {"study": study.id, "rater": rater, "draw": study.drawn.design.get("draw", "")}
            if item.chance is not None:
                drawn["chance"] = item.chance
            yield self._row(edit, answers, epoch, drawn)

    def _row(self, output: Output, answers: Sequence[Rating], epoch: int, origin: Mapping[str, Json]) -> AssessmentRow:
        first = answers[0]
        shown = {"side": "AB"[first.side], "position": first.position + 1}
        assessment = Assessment(
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
            assessment=assessment,
            attempts=1,
            seconds=0.0,
            cost=0.0,
        )
