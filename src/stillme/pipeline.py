"""One way for the data: audit → edits → judgements → estimates → report, each stage resumable."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import tomli_w

from stillme import __version__, audit, calibration, edits, estimates, judgements, known_answers, report, results
from stillme.audit import Audit, NamedJudge
from stillme.audit.load import FILE, RESOLVED
from stillme.errors import StillmeError
from stillme.protocols import Vouched
from stillme.store import Store
from stillme.types import Estimate
from stillme.work import Budget, Ended, Stop, Tally, Terms

__all__ = ["Ended", "Name", "Options", "Summary", "run_stages"]

Name = Literal["edit", "judge", "estimate", "report"]


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
    loaded = audit.load(path, out=options.out, ready=works)
    if not works and not Store.exists(loaded.folder):
        raise StillmeError(f"{loaded.folder} has no run yet. `stillme run {path}` starts it.")
    with Store.writing(loaded.folder, wait=options.wait) as store, Stop().on_interrupt(options.say) as stop:
        note = audit.require_unchanged(loaded, store, accept=options.accept_changes)
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
        for name, work in (("edit", edits.edit), ("judge", judgements.judge)):
            if name in stages and self._summary.ended is Ended.COMPLETE:
                ended, tallies = work(self._audit, self._store, terms)
                self._summary.ended = ended
                self._summary.tallies += tallies
        totals = self._store.totals()
        self._summary.cost = totals.cost
        self._summary.to_retry = totals.edits.get("to retry", 0) + totals.assessments_to_retry
        if self._summary.ended is Ended.COMPLETE and {"estimate", "report"} & set(stages):
            self._estimate(stages)
        return self._summary

    def _estimate(self, stages: Sequence[Name]) -> None:
        gathered = results.gather(self._audit, self._store)
        found = estimates.estimate(gathered.edits, gathered.scores, settings_of(self._audit))
        if "estimate" in stages:
            self._summary.tables = estimates.write_tables(found, self._audit.folder, standing_of(self._audit))
        if "report" in stages:
            self._summary.report = write_report(self._audit, self._store, gathered, found)


def settings_of(loaded: Audit) -> estimates.Settings:
    """The audit's estimates section as the estimates room wants it."""
    section = loaded.config.estimates
    return estimates.Settings(
        factors=loaded.factors,
        reference=section.reference,
        confidence=section.confidence,
        replicates=section.replicates,
        seed=section.seed,
    )


def standing_of(loaded: Audit) -> estimates.Standing:
    """What calibration says of the audit's judges; those never calibrated are absent."""
    found = {named.name: calibration.find(named.judge.spec) for named in loaded.judges}
    return {
        name: {axis: str(verdict) for axis, verdict in known.verdicts.items()} for name, known in found.items() if known
    }


def write_report(loaded: Audit, store: Store, gathered: results.Results, found: Sequence[Estimate]) -> Path:
    """Write report.html into the run folder."""
    return report.write(
        loaded.folder,
        report.ReportData(
            title=loaded.config.title,
            audit_hash=loaded.hash,
            version=__version__,
            edits=gathered.edits,
            scores=gathered.scores,
            estimates=tuple(found),
            settings=settings_of(loaded),
            image_path=store.pictures.find,
            editors=tuple(report.Described(name=n.name, text=_described(n.editor)) for n in loaded.editors),
            judges=tuple(_described_judge(named) for named in loaded.judges),
            standing=standing_of(loaded),
            badges=("synthetic portraits",) if loaded.config.portraits.source == "synthetic" else (),
            planted=tuple(known_answers.gaps(loaded, gathered)),
        ),
    )


def _described_judge(named: NamedJudge) -> report.Described:
    cards = tuple(named.judge.cards()) if isinstance(named.judge, Vouched) else ()
    return report.Described(name=named.name, text=_described(named.judge), cards=cards)


def _described(plugin: object) -> str:
    return (type(plugin).__doc__ or "").partition("\n")[0]


def _keep_resolved(loaded: Audit, store: Store) -> None:
    store.record_audit(loaded.hash, loaded.resolved)
    header = f"# {loaded.config.title}: the audit as resolved by stillme {__version__}, hash {loaded.hash}\n"
    (loaded.folder / RESOLVED).write_text(header + tomli_w.dumps(loaded.resolved), "utf-8")
    if loaded.file.resolve() != (loaded.folder / FILE).resolve():
        # A run kept elsewhere must be usable without the file that it came from.
        (loaded.folder / FILE).write_text(f"# From {loaded.file}\n" + tomli_w.dumps(loaded.as_input()), "utf-8")
