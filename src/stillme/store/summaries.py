"""Queries over a whole ledger: what it holds, what it cost, who said what."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import Literal

from stillme.types import Json

Work = Literal["edit", "assessment"]
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
    seconds: float
    cost: float

    @property
    def to_retry(self) -> int:
        """Failures that a rerun would retry."""
        return self.edits.get("to retry", 0) + self.assessments_to_retry + self.features_to_retry


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


@dataclass(frozen=True, slots=True, kw_only=True)
class Spoken:
    """What an editor or judge wrote about an edit."""

    edit: str
    judge: str
    """The key of the judge's specification; empty for the editor itself."""
    axis: str
    text: str


class Summaries:
    """Read-only questions to one ledger."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection

    def has(self, table: str) -> bool:
        """Whether a ledger that is only read, and so not migrated, has the table."""
        query = "SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = ?"
        return self._connection.execute(query, (table,)).fetchone() is not None

    def totals(self) -> Totals:
        """Counts, seconds and dollars of the whole run."""
        edits = {
            ("to retry" if not final else outcome): count
            for outcome, final, count in self._connection.execute(
                "SELECT outcome, final, COUNT(DISTINCT key) FROM edit e WHERE final = 1 OR NOT EXISTS "
                "(SELECT 1 FROM edit f WHERE f.key = e.key AND f.final = 1) GROUP BY outcome, final ORDER BY outcome"
            )
        }
        worked = ("edit", "assessment", *(["feature"] if self.has("feature") else []))
        tables = " UNION ALL ".join(f"SELECT seconds, cost FROM {table}" for table in worked)
        seconds, cost = self._connection.execute(f"SELECT TOTAL(seconds), TOTAL(cost) FROM ({tables})").fetchone()
        (assessments,) = self._connection.execute("SELECT COUNT(*) FROM assessment WHERE final = 1").fetchone()
        return Totals(
            edits=edits,
            assessments=assessments,
            assessments_to_retry=self._to_retry("assessment"),
            features_to_retry=self._to_retry("feature") if "feature" in worked else 0,
            seconds=seconds,
            cost=cost,
        )

    def failures(self) -> list[Failure]:
        """Why edits and judgements failed that have not succeeded since; the most frequent first."""
        edits = self._connection.execute(
            "SELECT 'edit', e.message, COUNT(*) FROM edit e JOIN (SELECT MAX(id) AS id FROM edit GROUP BY key) last "
            "ON last.id = e.id WHERE e.outcome = 'failed' GROUP BY e.message"
        )
        judgements = self._connection.execute(
            "SELECT 'judge', j.reason, COUNT(DISTINCT a.key) FROM assessment a "
            "JOIN (SELECT MAX(id) AS id FROM assessment GROUP BY key) last ON last.id = a.id "
            "JOIN judgement j ON j.assessment = a.id WHERE j.outcome = 'failed' GROUP BY j.reason"
        )
        counted = [Failure(stage=stage, reason=reason or "", count=count) for stage, reason, count in edits]
        counted += [Failure(stage=stage, reason=reason or "", count=count) for stage, reason, count in judgements]
        return sorted(counted, key=lambda failure: (-failure.count, failure.reason))

    def count_edits(self) -> int:
        """Requests that need no more work, of any configuration."""
        return int(self._connection.execute("SELECT COUNT(*) FROM edit WHERE final = 1").fetchone()[0])

    def count_pictures(self, editors: Sequence[str]) -> int:
        """Edits by these editor specifications that have a picture."""
        marks = ",".join("?" * len(editors))
        query = f"SELECT COUNT(*) FROM edit WHERE image IS NOT NULL AND editor IN ({marks})"
        return int(self._connection.execute(query, editors).fetchone()[0])

    def newest(self) -> tuple[int, int]:
        """The numbers of the last edit and the last assessment: they grow with every row."""
        query = "SELECT (SELECT COALESCE(MAX(id), 0) FROM edit), (SELECT COALESCE(MAX(id), 0) FROM assessment)"
        edit, assessment = self._connection.execute(query).fetchone()
        return edit, assessment

    def configurations(self) -> Iterator[dict[str, Json]]:
        """Every configuration that ever wrote rows here, oldest first."""
        for hash_, resolved, version, at in self._connection.execute(
            "SELECT hash, resolved, stillme, at FROM audit ORDER BY rowid"
        ):
            yield {"hash": hash_, "resolved": json.loads(resolved), "stillme": version, "at": at}

    def efforts(self, work: Work) -> dict[str, Effort]:
        """By the key of an editor's or judge's specification: what its work took."""
        rows = self._connection.execute(
            f"SELECT {_WORKER[work]}, COUNT(DISTINCT key), SUM(attempts), SUM(seconds), SUM(cost) "
            f"FROM {work} GROUP BY {_WORKER[work]}"
        )
        return {
            spec: Effort(calls=calls, attempts=attempts, seconds=seconds, dollars=dollars)
            for spec, calls, attempts, seconds, dollars in rows
        }

    def averages(self, work: Work) -> Iterator[tuple[str, str, float, float]]:
        """`(specification's key, plugin, seconds, dollars)` of an average finished piece of work."""
        yield from self._connection.execute(
            f"SELECT s.key, s.use, AVG(w.seconds), AVG(w.cost) FROM {work} w JOIN spec s ON s.key = w.{_WORKER[work]} "
            "WHERE w.final = 1 GROUP BY s.key"
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

    def keys_by_cell(self) -> dict[tuple[str, str, str, str, int], str]:
        """Keys of edits by `(editor's specification, portraits, prompt, arm, seed)`, the latest of each.

        For ledgers from before requests were recorded.
        """
        rows = self._connection.execute(
            "SELECT e.editor, (SELECT json_group_array(p.id) FROM json_each(e.portraits) j "
            "JOIN portrait p ON p.key = j.value), t.id, e.arm, e.seed, e.key "
            "FROM edit e JOIN prompt t ON t.key = e.prompt ORDER BY e.id"
        )
        return {
            (editor, json.dumps(json.loads(portraits)), prompt, arm, seed): key
            for editor, portraits, prompt, arm, seed, key in rows
        }

    def _to_retry(self, table: str) -> int:
        query = (
            f"SELECT COUNT(DISTINCT key) FROM {table} t WHERE final = 0 AND NOT EXISTS "
            f"(SELECT 1 FROM {table} f WHERE f.key = t.key AND f.final = 1)"
        )
        return int(self._connection.execute(query).fetchone()[0])
