"""stillme from Python: open or make a run, and look at one pair, one picture, or rows of your own.

import stillme

def edit(image, instruction, seed):
return my_pipeline(image, instruction)

run = stillme.run(stillme.Audit(editors=[edit]))
run.estimates().to_frame()
"""

from __future__ import annotations

import html
import sys
import tempfile
import time
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from stillme import audit as audits
from stillme import estimates as numbers
from stillme.api.frames import Rows, columns_of, headline_rows, records_of
from stillme.api.pipeline import Ended, RunOptions, RunResult, run_audit
from stillme.audit.building import build, function_judge
from stillme.core import images
from stillme.core.errors import StillmeError
from stillme.core.files import is_bundle
from stillme.estimates import Settings, Standing
from stillme.findings.calibration import standing_of
from stillme.findings.evidence import unpacked_run
from stillme.findings.single import check as checking
from stillme.findings.single import mitigate
from stillme.findings.tables.estimates import row_of
from stillme.findings.tables.paper import NUMBERS, Chosen, PaperTable, make_tables
from stillme.instruments.measurements import Measurements
from stillme.runs import RecordedRun, folder_of
from stillme.runs.store.exported import EDITS, JUDGEMENTS, Table, rows_of, with_names

if TYPE_CHECKING:
    from stillme.core.types import Estimate
    from stillme.report.data import ReportData
    from stillme.report.figure_files import Plot
    from stillme.report.notebook import Examples
    from stillme.runs.readings import Readings
    from stillme.work.tally import Tally

__all__ = [
    "Audit",
    "Run",
    "check",
    "estimate",
    "feature_prompt",
    "function_judge",
    "measure",
    "open",
    "run",
]

_PROGRESS_SECONDS = 0.2


