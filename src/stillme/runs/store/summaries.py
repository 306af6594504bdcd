"""Queries over a whole ledger: what it holds, what it cost, who said what."""

from __future__ import annotations

import json
import sqlite3
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import Literal, NamedTuple

from stillme.audit.design import CONTROL, assessment_key
from stillme.core.types import IN_WORDS, Json
from stillme.runs.store.rows import NONDETERMINISTIC, REPEATED, Table

Work = Literal["edit", "assessment"]
ProgressKey = tuple[Literal["edit", "judge"], str, str | int]
"""Of requests: `("edit", editor's name, state)`. Of answers: `("judge", judge's key, epoch)`."""
_UNPRICED = "json_extract(effective, '$.cost') = 'unknown'"
_DANGLING = {
    "judgements without their assessment": (
        "SELECT COUNT(*) FROM judgement WHERE assessment NOT IN (SELECT id FROM assessment)"
    ),
    "assessments without a judgement": (
        "SELECT COUNT(*) FROM assessment WHERE id NOT IN (SELECT assessment FROM judgement)"
    ),
    "edits without their editor, prompt or instruction": (
        "SELECT COUNT(*) FROM edit WHERE editor NOT IN (SELECT key FROM spec) OR prompt NOT IN (SELECT key FROM prompt)"
        " OR instruction NOT IN (SELECT key FROM instruction)"
    ),
    "edits that are called edited and have no picture": (
        "SELECT COUNT(*) FROM edit WHERE (outcome = 'edited') != (image IS NOT NULL)"
    ),
}
_OF_CONTROLS = f"SELECT key FROM spec WHERE use = '{CONTROL}'"
"""Portraits that were only encoded again, as controls of readings, are no edits that anybody asked for."""
_AFTER_ALL = 1 << 62
"""More than any row's number."""
_REASON = 160
"""Characters of an error that are shown."""
_WORKER: Mapping[Work, str] = {"edit": "editor", "assessment": "judge"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Totals:
    """What a run holds and has cost."""

    edits: Mapping[str, int]
    """By outcome; failures that a rerun would retry are counted as `to retry`."""
    assessments: int
    assessments_to_retry: int
    features_to_retry: int
    control_pairs_to_retry: int
    seconds: float
    cost: float
    """Dollars, as far as prices are known."""
    unpriced: int = 0
    """Edits, assessments and features whose price is unknown."""

    @property
    def cost_text(self) -> str:
        """For people: an unknown price is never shown as zero."""
        if not self.unpriced:
            return f"${self.cost:,.2f}"
        return f"${self.cost:,.2f} and an unknown amount" if self.cost else "unknown"

    @property
    def to_retry(self) -> int:
        """Failures that a rerun would retry."""
        judged = self.assessments_to_retry + self.control_pairs_to_retry
        return self.edits.get("to retry", 0) + judged + self.features_to_retry


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """Work that failed for one reason."""

    stage: Literal["edit", "judge"]
    reason: str
    count: int

    def __str__(self) -> str:
        reason = " ".join(self.reason.split())
        short = reason if len(reason) <= _REASON else f"{reason[:_REASON]}…"
        return f"{self.stage} failed {self.count:,}×: {short}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Effort:
    """What the work of one specification took."""

    calls: int
    attempts: int
    seconds: float
    dollars: float
    unpriced: int
    """Rows whose price is unknown."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Spoken:
    """What an editor or judge wrote about an edit."""

    edit: str
    judge: str
    """The key of the judge's specification; empty for the editor itself."""
    axis: str
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class EditingWeights:
    """Weights that edits were made with."""

    editor: str
    """The key of the editor's specification."""
    weights: Mapping[str, Json]
    """At least `repo` and `revision`, which is a commit or a hash."""
    edits: int


@dataclass(frozen=True, slots=True, kw_only=True)
class AnsweringModel:
    """A model that answered as a judge, by its provider's word."""

    judge: str
    """The key of the judge's specification."""
    name: str
    answers: int
    first: str
    """When it answered first."""


class TableSums(NamedTuple):
    """What rows of one table come to."""

    final: int
    edited: int
    refused: int
    seconds: float
    cost: float
    unpriced: int


class Summaries:
    """Read-only questions to one ledger."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection

    def totals(self, sums: Mapping[str, TableSums] | None = None) -> Totals:
        """Counts, seconds and dollars of the whole run; `sums` are those of all rows, if they are known."""
        sums = sums or self.sums()
        assessments = sums["assessment"].final
        edits = {
            "edited": sums["edit"].edited,
            "to retry": self._to_retry("edit"),
            "refused": sums["edit"].refused,
        }
        return Totals(
            edits={outcome: count for outcome, count in edits.items() if count},
            assessments=assessments,
            assessments_to_retry=self._to_retry("assessment"),
            features_to_retry=self._to_retry("feature"),
            control_pairs_to_retry=self._to_retry("control_pair"),
            seconds=sum(table.seconds for table in sums.values()),
            cost=sum(table.cost for table in sums.values()) + self._lost(),
            unpriced=sum(table.unpriced for table in sums.values()),
        )

    def cost(self) -> float:
        """Dollars, as far as prices are known."""
        return sum(table.cost for table in self.sums().values()) + self._lost()

    def requests_by_editor(self, plan: int) -> dict[str, int]:
        """How many edits are expected of each editor."""
        query = "SELECT editor, COUNT(*) FROM request WHERE plan = ? AND (withheld = '' OR waiting) GROUP BY editor"
        return dict(self._connection.execute(query, (plan,)).fetchall())

    def progress(self, plan: int, asked: Sequence[tuple[str, int]], since: Mapping[str, int]) -> Counter[ProgressKey]:
        """How many more requests of each editor have ended how, and how many more answers each judge has given.

        Since the rows with these numbers, by table; since the first row of a table that is not named. `asked` are
        judges, each with an epoch. Answers are counted that are about the pictures which requests have now.
        """
        execute = self._connection.execute
        execute("DROP TABLE IF EXISTS temp.changed")
        # A new row may supersede an earlier one of its request, so both moments are counted of requests with new rows.
        execute(
            "CREATE TEMP TABLE changed AS SELECT key, editor FROM request WHERE plan = ? AND key IN "
            "(SELECT key FROM edit WHERE id > ? UNION SELECT edit FROM assessment WHERE id > ?)",
            (plan, since.get("edit", 0), since.get("assessment", 0)),
        )
        progress = self._progress_until({"edit": _AFTER_ALL, "assessment": _AFTER_ALL}, asked)
        progress.subtract(self._progress_until({"edit": 0, "assessment": 0, **since}, asked))
        return progress

    def _progress_until(self, until: Mapping[str, int], asked: Sequence[tuple[str, int]]) -> Counter[ProgressKey]:
        """How the changed requests stood when the rows with these numbers were the last."""
        execute = self._connection.execute
        execute("DROP TABLE IF EXISTS temp.latest")
        # The last final row counts, or the last failure where there is none; each has its index.
        final, failed = (
            f"(SELECT MAX(id) FROM edit WHERE key = c.key AND final = {final} AND id <= :edit)" for final in (1, 0)
        )
        execute(
            "CREATE TEMP TABLE latest AS SELECT c.key, c.editor, e.image, CASE WHEN e.outcome != 'failed' "
            f"THEN e.outcome WHEN json_extract(e.effective, '$.status') = '{IN_WORDS}' THEN 'answered in words' "
            f"ELSE 'to retry' END AS state FROM changed c CROSS JOIN edit e ON e.id = COALESCE({final}, {failed})",
            until,
        )
        progress = Counter[ProgressKey]()
        for editor, state, number in execute("SELECT editor, state, COUNT(*) FROM latest GROUP BY editor, state"):
            progress["edit", editor, state] += number
        self._connection.create_function("assessment_key", 4, assessment_key, deterministic=True)
        for judge, epoch in asked:
            (answers,) = execute(
                "SELECT COUNT(*) FROM latest l CROSS JOIN assessment a "
                "ON a.key = assessment_key(l.key, l.image, :judge, :epoch) AND a.final = 1 AND a.id <= :assessment "
                "WHERE l.image IS NOT NULL",
                {**until, "judge": judge, "epoch": epoch},
            ).fetchone()
            progress["judge", judge, epoch] += answers
        return progress

    def sums(self, since: Mapping[str, int] | None = None) -> dict[str, TableSums]:
        """By table, what the rows after those with these numbers come to."""
        worked: tuple[Table, ...] = ("edit", "assessment", "feature", "control_pair")
        return {table: self._summed_up(table, (since or {}).get(table, 0)) for table in worked}

    def _summed_up(self, table: Table, since: int) -> TableSums:
        outcome = f"CASE WHEN editor IN ({_OF_CONTROLS}) THEN '' ELSE outcome END" if table == "edit" else "''"
        # By number and in one pass: an index would read the rows in random order, and grouping would sort them.
        final, edited, refused, seconds, cost, unpriced = self._connection.execute(
            f"SELECT TOTAL(final), TOTAL({outcome} = 'edited'), TOTAL({outcome} = 'refused'), TOTAL(seconds), "
            f"TOTAL(cost), TOTAL(instr(effective, 'unknown') AND {_UNPRICED}) FROM {table} NOT INDEXED WHERE id > ?",
            (since,),
        ).fetchone()
        return TableSums(int(final), int(edited), int(refused), seconds, cost, int(unpriced))

    def failures(self) -> list[Failure]:
        """Why edits and judgements failed that have not succeeded since; the most frequent first."""
        # Answers in words hardly ever read alike: those of one editor count together, with one of them as an example.
        edits = self._connection.execute(
            "SELECT 'edit', MIN(message), COUNT(*), "
            f"CASE json_extract(effective, '$.status') WHEN '{IN_WORDS}' THEN editor ELSE message END AS reason "
            f"FROM edit WHERE id IN ({self._lasting_failures('edit')}) GROUP BY reason"
        )
        judgements = self._connection.execute(
            "SELECT 'judge', j.reason, COUNT(DISTINCT a.key) FROM assessment a JOIN judgement j ON j.assessment = a.id "
            f"WHERE a.id IN ({self._lasting_failures('assessment')}) AND j.outcome = 'failed' GROUP BY j.reason"
        )
        counts: Counter[tuple[Literal["edit", "judge"], str]] = Counter()
        for stage, reason, count, *_ in (*edits, *judgements, *self._failed_control_pairs()):
            counts[stage, reason or ""] += count
        counted = [Failure(stage=stage, reason=reason, count=count) for (stage, reason), count in counts.items()]
        return sorted(counted, key=lambda failure: (-failure.count, failure.reason))

    def _failed_control_pairs(self) -> list[tuple[Literal["judge"], str, int]]:
        last = self._lasting_failures("control_pair")
        query = f"SELECT 'judge', error, COUNT(*) FROM control_pair WHERE id IN ({last}) GROUP BY error"
        return list(self._connection.execute(query))

    def count_answers(self, judge: str) -> int:
        """Assessments by this judge specification that need no more work."""
        query = "SELECT COUNT(*) FROM assessment WHERE judge = ? AND final = 1"
        return int(self._connection.execute(query, (judge,)).fetchone()[0])

    def count_edits(self) -> int:
        """Requests that need no more work, of any configuration."""
        query = f"SELECT COUNT(DISTINCT key) FROM edit WHERE final = 1 AND editor NOT IN ({_OF_CONTROLS})"
        return int(self._connection.execute(query).fetchone()[0])

    def count_pictures(self, editors: Sequence[str]) -> int:
        """Edits by these editor specifications that have a picture."""
        marks = ",".join("?" * len(editors))
        query = f"SELECT COUNT(DISTINCT key) FROM edit WHERE image IS NOT NULL AND editor IN ({marks})"
        return int(self._connection.execute(query, editors).fetchone()[0])

    def controls(self) -> Iterator[tuple[str, str, str]]:
        """`(editor's specification, portrait, picture)` of every portrait that was encoded again as a control."""
        yield from self._connection.execute(
            "SELECT json_extract(s.parameters, '$.editor'), p.id, e.image FROM edit e JOIN spec s ON s.key = e.editor "
            f"JOIN portrait p ON p.key = json_extract(e.portraits, '$[0]') WHERE s.use = '{CONTROL}' "
            "AND e.image IS NOT NULL ORDER BY e.id"
        )

    def readings(self, reader: str) -> Iterator[tuple[str, int, str, str, float | None, str]]:
        """`(picture, repeat, axis, outcome, value, reason)` of everything that a reader has said."""
        yield from self._connection.execute(
            "SELECT a.edit, a.epoch, j.axis, j.outcome, j.score, COALESCE(j.reason, '') FROM assessment a "
            "JOIN judgement j ON j.assessment = a.id WHERE a.judge = ? AND a.final = 1 ORDER BY a.id",
            (reader,),
        )

    def newest(self) -> tuple[int, int]:
        """The numbers of the last edit and the last assessment: they grow with every row."""
        query = "SELECT (SELECT COALESCE(MAX(id), 0) FROM edit), (SELECT COALESCE(MAX(id), 0) FROM assessment)"
        edit, assessment = self._connection.execute(query).fetchone()
        return edit, assessment

    def dangling_rows(self) -> Iterator[tuple[str, int]]:
        """Rows that refer to what is not there, by kind."""
        for what, query in _DANGLING.items():
            yield what, int(self._connection.execute(query).fetchone()[0])

    def assessments_without_edit(self) -> int:
        """Those that count again once the edit is made again: after a repair."""
        query = (
            "SELECT COUNT(*) FROM assessment WHERE edit NOT IN (SELECT key FROM edit) "
            "AND edit NOT IN (SELECT image FROM edit WHERE image IS NOT NULL)"
        )
        return int(self._connection.execute(query).fetchone()[0])

    def pictures_named(self) -> Iterator[str]:
        """Every picture that any row names, of any configuration."""
        queries = (
            "SELECT image FROM edit WHERE image IS NOT NULL",
            "SELECT sha256 FROM portrait",
            "SELECT source FROM control_pair",
            "SELECT edited FROM control_pair",
        )
        for query in queries:
            yield from (name for (name,) in self._connection.execute(query))

    def written(self) -> tuple[str, str] | None:
        """When the first and the last edit or assessment were written; None in a ledger without rows."""
        query = "SELECT MIN(at), MAX(at) FROM (SELECT at FROM edit UNION ALL SELECT at FROM assessment)"
        first, last = self._connection.execute(query).fetchone()
        return (first, last) if first else None

    def configurations(self) -> Iterator[dict[str, Json]]:
        """Every configuration that ever wrote rows here, oldest first."""
        for hash_, resolved, version, at in self._connection.execute(
            "SELECT hash, resolved, stillme, at FROM audit ORDER BY rowid"
        ):
            yield {"hash": hash_, "resolved": json.loads(resolved), "stillme": version, "at": at}

    def efforts(self, work: Work) -> dict[str, Effort]:
        """By the key of an editor's or judge's specification: what its work took."""
        rows = self._connection.execute(
            f"SELECT {_WORKER[work]}, COUNT(DISTINCT key), SUM(attempts), SUM(seconds), SUM(cost), "
            f"CAST(TOTAL({_UNPRICED}) AS INTEGER) FROM {work} GROUP BY {_WORKER[work]}"
        )
        return {
            spec: Effort(calls=calls, attempts=attempts, seconds=seconds, dollars=dollars, unpriced=unpriced)
            for spec, calls, attempts, seconds, dollars, unpriced in rows
        }

    def averages(self, work: Work) -> Iterator[tuple[str, float, float]]:
        """`(specification's key, seconds, dollars)` of an average finished piece of work."""
        worker = _WORKER[work]
        yield from self._connection.execute(
            f"SELECT {worker}, AVG(seconds), AVG(cost) FROM {work} WHERE final = 1 GROUP BY {worker}"
        )

    def spoken(self, edits: AbstractSet[str]) -> Iterator[Spoken]:
        """What editors said when they declined, and what judges gave as evidence, of these edits."""
        for key, message in self._connection.execute(
            "SELECT key, message FROM edit WHERE final = 1 AND message IS NOT NULL ORDER BY id"
        ):
            if key in edits:
                yield Spoken(edit=key, judge="", axis="", text=message)
        for key, judge, axis, reason in self._connection.execute(
            "SELECT a.edit, a.judge, j.axis, j.reason FROM assessment a JOIN judgement j ON j.assessment = a.id "
            "WHERE a.final = 1 AND a.epoch = 0 AND j.reason IS NOT NULL ORDER BY a.id, j.axis"
        ):
            if key in edits:
                yield Spoken(edit=key, judge=judge, axis=axis, text=reason)

    def answers_by(self, judge: str) -> Iterator[tuple[str, int, Mapping[str, Json]]]:
        """`(edit, epoch, effective)` of everything that a judge's specification has said."""
        for edit, epoch, effective in self._connection.execute(
            "SELECT edit, epoch, effective FROM assessment WHERE judge = ?", (judge,)
        ):
            yield edit, epoch, json.loads(effective)

    def answering_models(self, since: int = 0) -> list[AnsweringModel]:
        """Every model that answered, as its provider names it; the earliest of each judge first. In rows after one."""
        rows = self._connection.execute(
            "SELECT judge, json_extract(effective, '$.model') AS model, COUNT(*), MIN(at), MIN(id) AS place "
            "FROM assessment NOT INDEXED WHERE id > ? GROUP BY judge, model HAVING model IS NOT NULL ORDER BY place",
            (since,),
        )
        return [
            AnsweringModel(judge=judge, name=str(model), answers=answers, first=first)
            for judge, model, answers, first, _ in rows
        ]

    def editing_weights(self, since: int = 0) -> list[EditingWeights]:
        """The weights that edits were made with, as editors recorded them; the earliest first. In rows after one."""
        rows = self._connection.execute(
            "SELECT editor, json_extract(effective, '$.weights') AS weights, COUNT(*), MIN(id) AS place "
            # Most editors record none: to look for the word is ten times faster than to parse.
            "FROM edit NOT INDEXED WHERE id > ? AND final = 1 AND instr(effective, '\"weights\"') "
            "GROUP BY editor, weights HAVING weights IS NOT NULL ORDER BY place",
            (since,),
        )
        return [
            EditingWeights(editor=editor, weights=json.loads(weights), edits=edits)
            for editor, weights, edits, _ in rows
            if weights.startswith("{")
        ]

    def editing_times(self, since: int = 0) -> dict[str, tuple[str, str]]:
        """When the first and the last picture of each editor's specification were made, UTC; in rows after one."""
        rows = self._connection.execute(
            "SELECT editor, MIN(at), MAX(at) FROM edit NOT INDEXED WHERE id > ? AND outcome = 'edited' GROUP BY editor",
            (since,),
        )
        return {editor: (first, last) for editor, first, last in rows}

    def scoring_patterns(self, judges: Sequence[str], plan: int | None) -> Counter[tuple[bool, ...]]:
        """Of the edits that all these judge specifications have answered: who gave any score, and how many edits.

        Limited to the requests of a plan, where there is one. Empty if every answer has a score.
        """
        unscored = {
            row
            for (row,) in self._connection.execute(
                "SELECT assessment FROM judgement GROUP BY assessment HAVING MAX(outcome = 'rated') = 0"
            )
        }
        scored: dict[str, list[bool | None]] = {}
        asked = "AND edit IN (SELECT key FROM request WHERE plan = ?)" if plan is not None else ""
        places = {judge: place for place, judge in enumerate(judges)}
        # The index of final rows would read the table in random order.
        query = (
            "SELECT id, edit, judge FROM assessment NOT INDEXED "
            f"WHERE final = 1 AND judge IN ({','.join('?' * len(judges))}) {asked}"
        )
        values = (*judges, *([] if plan is None else [plan]))
        for row, edit, judge in self._connection.execute(query, values) if unscored else ():
            by_judge = scored.setdefault(edit, [None] * len(judges))
            by_judge[places[judge]] = by_judge[places[judge]] or row not in unscored
        return Counter(tuple(map(bool, by_judge)) for by_judge in scored.values() if None not in by_judge)

    def _to_retry(self, table: Table) -> int:
        query = f"SELECT COUNT(*) FROM ({self._lasting_failures(table)})"
        return int(self._connection.execute(query).fetchone()[0])

    def _lasting_failures(self, table: Table) -> str:
        """A query for the last failure under each key that has no final row; by index, as failures are few."""
        return (
            f"SELECT MAX(id) FROM {table} t WHERE final = 0 AND NOT EXISTS "
            f"(SELECT 1 FROM {table} f WHERE f.key = t.key AND f.final = 1) GROUP BY key"
        )

    def _lost(self) -> float:
        """Dollars of tries that no row tells of, because the run was killed before the next try."""
        stages: dict[str, tuple[Table, ...]] = {
            "edit": ("edit",),
            "judge": ("assessment", "control_pair"),
            "describe": ("feature",),
        }
        # What was done twice has a row that tells only of the first time.
        twice = f"status IN ('{REPEATED}', '{NONDETERMINISTIC}')"
        lost = float(self._connection.execute(f"SELECT TOTAL(cost) FROM attempt WHERE {twice}").fetchone()[0])
        for stage, tables in stages.items():
            # Two conditions, because each has its index.
            rows = " AND ".join(
                f"NOT EXISTS (SELECT 1 FROM {table} r WHERE r.key = a.key AND r.final = {final} AND r.at >= a.at)"
                for table in tables
                for final in (0, 1)
            )
            query = f"SELECT TOTAL(cost) FROM attempt a WHERE stage = ? AND cost > 0 AND NOT {twice} AND {rows}"
            lost += float(self._connection.execute(query, (stage,)).fetchone()[0])
        return lost
