"""Commands for release decisions: compare, gate, verify."""

from __future__ import annotations

import sys
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import click

from stillme.cli.options import (
    FILE,
    PATH,
    audit_argument,
    json_option,
    opened_run,
    out_option,
    print_json,
    print_next,
    print_next_bundle,
    print_open,
)
from stillme.cli.terminal import echo

if TYPE_CHECKING:
    from stillme.findings.gate import Verdict
    from stillme.runs import RecordedRun


@click.command()
@click.argument("first", type=PATH, metavar="RUN_A")
@click.argument("second", type=PATH, required=False, metavar="[RUN_B]")
@click.option("--editors", nargs=2, metavar="A B", help="Which two editors; needed if a run has several.")
@click.option("--common", is_flag=True, help="Compare only requests and judges that both sides have.")
@click.option("--markdown", type=FILE, help="Also write a summary for a pull request.")
@click.option("--html", type=FILE, help="Also write it as one self-contained page.")
@json_option
def compare(
    first: Path,
    second: Path | None,
    editors: tuple[str, str] | None,
    common: bool,
    markdown: Path | None,
    html: Path | None,
    as_json: bool,
) -> None:
    r"""Compare two editors: what became worse, and for whom.

    \b
    stillme compare v1 v2                        two runs, such as two checkpoints
    stillme compare v1 v2 --editors old new      the same, where a run has several editors
    stillme compare run --editors one other      two editors of one run

    Every number is paired: second minus first on the same portrait, prompt, arm and seed, rated by the
    same judges. If anything else differs, the comparison is refused and the difference is named.
    """
    from stillme.findings import layout
    from stillme.findings.compare import choose, comparison_text, match
    from stillme.findings.compare import compare as compare_sides
    from stillme.findings.compare.matched_edits import reading_changes
    from stillme.runs.store.buckets import PicturesToShow

    with ExitStack() as stack:
        runs = [stack.enter_context(opened_run(path)) if path else None for path in (first, second)]
        one, other = choose(cast("RecordedRun", runs[0]), runs[1], editors)
        matched = match(one, other, common=common)
        appears, missing = reading_changes(one, other, matched)
        comparison = compare_sides(matched)
        notes = (*comparison.notes, *([missing] if missing else []))
        comparison = replace(comparison, appears=appears, notes=notes)
        pictures = PicturesToShow(*(chosen.run.store.pictures for chosen in (one, other)))
        # While the runs are open: a bundle's pictures are gone after that.
        figures = comparison_text.worst_pairs(matched, comparison, pictures.path_of) if html else ""
    text = comparison_text.as_markdown(comparison)
    if markdown:
        layout.save(markdown, text)
    if html:
        title = f"{comparison.labels[1]} against {comparison.labels[0]}"
        layout.save(html, layout.page(title, text, figures))
        if pictures.unreachable:
            echo(f"The page lacks pictures. {pictures.unreachable}", err=True)
    if as_json:
        print_json(comparison_text.as_json(comparison))
    else:
        echo(comparison_text.as_text(comparison))
        if html:
            print_open(html)
        else:
            names = ("--editors", *editors) if editors else ()
            print_next("compare", first, *([second] if second else []), *names, "--html", "comparison.html")