class Run(RecordedRun):
    """A run as it was recorded, with its rows and numbers ready for a notebook."""

    @property
    def edits(self) -> Rows:
        """Every edit ever written to the run."""
        return self._rows("Edits", EDITS)

    @property
    def judgements(self) -> Rows:
        """Every answer of every judge, one row an axis."""
        return self._rows("Judgements", JUDGEMENTS)

    def estimates(self, *, all: bool = False) -> Rows:  # noqa: A002
        """The headline quantities of every editor: a row for everyone and one for the largest gap between groups.

        `all=True` gives every mean and rate, by group and as contrast too, with every column of estimates.csv.
        """
        if all:
            return self._numbers("Estimates", lambda *_: self._estimated)
        return Rows(
            f"Headline estimates of {self.title}", lambda: headline_rows(self._estimated, self._standing, self.settings)
        )

    def contrasts(self) -> Rows:
        """Every group against the reference, the rest and each other: difference, ratio, p."""
        against = ("reference", "rest", "pairs")
        return self._numbers("Contrasts", lambda *columns: numbers.contrasts(*columns, against=against))

    def transitions(self) -> Rows:
        """What unedited portraits are read as, and what their edits are read as; empty without [readings]."""
        return self._readings("Transitions", lambda readings: readings.transitions)

    def shifts(self) -> Rows:
        """How much more often a group is read as another after the edit than before; empty without [readings]."""
        return self._readings("Shifts", lambda readings: readings.shifts(self.settings.confidence))

    def tables(self, *chosen: int, by: str = "", judge: str = "") -> list[PaperTable]:
        """The paper's tables by number, for this run; all that there are by default."""
        return make_tables(self, Chosen(numbers=chosen or NUMBERS, factor=by, judge=judge))

    def report(self) -> Path:
        """Write report.html into the run folder, and return its path."""
        from stillme import report as reports

        return reports.write(self.folder, self._shown())

    def plot(self, quantity: str, by: str = "", *, judge: str = "") -> Plot:
        """A quantity by group, a panel an editor, as the report draws it: `run.plot("skin_lightened", by="race")`.

        It shows itself in a notebook; `.save("figure.svg")` writes it.
        """
        from stillme.report.figure_files import plot

        return plot(self._shown(judge), quantity, by)

    def examples(self, quantity: str = "", *, editor: str = "", count: int = 6, **labels: str) -> Examples:
        """The worst edits beside their sources: `run.examples("skin_lightened", editor="biased", race="Black")`."""
        from stillme.report.notebook import examples

        return examples(self._shown(), quantity, editor=editor, count=count, labels=labels)

    def figures(self, to: str | Path | None = None) -> list[Path]:
        """Write all drawings of the report as SVG; by default into `figures` of the run."""
        from stillme.report.figure_files import write_figures

        return write_figures(Path(to) if to else self.folder / "figures", self._shown())

    @cached_property
    def _estimated(self) -> list[Estimate]:
        return list(numbers.estimate(self.results.edits, self.results.scores, self.settings))

    @cached_property
    def _standing(self) -> Standing:
        return standing_of(self)

    @cached_property
    def _by_judge(self) -> dict[str, ReportData]:
        return {}

    def _shown(self, judge: str = "") -> ReportData:
        """What the report is made of, computed once."""
        from stillme.report.data import report_data

        if judge not in self._by_judge:
            self._by_judge[judge] = report_data(self, self._estimated, judge=judge)
        return self._by_judge[judge]

    def _rows(self, title: str, table: Table) -> Rows:
        return Rows(f"{title} of {self.title}", lambda: rows_of(self.store, with_names(table)))

    def _readings(self, title: str, of: Callable[[Readings], Sequence[object]]) -> Rows:
        return Rows(f"{title} of {self.title}", lambda: map(row_of, of(self.readings) if self.readings else ()))

    def _numbers(self, title: str, compute: Callable[..., Sequence[object]]) -> Rows:
        def rows() -> Iterator[Mapping[str, object]]:
            for result in compute(self.results.edits, self.results.scores, self.settings):
                row = row_of(result)
                note = numbers.mark(self._standing, str(row.get("judge", "")), str(row.get("quantity", "")))
                yield row | {"judge_note": note}

        return Rows(f"{title} of {self.title}", rows)

    def _repr_html_(self) -> str:
        from stillme.report.notebook import summary

        return summary(self._shown())


Audit = build
"""An audit built in Python: the same object that audit.toml becomes; `docs/python.md` has every keyword."""


def open(path: str | Path) -> Run:  # noqa: A001
    """A run: its folder, or a bundle that `stillme export --bundle` sealed. Needs no plugin, input or key."""
    path = Path(path)
    if is_bundle(path):
        scratch = tempfile.TemporaryDirectory(prefix="stillme-bundle-")
        try:
            opened = _opened(unpacked_run(path, Path(scratch.name)))
        except BaseException:
            scratch.cleanup()
            raise
        weakref.finalize(opened, scratch.cleanup)
        return opened
    return _opened(folder_of(path))


def run(
    audit: audits.Audit | str | Path,
    *,
    watch: Callable[[Any], None] | None = None,
    say: Callable[[str], None] = print,
    allow_changes: bool = False,
) -> Run:
    """Edit, judge, estimate and report, resuming where an earlier run stopped; the run when it is complete.

    `audit` is built by `Audit`, or the path of an audit.toml. Raises if the run could not be completed: what was
    finished is saved, and the same call goes on. A notebook shows the progress; `watch` gets it instead.
    """
    built = audits.load(Path(audit)) if isinstance(audit, str | Path) else audit
    options = RunOptions(watch=watch or _notebook_progress(), say=say, allow_changes=allow_changes)
    summary: RunResult = run_audit(built, options)
    if summary.ended is not Ended.COMPLETE:
        raise StillmeError(f"The run ended early ({summary.ended}). What is finished is saved; run it again to go on.")
    if summary.totals.to_retry:
        say(f"{summary.totals.to_retry:,} failed; run it again to retry them.")
    return _opened(built.folder)


