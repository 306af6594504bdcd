"""One way for the data: audit → edits → judgements → estimates → report, each stage resumable."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from stillme import audit as audits
from stillme import estimates, report
from stillme.audit import Audit
from stillme.core.errors import StillmeError, StoreBusy, StoreUnwritable
from stillme.core.home import remember_run
from stillme.core.types import Redaction
from stillme.estimates.rows import EditState
from stillme.findings import calibration
from stillme.findings.tables.estimates import write_tables
from stillme.report.contents import report_data
from stillme.runs import Run, disputes, folder_of
from stillme.runs.control_pairs.reading import KnownAnswers
from stillme.runs.store import Store, Totals
from stillme.runs.store.summaries import Failure
from stillme.work.changes import adopt
from stillme.work.described import with_features
from stillme.work.recording import keep_files, record
from stillme.work.shards import Shard
from stillme.work.tally import Ended, Tally
from stillme.work.working import Conditions, Work, work

__all__ = ["Ended", "Name", "Options", "Summary", "run_audit", "run_stages"]

Name = Literal["edit", "judge", "estimate", "report"]

_REASONS = 5
_WORTH_SAYING = 300
"""Edits from which on estimates and a report take seconds."""


_NEXT_STEP = {
    Ended.OUTAGE: "run the same command when the other side works again",
    Ended.STOPPED: "correct what the reason names, then run the same command",
    Ended.OVER_BUDGET: "raise [budget] if its dollars are spent, then run the same command",
    Ended.INTERRUPTED: "run the same command to go on",
}


def _ignore(_: Any) -> None:
    pass


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """How to run, as opposed to what."""

    out: Path | None = None
    wait: float = 0.0
    allow_changes: bool = False
    only_failed: bool = False
    allow_failures: bool = False
    allow_unknown_cost: bool = False
    remake: bool = False
    shard: Shard | None = None
    limit: int | None = None
    """How many requests of each editor to do, to try an audit out; None for all."""
    watch: Callable[[Tally], None] = _ignore
    say: Callable[[str], None] = _ignore
    redact: Redaction = "none"
    """Whether the report shows portraits."""
    judge: str = ""
    """Whose scores the report's first screen and drawings show; empty for the ensemble's, else every judge's."""

    @property
    def conditions(self) -> Conditions:
        """For the stages that work."""
        return Conditions(
            wait=self.wait,
            allow_changes=self.allow_changes,
            only_failed=self.only_failed,
            allow_failures=self.allow_failures,
            allow_unknown_cost=self.allow_unknown_cost,
            remake=self.remake,
            shard=self.shard,
            limit=self.limit,
            watch=self.watch,
            say=self.say,
        )


@dataclass(slots=True, kw_only=True)
class Summary:
    """What a run did."""

    folder: Path
    ended: Ended = Ended.COMPLETE
    tallies: list[Tally] = field(default_factory=lambda: list[Tally]())
    cost: float = 0.0
    unpriced: int = 0
    """Results whose price is unknown, so that `cost` is only a part."""
    cost_text: str = ""
    budget: float | None = None
    to_retry: int = 0
    """Failures that a rerun would retry."""
    failures: tuple[Failure, ...] = ()
    known_answers: tuple[KnownAnswers, ...] = ()
    """What judges said to hidden pairs of known truth."""
    samples: tuple[str, ...] = ()
    """Of a limited run: every edit with its answers, a line each."""
    tables: list[Path] = field(default_factory=lambda: list[Path]())
    report: Path | None = None

    @property
    def finished(self) -> bool:
        """Whether the same command again would do nothing more."""
        return self.ended is Ended.COMPLETE and not self.to_retry

    def as_json(self) -> dict[str, Any]:
        """For `--json`."""
        return {
            "folder": str(self.folder),
            "ended": str(self.ended),
            "stages": [
                {
                    "name": tally.name,
                    "total": tally.total,
                    "already": tally.already,
                    **tally.counts,
                    "seconds": round(tally.elapsed, 3),
                    "ended": str(tally.ended or Ended.INTERRUPTED),
                    "reason": tally.reason,
                }
                for tally in self.tallies
            ],
            "to_retry": self.to_retry,
            "failures": [
                {"stage": failure.stage, "reason": failure.reason, "count": failure.count} for failure in self.failures
            ],
            "known_answers": [answers.as_json() for answers in self.known_answers],
            "alarms": [answers.alarm for answers in self.known_answers if answers.alarm],
            "samples": list(self.samples),
            "cost": self.cost,
            "unpriced": self.unpriced,
            "tables": [str(path) for path in self.tables],
            "report": str(self.report) if self.report else None,
        }

    def as_text(self) -> str:
        """For people."""
        lines: list[str] = []
        for tally in self.tallies:
            counts = ", ".join(f"{count:,} {word}" for word, count in sorted(tally.counts.items())) or "nothing to do"
            already = f"; {tally.already:,} were there" if tally.already else ""
            lines.append(f"{tally.name}: {counts}{already}")
            if tally.reason:
                lines.append(f"  {tally.ended or Ended.STOPPED}: {tally.reason.rstrip('.')}.")
        lines += [f"  {failure}" for failure in self.failures[:_REASONS]]
        if len(self.failures) > _REASONS:
            lines.append(f"  and {len(self.failures) - _REASONS:,} more reasons; `stillme export` lists all")
        lines += self.samples
        lines += [line for answers in self.known_answers for line in answers.lines()]
        if self.cost or self.unpriced:
            limit = f" of ${self.budget:,.2f}" if self.budget is not None and not self.unpriced else ""
            lines.append(f"cost so far: {self.cost_text}{limit}")
        if self.tables:
            lines.append(f"tables: {self.tables[0].parent}")
        if self.report:
            lines.append(f"report: {self.report}")
        if self.ended is not Ended.COMPLETE:
            lines.append(f"{str(self.ended).capitalize()}. Everything finished is saved; {_NEXT_STEP[self.ended]}.")
        elif self.to_retry:
            lines.append(f"{self.to_retry:,} failed; run the same command to try them again.")
        return "\n".join(lines)


