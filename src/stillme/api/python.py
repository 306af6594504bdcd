"""stillme from Python: open or make a run, and look at one pair, one picture, or rows of your own.

import stillme

def edit(image, instruction, seed):
return my_pipeline(image, instruction)

run = stillme.run(stillme.Audit(editors=[edit]))
run.estimates().to_frame()
"""

from __future__ import annotations

import tempfile
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from stillme import audit as audits
from stillme import estimates as numbers
from stillme.api.frames import Rows, records_of
from stillme.api.pipeline import Ended, RunOptions, RunResult, run_audit
from stillme.audit.building import build, function_judge
from stillme.core.errors import StillmeError
from stillme.core.files import is_bundle
from stillme.estimates import Settings
from stillme.findings.calibration import standing_of
from stillme.findings.evidence import unpacked_run
from stillme.findings.single import check as checking
from stillme.findings.single import mitigate
from stillme.findings.tables.estimates import row_of
from stillme.findings.tables.paper import NUMBERS, Chosen, PaperTable, make_tables
from stillme.instruments.measurements import Measurements
from stillme.runs import Run as RecordedRun
from stillme.runs import folder_of
from stillme.runs.store.exported import EDITS, JUDGEMENTS, Table, rows_of, with_names

if TYPE_CHECKING:
    from stillme.report.data import ReportData
    from stillme.runs.readings import Readings

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

    def estimates(self) -> Rows:
        """Means and named rates with intervals: of all, by group, as contrast and as disparity."""
        return self._numbers("Estimates", numbers.estimate)

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
        """Write report.html into the run folder, and say where it is."""
        from stillme import report as reports

        return reports.write(self.folder, self._shown())

    def figures(self, to: str | Path | None = None) -> list[Path]:
        """Write the report's drawings as SVG and grids of pictures as PNG; by default into `figures` of the run."""
        from stillme.report.figure_files import write_figures

        return list(write_figures(Path(to) if to else self.folder / "figures", self._shown()).files)

    def _shown(self) -> ReportData:
        from stillme.report.contents import report_data

        estimated = numbers.estimate(self.results.edits, self.results.scores, self.settings)
        return report_data(self, estimated)

    def _rows(self, title: str, table: Table) -> Rows:
        return Rows(f"{title} of {self.title}", lambda: rows_of(self.store, with_names(table)))

    def _readings(self, title: str, of: Callable[[Readings], Sequence[object]]) -> Rows:
        return Rows(f"{title} of {self.title}", lambda: map(row_of, of(self.readings) if self.readings else ()))

    def _numbers(self, title: str, compute: Callable[..., Sequence[object]]) -> Rows:
        standing = standing_of(self)

        def rows() -> Iterator[Mapping[str, object]]:
            for result in compute(self.results.edits, self.results.scores, self.settings):
                row = row_of(result)
                note = numbers.mark(standing, str(row.get("judge", "")), str(row.get("quantity", "")))
                yield row | {"judge_note": note}

        return Rows(f"{title} of {self.title}", rows)

    def _repr_html_(self) -> str:
        import html

        counts = Rows("", lambda: [{"": word, "edits": n} for word, n in self.totals().edits.items()])
        head = f"<p><b>{html.escape(self.title)}</b> in <code>{html.escape(str(self.folder))}</code></p>"
        return head + counts.as_html()


class Audit:
    """An audit built in Python: the same object that audit.toml becomes.

    `editors` are plugins' names, functions or `Editor` objects; `judges` likewise (a function with
    `function_judge`). See `docs/python.md` for every keyword.
    """

    def __new__(cls, **parts: Any) -> audits.Audit:  # pyright: ignore[reportInconsistentConstructor]
        """Check the parts, all problems at once."""
        return build(**parts)


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
    finished is saved, and the same call goes on.
    """
    built = audits.load(Path(audit)) if isinstance(audit, str | Path) else audit
    options = RunOptions(watch=watch or (lambda _: None), say=say, allow_changes=allow_changes)
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
    from stillme.findings.exchange.frames import columns_of

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
    return Path(image) if isinstance(image, str) else image
