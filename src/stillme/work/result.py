"""What a run did: counts by stage, failures, cost, and where its tables and report are."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from stillme.core.types import plain
from stillme.runs.control_pairs.reading import ControlPairAnswers
from stillme.runs.status import shortened
from stillme.runs.store import Totals
from stillme.runs.store.summaries import Failure
from stillme.work.tally import Ended, Tally

_NEXT_STEP = {
    Ended.OUTAGE: "run the same command when the other side works again",
    Ended.STOPPED: "correct what the reason names, then run the same command",
    Ended.OVER_BUDGET: "raise [budget] if its dollars are spent, then run the same command",
    Ended.INTERRUPTED: "run the same command to go on",
}


@dataclass(slots=True, kw_only=True)
class RunResult:
    """What a run did."""

    folder: Path
    totals: Totals
    """Of the run, what earlier commands did included."""
    budget: float | None = None
    ended: Ended = Ended.COMPLETE
    tallies: list[Tally] = field(default_factory=lambda: list[Tally]())
    failures: tuple[Failure, ...] = ()
    """Why work failed that has not succeeded since."""
    control_pairs: tuple[ControlPairAnswers, ...] = ()
    """What judges said to hidden pairs of known truth."""
    samples: tuple[str, ...] = ()
    """Of a limited run: every edit with its answers, a line each."""
    tables: list[Path] = field(default_factory=lambda: list[Path]())
    report: Path | None = None

    @property
    def finished(self) -> bool:
        """Whether the same command again would do nothing more."""
        return self.ended is Ended.COMPLETE and not self.totals.to_retry

    def as_json(self) -> dict[str, Any]:
        """For `--json`."""
        return plain(
            {
                "folder": self.folder,
                "ended": self.ended,
                "stages": [
                    {
                        "name": tally.name,
                        "total": tally.total,
                        "already": tally.already,
                        **tally.counts,
                        "seconds": round(tally.elapsed, 3),
                        "ended": tally.ended or Ended.INTERRUPTED,
                        "reason": tally.reason,
                    }
                    for tally in self.tallies
                ],
                "to_retry": self.totals.to_retry,
                "failures": self.failures,
                "control_pairs": self.control_pairs,
                "alarms": [answers.alarm for answers in self.control_pairs if answers.alarm],
                "samples": self.samples,
                "cost": self.totals.cost,
                "unpriced": self.totals.unpriced,
                "tables": self.tables,
                "report": self.report,
            }
        )

    def as_text(self) -> str:
        """For people."""
        lines: list[str] = []
        for tally in self.tallies:
            counts = ", ".join(f"{count:,} {word}" for word, count in sorted(tally.counts.items())) or "nothing new"
            already = f"; {tally.already:,} reused from an earlier run" if tally.already else ""
            lines.append(f"{tally.name}: {counts}{already}")
            if tally.reason:
                lines.append(f"  {tally.ended or Ended.STOPPED}: {tally.reason.rstrip('.')}.")
        lines += shortened(self.failures)
        lines += self.samples
        lines += [line for answers in self.control_pairs for line in answers.lines()]
        if self.totals.cost or self.totals.unpriced:
            limit = f" of ${self.budget:,.2f}" if self.budget is not None and not self.totals.unpriced else ""
            lines.append(f"cost so far: {self.totals.cost_text}{limit}")
        if self.tables:
            lines.append(f"tables: {self.tables[0].parent}")
        if self.report:
            lines.append(f"report: {self.report}")
        if self.ended is not Ended.COMPLETE:
            lines.append(f"{str(self.ended).capitalize()}. Everything finished is saved; {_NEXT_STEP[self.ended]}.")
        elif self.totals.to_retry:
            lines.append(f"{self.totals.to_retry:,} failed; run the same command to try them again.")
        return "\n".join(lines)