def run_stages(path: Path, stages: Sequence[Name], options: Options) -> Summary:
    """Do the stages on the audit at `path`. Work needs its plugins and inputs; estimates and reports only the run."""
    works: list[Work] = [name for name in ("edit", "judge") if name in stages]
    folder = folder_of(path, options.out) if not works else None
    if folder is None:
        audit = audits.load(path, out=options.out)
        if options.shard and options.out is None:
            audit = audit.kept_in(options.shard.folder(audit))
        only_work = options.shard is not None or options.limit is not None
        return _after_work(audit, works, works if only_work else stages, options)
    if not Store.exists(folder):
        raise StillmeError(f"{folder} has no run yet. `stillme run {path}` starts it.")
    _adopt(folder, options)
    summary = Summary(folder=folder)
    # A run that goes on meanwhile does not change what is read.
    with Run.open(folder) as run, run.store.snapshot():
        _sum_up(summary, run.totals())
        _estimate(run, stages, options, summary)
    return summary


def run_audit(audit: Audit, options: Options | None = None) -> Summary:
    """Do all stages of an audit that was built in Python."""
    return _after_work(audit, ["edit", "judge"], ("edit", "judge", "estimate", "report"), options or Options())


def _after_work(audit: Audit, works: Sequence[Work], stages: Sequence[Name], options: Options) -> Summary:
    summary = Summary(folder=audit.folder, budget=audit.config.budget.dollars)
    worked = work(audit, works, options.conditions, calibration.known_to_this_machine(audit))
    if "edit" in works:
        remember_run(audit.folder)
    summary.ended, summary.tallies, summary.failures = worked.ended, worked.tallies, worked.failures
    summary.known_answers, summary.samples = worked.known_answers, worked.samples
    _sum_up(summary, worked.totals)
    if summary.ended is Ended.COMPLETE and {"estimate", "report"} & set(stages):
        with Run.open(audit.folder) as run:
            _estimate(run, stages, options, summary)
    return summary


def _sum_up(summary: Summary, totals: Totals) -> None:
    summary.cost, summary.unpriced, summary.cost_text = totals.cost, totals.unpriced, totals.cost_text
    summary.to_retry = totals.to_retry


def _adopt(folder: Path, options: Options) -> None:
    """Take over what audit.toml says now, where that changes no row; else say what was recorded and is used."""
    try:
        with Store.writing(folder, wait=options.wait) as store:
            if options.allow_changes:
                audit = with_features(audits.load(folder, out=folder, ready=False), store)
                record(audit, store, calibration.known_to_this_machine(audit), to_read_only=True)
                keep_files(audit)
                return
            reason = adopt(folder, store, calibration.known_to_this_machine)
    except (StoreBusy, StoreUnwritable, OSError):
        return  # another process is writing, or the folder is read-only: the recorded design is read as it is
    if reason:
        options.say(f"{reason}\nThe recorded configuration is used.")


def _estimate(run: Run, stages: Sequence[Name], options: Options, summary: Summary) -> None:
    edits = len(run.results.edits)
    if edits >= _WORTH_SAYING:
        made = int((run.results.edits.state == EditState.EDITED).sum())
        options.say(f"Estimating from {made:,} edits of {edits:,} requests …")
    estimated = estimates.estimate(run.results.edits, run.results.scores, run.settings)
    if "estimate" in stages:
        summary.tables = write_tables(estimated, run.folder, run.settings, calibration.standing_of(run))
        summary.tables += disputes.write_judges(run)
    if "report" in stages:
        if edits >= _WORTH_SAYING:
            options.say("Writing the report …")
        data = report_data(run, estimated, redact=options.redact, judge=options.judge)
        summary.report = report.write(run.folder, data)
        if reason := data.unreachable():
            options.say(f"The report lacks pictures. {reason}")