def measure(source: str | Path | bytes | Any, edited: str | Path | bytes | Any) -> Measurements:
    """What the offline instruments measure between two pictures: paths, encoded bytes, or RGB arrays."""
    from stillme.instruments.measurements import measure as measured

    return measured(_image(source), _image(edited))


def check(
    edited: str | Path,
    source: str | Path,
    prompt: str = "",
    judges: Sequence[str] = ("instruments",),
    settings: Sequence[str] = (),
) -> checking.Checked:
    """Have judges look at one pair: sentences about the person, and what each judge says."""
    return checking.check(Path(edited), Path(source), prompt, list(judges), settings=settings)


def feature_prompt(image: str | Path, extractors: Sequence[str] = ("measured",)) -> str:
    """The sentence that asks an editor to keep a person's visible features, without naming any group."""
    described = mitigate.describe(Path(image), mitigate.ready_extractors(extractors))
    prompt = described.prompt
    if not hasattr(prompt, "sentence"):
        raise StillmeError(f"There is no feature prompt for {image}: {getattr(prompt, 'reason', 'unknown')}.")
    return str(getattr(prompt, "sentence", ""))


def estimate(
    frame: Any,
    *,
    portrait: str,
    groups: str | Sequence[str],
    score: str | Sequence[str],
    editor: str | None = None,
    prompt: str | None = None,
    arm: str | None = None,
    judge: str | None = None,
    block: str | None = None,
    reference: Mapping[str, str] | None = None,
    confidence: float = 0.95,
) -> Rows:
    """Estimates from rows of your own: one row an edit, the portrait as the unit.

    `frame` is a frame of pandas or polars, a list of mappings, or the path of a CSV file. The keywords name its
    columns; scores on the rubric's axes (`skin_tone`, `race_change`, …) also give the named rates.
    """
    names = {"editor": editor, "prompt": prompt, "arm": arm, "judge": judge, "block": block}
    axes = [score] if isinstance(score, str) else list(score)
    factors = (groups,) if isinstance(groups, str) else tuple(groups)
    edits, scores = columns_of(records_of(frame), portrait=portrait, groups=factors, scores=axes, names=names)
    settings = Settings(
        factors=factors,
        reference=dict(reference or {}),
        confidence=confidence,
    )
    return Rows("Estimates", lambda: (row_of(result) for result in numbers.estimate(edits, scores, settings)))


def _opened(folder: Path) -> Run:
    opened = Run.open(folder)
    assert isinstance(opened, Run)
    return opened


def _image(image: Any) -> Any:
    if not isinstance(image, str | Path):
        return image
    images.check(Path(image))
    return Path(image)


@dataclass(frozen=True, slots=True)
class _Progress:
    """How far a stage has come, as a notebook shows it."""

    tally: Tally

    def __repr__(self) -> str:
        return f"{self.tally.name} {self.tally.already + self.tally.done:,}/{self.tally.total:,}"

    def _repr_html_(self) -> str:
        done = self.tally.already + self.tally.done
        return f'<progress value="{done}" max="{self.tally.total}"></progress> {html.escape(repr(self))}'


def _notebook_progress() -> Callable[[Tally], None]:
    """A line for each stage that renews itself in a notebook; elsewhere nothing."""
    ipython: Any = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython else None
    if not hasattr(shell, "kernel"):
        return lambda _: None
    handles: dict[str, Any] = {}
    shown_at: dict[str, float] = {}

    def show(tally: Tally) -> None:
        finished = tally.ended is not None or tally.already + tally.done >= tally.total
        if tally.name not in handles:
            handles[tally.name] = ipython.display.display(_Progress(tally), display_id=True)
        elif finished or time.monotonic() - shown_at[tally.name] > _PROGRESS_SECONDS:
            handles[tally.name].update(_Progress(tally))
        else:
            return
        shown_at[tally.name] = time.monotonic()

    return show
