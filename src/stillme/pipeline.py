"""One way for the data: audit → edits → judgements → estimates → report, each stage resumable."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import tomli_w

from stillme import __version__, estimates, report, results
from stillme.audit import Audit
from stillme.audit.load import FILE, RESOLVED
from stillme.calibration import standing_of
from stillme.errors import StillmeError
from stillme.report import contents as reporting
from stillme.report.data import Redaction
from stillme.report.manuscript import Format, Written, write_figures
from stillme.results import disputes, settings_of
from stillme.stages import changes, described, edits, features, judgements
from stillme.stages.loop import Budget, Ended, Stop, Tally, Terms
from stillme.store import Store
from stillme.types import Estimate

__all__ = ["Ended", "Name", "Options", "Summary", "run_stages"]

Name = Literal["edit", "judge", "estimate", "report"]

FIGURES = "figures"
"""The folder of figures for a manuscript, in the run folder."""


def _ignore(_: Any) -> None:
    pass


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """How to run, as opposed to what."""

    out: Path | None = None
    wait: float = 0.0
    accept_changes: bool = False
    watch: Callable[[Tally], None] = _ignore
    say: Callable[[str], None] = _ignore
    redact: Redaction = "none"
    """Whether the report and its figures show portraits."""
    figures: tuple[Format, ...] = ()
    """Formats in which figures for a manuscript are written beside the report."""


@dataclass(slots=True, kw_only=True)
class Summary:
    """What a run did."""

    folder: Path
    ended: Ended = Ended.COMPLETE
    tallies: list[Tally] = field(default_factory=lambda: list[Tally]())
    cost: float = 0.0
    to_retry: int = 0
    """Failures that a rerun would retry."""
    tables: list[Path] = field(default_factory=lambda: list[Path]())
    report: Path | None = None
    figures: Written | None = None

    def as_json(self) -> dict[str, Any]:
        """For `--json`."""
        return {
            "folder": str(self.folder),
            "ended": str(self.ended),
            "stages": [
                {"name": t.name, "total": t.total, "already": t.already, **t.counts, "seconds": round(t.elapsed, 3)}
                for t in self.tallies
            ],
            "to_retry": self.to_retry,
            "cost": self.cost,
            "tables": [str(path) for path in self.tables],
            "report": str(self.report) if self.report else None,
            "figures": [str(path) for path in self.figures.files] if self.figures else [],
            "figures_skipped": dict(self.figures.skipped) if self.figures else {},
        }

    def as_text(self) -> str:
        """For people."""
        lines: list[str] = []
        for tally in self.tallies:
            counts = ", ".join(f"{count:,} {word}" for word, count in sorted(tally.counts.items())) or "nothing to do"
            already = f"; {tally.already:,} were there" if tally.already else ""
            lines.append(f"{tally.name}: {counts}{already}")
        if self.cost:
            lines.append(f"cost so far: ${self.cost:,.2f}")
        if self.tables:
            lines.append(f"tables: {self.tables[0].parent}")
        if self.report:
            lines.append(f"report: {self.report}")
        if self.figures:
            where = f" in {self.figures.files[0].parent}" if self.figures.files else ""
            lines.append(f"figures: {len(self.figures.files)}{where}")
            lines += [f"  without {name}: {reason}" for name, reason in self.figures.skipped]
        if self.ended is not Ended.COMPLETE:
            lines.append(
                f"{str(self.ended).capitalize()}. Everything finished is saved; run the same command to go on"
                + (", after raising [budget] if its dollars are spent." if self.ended is Ended.OVER_BUDGET else ".")
            )
        elif self.to_retry:
            lines.append(f"{self.to_retry:,} failed in a way that may pass; run the same command to retry them.")
        return "\n".join(lines)


def run_stages(path: Path, stages: Sequence[Name], options: Options) -> Summary:
    """Load the audit at `path`, check it, and run the stages on it."""
    works = bool({"edit", "judge"} & set(stages))
    loaded = described.load(path, out=options.out, ready=works)
    if not works and not Store.exists(loaded.folder):
        raise StillmeError(f"{loaded.folder} has no run yet. `stillme run {path}` starts it.")
    with Store.writing(loaded.folder, wait=options.wait) as store, Stop().on_interrupt(options.say) as stop:
        note = changes.require_unchanged(loaded, store, accept=options.accept_changes)
        if note:
            options.say(note)
        _keep_resolved(loaded, store)
        return _Run(loaded, store, stop, options).stages(stages)


class _Run:
    def __init__(self, loaded: Audit, store: Store, stop: Stop, options: Options) -> None:
        self._audit, self._store, self._stop, self._options = loaded, store, stop, options
        self._summary = Summary(folder=loaded.folder)

    def stages(self, stages: Sequence[Name]) -> Summary:
        budget = self._audit.config.budget
        limit = Budget(dollars=budget.dollars, seconds=budget.minutes * 60 if budget.minutes else None)
        terms = Terms(budget=limit, stop=self._stop, watch=self._options.watch)
        if "edit" in stages and self._audit.extractors:
            self._describe(terms)
        for name, work in (("edit", edits.edit), ("judge", judgements.judge)):
            if name in stages and self._summary.ended is Ended.COMPLETE:
                ended, tallies = work(self._audit, self._store, terms)
                self._summary.ended = ended
                self._summary.tallies += tallies
        totals = self._store.totals()
        self._summary.cost = totals.cost
        self._summary.to_retry = (
            totals.edits.get("to retry", 0) + totals.assessments_to_retry + totals.features_to_retry
        )
        if self._summary.ended is Ended.COMPLETE and {"estimate", "report"} & set(stages):
            self._estimate(stages)
        return self._summary

    def _describe(self, terms: Terms) -> None:
        """Put the portraits into words, for the arms whose instructions need them."""
        self._summary.ended, tallies = features.extract(self._audit, self._store, terms)
        self._summary.tallies += tallies
        self._audit = described.with_features(self._audit, self._store)
        if note := features.without_prompt(self._audit):
            self._options.say(note)
        features.refuse_truncation(self._audit)

    def _estimate(self, stages: Sequence[Name]) -> None:
        gathered = results.gather(self._audit, self._store)
        found = estimates.estimate(gathered.edits, gathered.scores, settings_of(self._audit))
        if "estimate" in stages:
            self._summary.tables = estimates.write_tables(found, self._audit.folder, standing_of(self._audit))
            self._summary.tables += disputes.write_judges(self._audit, gathered, settings_of(self._audit))
        if "report" in stages:
            data = report_data_of(self._audit, self._store, gathered, found, redact=self._options.redact)
            self._summary.report = report.write(self._audit.folder, data)
            if self._options.figures:
                where = self._audit.folder / FIGURES
                self._summary.figures = write_figures(where, data, self._options.figures)


def report_data_of(
    loaded: Audit,
    store: Store,
    gathered: results.Results,
    found: Sequence[Estimate],
    *,
    redact: Redaction = "none",
) -> report.ReportData:
    """What the report of these rows shows."""
    return reporting.report_data(
        loaded, store, gathered, found, settings=settings_of(loaded), standing=standing_of(loaded), redact=redact
    )


def _keep_resolved(loaded: Audit, store: Store) -> None:
    store.record_audit(loaded.hash, loaded.resolved)
    header = f"# {loaded.config.title}: the audit as resolved by stillme {__version__}, hash {loaded.hash}\n"
    (loaded.folder / RESOLVED).write_text(header + tomli_w.dumps(loaded.resolved), "utf-8")
    if loaded.file.resolve() != (loaded.folder / FILE).resolve():
        # A run kept elsewhere must be usable without the file that it came from.
        (loaded.folder / FILE).write_text(f"# From {loaded.file}\n" + tomli_w.dumps(loaded.as_input()), "utf-8")