@click.command()
@audit_argument
@out_option
@click.option(
    "--rule",
    "rules",
    multiple=True,
    metavar="RULE",
    help='A limit, such as "race_changed.disparity@race <= 0.05" or "success >= 90%". May be repeated.',
)
@click.option("--baseline", type=PATH, metavar="RUN", help="A run that this one must not be worse than.")
@click.option(
    "--margin",
    "margins",
    multiple=True,
    metavar="RULE",
    help='How much worse than the baseline is allowed, such as "soft_erasure.group <= 0.02". May be repeated.',
)
@click.option("--common", is_flag=True, help="Compare with the baseline only on what both runs share.")
@click.option("--allow-inconclusive", is_flag=True, help="End with 0 instead of 4 if a rule is inconclusive.")
@click.option(
    "--allow-uncalibrated",
    is_flag=True,
    help="Also decide by judges that are not validated for a number. Without it, such rules are inconclusive.",
)
@click.option("--junit", type=FILE, help="Also write JUnit XML.")
@click.option("--markdown", type=FILE, help="Also write a summary for a pull request.")
@json_option
def gate(
    audit: Path,
    out: Path | None,
    baseline: Path | None,
    junit: Path | None,
    markdown: Path | None,
    as_json: bool,
    **asked: Any,
) -> None:
    r"""Hold a run to limits, for release decisions.

    Each rule passes, fails, is inconclusive or has no data.

    \b
    A rule is QUANTITY[.STATISTIC][@FACTOR][#GROUP][ editor=NAME][ judge=NAME][ arm=NAME] <= NUMBER
      soft_erasure <= 5%                         everyone
      soft_erasure.group@race <= 0.1             every group; #Black for one of them
      race_changed.disparity@race <= 0.05        largest minus smallest group
      skin_delta_l.contrast@race#Black <= 2      one group minus the rest, or minus the reference

    A rule passes if the whole interval is within the limit. It fails if the whole interval is over it, also after
    Holm's correction for all numbers of the gate. Otherwise it is inconclusive. Without a number, while the run is
    unfinished, or with a judge that failed its control pairs, there is no data. The rules in the [claims] section of
    audit.toml are checked too, each with "fixed before the first edit" or "added later".

    \b
    Exit codes, the first that applies:
      1    a rule failed
      3    a rule has no data
      4    a rule is inconclusive; 0 with --allow-inconclusive
      0    every rule passed
      130  interrupted (SIGINT); 143 for SIGTERM, 141 if the output was closed (SIGPIPE)
    """
    from stillme.findings import layout
    from stillme.findings.gate import Asked, baseline_folder, verdict_text
    from stillme.findings.gate import gate as decide

    with ExitStack() as stack:
        run = stack.enter_context(opened_run(audit, out))
        before = baseline or baseline_folder(run)
        compared = stack.enter_context(opened_run(before)) if before else None
        verdicts = decide(run, Asked(baseline=compared, **asked))
    for file, write in ((junit, verdict_text.as_junit), (markdown, verdict_text.as_markdown)):
        if file:
            layout.save(file, write(verdicts))
    if as_json:
        print_json(verdict_text.as_json(verdicts))
    else:
        echo(verdict_text.as_text(verdicts))
        _print_next_of_gate(run, audit, out, verdicts.outcome)
    sys.exit(verdicts.exit_code)


@click.command()
@click.argument("bundle", type=FILE)
@click.option("--root", metavar="HEX", help="The root that was published; another one is a difference.")
@click.option("--key", type=FILE, metavar="PUBKEY", help="Check the signature BUNDLE.sig with this SSH public key.")
@json_option
def verify(bundle: Path, root: str | None, key: Path | None, as_json: bool) -> None:
    r"""Check a bundle offline: every hash, every row, every number.

    BUNDLE comes from `stillme export RUN --bundle FILE.zip`. Files are compared with the sums inside, and rows with the
    design and their keys. Every table is computed again. The first difference is named with its file, row and
    column. No editor, judge or API key is needed.

    \b
    authentic and consistent                   with the published root, or a valid signature
    internally consistent, not authenticated   without either
    NOT CONSISTENT                             something differs; exits with 1

    A file that cannot be a bundle of this stillme exits with 2.
    """
    from stillme.findings.evidence import verify as check

    verification = check(bundle, root, key)
    if as_json:
        print_json(verification)
    else:
        echo(verification.as_text())
        if verification.consistent:
            print_next("status", bundle)
    if not verification.consistent:
        sys.exit(1)


def _print_next_of_gate(run: RecordedRun, audit: Path, out: Path | None, outcome: Verdict) -> None:
    """Seal what passed, look at what failed, finish what has no data. A bundle needs none of it."""
    from stillme.core.files import is_bundle

    if is_bundle(audit):
        return
    if outcome == "no data":
        print_next("status", audit, out=out)
    elif outcome == "passed":
        print_next_bundle(run, audit, out=out)
    else:
        print_next("report", audit, out=out)
