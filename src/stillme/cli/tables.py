"""The command that writes tables: the paper's, and every further analysis."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from stillme.cli.options import (
    json_option,
    opened_run,
    out_option,
    print_json,
    print_next,
    print_next_bundle,
    use_one_blas_thread,
)
from stillme.cli.terminal import echo
from stillme.core.errors import StillmeError
from stillme.work.tally import Tally

if TYPE_CHECKING:
    from stillme.cli.progress import Progress
    from stillme.findings.tables.analyses import Written
    from stillme.findings.tables.paper import Chosen
    from stillme.findings.tables.paper.table import PaperTable
    from stillme.runs import RecordedRun


@click.command()
@click.argument("words", nargs=-1, metavar="[AUDIT] [NAME]...")
@click.option("--all", "everything", is_flag=True, help="The paper's tables and the analyses behind report and paper.")
@click.option(
    "--format",
    "kind",
    type=click.Choice(["md", "csv", "tex"]),
    default="md",
    show_default=True,
    help="Format in which the paper's tables are printed.",
)
@click.option(
    "--by",
    "factor",
    default="",
    metavar="ATTRIBUTE",
    help="The paper's tables: attribute that forms the groups; by default the first factor.",
)
@click.option(
    "--judge",
    default="",
    help="The paper's tables: whose scores; by default the ensemble's, else those of the first judge that answers.",
)
@out_option
@json_option
def tables(
    words: tuple[str, ...],
    everything: bool,
    kind: str,
    factor: str,
    judge: str,
    out: Path | None,
    as_json: bool,
) -> None:
    r"""Write the paper's tables, and every further analysis, by name.

    Without a NAME, all tables of the paper: 4 to 7, 13, 17 to 21 and 24 to 26. Rows are your editors and the groups of
    your portraits. Every number has its interval and its counts of portraits and edits; an empty cell has its reason.
    † marks numbers of judges that failed calibration or never had one. Where editors, groups and prompts are the
    paper's, its number stands next to yours. Each table is written as CSV, Markdown and LaTeX into tables/paper of the
    run, and printed in the chosen format.

    \b
    stillme tables my-audit
    stillme tables my-audit 4 20 --by race --format tex
    stillme tables my-audit contrasts
    stillme tables my-audit --all

    The analyses are written into tables/statistics, one CSV each:

    \b
    contrasts       each group against the reference, the rest and each other: difference, ratio, p
    pooled          means, rates and gaps of all editors together
    icc             similarity of one portrait's edits: ICC and design effect
    mitigation      each arm against the baseline, by group, with the asymmetry
    above_floor     each arm minus the no-op arm
    roles           how often role edits follow the stereotype
    shifts          how much more often a group is read as another after the edit than before
    transitions     what unedited portraits are read as, and what their edits are read as
    readings        what readers say by group: doubts and refusals included
    agreement       between judges, and among people
    position_bias   a model that sees the edited picture first against the source first
    repeatability   the spread of a model's answers to the same question
    disclosure      a model unblinded (it sees the labels) against the same model blind
    coverage        combined scores that lack a judge, by judge and by group
    control_pairs   right answers to the control pairs, by axis and skin tone
    against_people  judges compared with people; corrected: estimates corrected by people

    Five more are written only by name; neither the report nor a table of the paper shows them:

    \b
    cuts            rates at every cut-point of every scale
    prompts, subcategories, intersections
    row_tests       classical tests on single edits, marked where they are naive

    docs/statistics.md explains each. AUDIT is the current folder unless the first word names another.
    """
    use_one_blas_thread()
    from stillme.findings.tables.paper import Chosen

    audit, names = _audit_and_names(words)
    numbers = tuple(int(name) for name in names if name.isdigit())
    analyses = tuple(name for name in names if not name.isdigit())
    chosen = Chosen(numbers=numbers, factor=factor, judge=judge)
    made: dict[str, Any] = {}
    with opened_run(audit, out, writes=True) as run:
        if numbers or everything or not names:
            made["tables"] = _paper_tables(run, chosen, kind, as_json=as_json)
        if analyses or everything:
            made["analyses"] = _analyses(run, _chosen(analyses, everything=everything), as_json=as_json)
    if as_json:
        print_json(made)
    broken = [name for name, table in made.get("analyses", {}).items() if "problem" in table]
    if broken:
        raise StillmeError(
            f"{', '.join(broken)} could not be computed; everything else is written. Run it again with -v, and report "
            "the message as a bug."
        )
    if as_json:
        return
    if "analyses" in made:
        print_next_bundle(run, audit, out=out)
    else:
        print_next("tables", audit, "--all", out=out)


def _audit_and_names(words: Sequence[str]) -> tuple[Path, Sequence[str]]:
    """The first word is the audit where there is such a path, or where it names no table."""
    if not words:
        return Path(), ()
    first, *rest = words
    if Path(first).exists():
        return Path(first), rest
    if first.isdigit():
        return Path(), words
    from stillme.findings.tables.analyses import ANALYSES

    return (Path(), words) if first in ANALYSES else (Path(first), rest)


def _chosen(names: Sequence[str], *, everything: bool) -> Sequence[str]:
    from stillme.findings.tables.analyses import ANALYSES, BY_NAME

    if not everything:
        return names
    unknown = [name for name in names if name not in ANALYSES]
    return [*(name for name in ANALYSES if name not in BY_NAME or name in names), *unknown]


def _paper_tables(run: RecordedRun, chosen: Chosen, kind: str, *, as_json: bool) -> list[Mapping[str, Any]]:
    from stillme.findings.tables.paper import make_tables, write
    from stillme.findings.tables.paper.table import FORMATS
    from stillme.runs.paper_names import missing_names

    made = make_tables(run, chosen)
    entries = [_entry(table, write(table, run.folder)) for table in made]
    if not as_json:
        echo("\n".join(FORMATS[kind](table) for table in made), nl=False)
        if hint := missing_names(run.design):
            echo(f"\n{hint}", err=True)
        echo(f"\nWrote {run.folder / 'tables' / 'paper'}", err=True)
    return entries


def _entry(table: PaperTable, files: Sequence[Path]) -> Mapping[str, Any]:
    return {
        "number": table.number,
        "caption": table.caption,
        "not_estimable": table.absent or None,
        "files": [str(path) for path in files],
    }


def _analyses(run: RecordedRun, only: Sequence[str], *, as_json: bool) -> dict[str, Mapping[str, Any]]:
    from stillme.cli.progress import progress
    from stillme.findings.tables.analyses import analyse

    with progress(quiet=as_json) as shown:
        written = analyse(run, only=only, watch=Tables(shown, to_errors=as_json))
    return {
        name: {"file": str(table.path) if table.rows else None, "rows": table.rows}
        | ({"problem": table.problem} if table.problem else {})
        for name, table in written.items()
    }


class Tables:
    """Shows which table is being computed, and each that was written."""

    def __init__(self, shown: Progress, *, to_errors: bool) -> None:
        self._shown, self._to_errors = shown, to_errors
        self._tally = Tally(name="tables", total=0)

    def starts(self, name: str, place: int, total: int) -> None:
        """One of `total` is being computed."""
        self._tally.total, self._tally.counts["done"], self._tally.waits = total, max(0, place - 1), name
        self._shown(self._tally)

    def ends(self, name: str, written: Written) -> None:
        """One line a table."""
        rows = f"{written.rows:>6,} rows  {written.path}" if written.rows else "     -  "
        none = "" if written.rows else written.problem or "no data in this audit"
        self._shown.say(f"{name:<15} {rows}{none}", err=self._to_errors)
