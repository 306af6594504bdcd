"""One way for the data: audit → edits → judgements → estimates → report, each stage resumable."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Literal

from stillme import audit as audits
from stillme import estimates, report
from stillme.audit import Audit
from stillme.core.errors import StillmeError, StoreBusy, StoreUnwritable
from stillme.core.files import remember_run
from stillme.estimates.rows import EditState
from stillme.findings import calibration
from stillme.findings.tables.estimates import write_tables
from stillme.report.data import report_data
from stillme.runs import RecordedRun, behaviour, folder_of
from stillme.runs.store import Store
from stillme.work.changes import adopt
from stillme.work.features import with_features
from stillme.work.options import RunOptions
from stillme.work.recording import keep_files, record
from stillme.work.result import RunResult
from stillme.work.stages import Work, work
from stillme.work.tally import Ended

__all__ = ["Ended", "Name", "RunOptions", "RunResult", "run_audit", "run_stages"]

Name = Literal["edit", "judge", "estimate", "report"]

_WORTH_SAYING = 300
"""Edits from which on estimates and a report take seconds."""


def run_stages(path: Path, stages: Sequence[Name], options: RunOptions | None = None) -> RunResult:
    """Do the stages on the audit at `path`. Work needs its plugins and inputs; estimates and reports only the run."""
    options = options or RunOptions()
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
    # A run that goes on meanwhile does not change what is read.
    with RecordedRun.open(folder) as run, run.store.snapshot():
        result = RunResult(folder=folder, totals=run.totals())
        _estimate(run, stages, options, result)
    return result


def run_audit(audit: Audit, options: RunOptions | None = None) -> RunResult:
    """Do all stages of an audit that was built in Python."""
    return _after_work(audit, ["edit", "judge"], ("edit", "judge", "estimate", "report"), options or RunOptions())


def _after_work(audit: Audit, works: Sequence[Work], stages: Sequence[Name], options: RunOptions) -> RunResult:
    result = work(audit, works, options, calibration.known_to_this_machine(audit))
    if "edit" in works:
        remember_run(audit.folder)
    if result.ended is Ended.COMPLETE and {"estimate", "report"} & set(stages):
        with RecordedRun.open(audit.folder) as run:
            _estimate(run, stages, options, result)
    return result


def _adopt(folder: Path, options: RunOptions) -> None:
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


def _estimate(run: RecordedRun, stages: Sequence[Name], options: RunOptions, result: RunResult) -> None:
    edits = len(run.results.edits)
    if edits >= _WORTH_SAYING:
        made = int((run.results.edits.state == EditState.EDITED).sum())
        options.say(f"Estimating from {made:,} edits of {edits:,} requests …")
    estimated = estimates.estimate(run.results.edits, run.results.scores, run.settings)
    if "estimate" in stages:
        result.tables = write_tables(estimated, run.folder, run.settings, calibration.standing_of(run))
        result.tables += behaviour.write_judges(run)
    if "report" in stages:
        if edits >= _WORTH_SAYING:
            options.say("Writing the report …")
        data = report_data(run, estimated, redact=options.redact, judge=options.judge)
        result.report = report.write(run.folder, data)
        if reason := data.unreachable():
            options.say(f"The report lacks pictures. {reason}")
