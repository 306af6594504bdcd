"""The command line. Importing it stays cheap: what is heavy is imported by the command that needs it."""

from __future__ import annotations

import gc
import io
import os
import signal
import sys
from types import FrameType

import click

from stillme import __version__
from stillme.cli.terminal import OutputClosed, echo
from stillme.cli.verbs import Verb, Verbs, keep_lines
from stillme.core.errors import Interrupted, StillmeError


@click.group(cls=Verbs, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(__version__, prog_name="stillme")
@click.option("-v", "--verbose", count=True, help="Log to standard error; -vv logs more. Also STILLME_LOG=debug.")
def cli(verbose: int) -> None:
    r"""Audit image editors: does the edit happen, does the person stay the same, and does that hold for everyone?

    stillme edits portraits, rates the results with instruments, models and human raters, and reports every
    gap between groups with its uncertainty.

    \b
    Start here:
      stillme demo              a whole audit on this machine, no key and no GPU needed
      stillme new my-audit      write a commented audit.toml
      stillme run my-audit      edit, judge, estimate, report; resumes where it stopped

    \b
    Exit codes:
      0    done
      1    a check failed
      2    usage or configuration error, or a fault of this machine
      3    incomplete: a re-run would retry failures, the budget is spent, a verdict has no data, or
           requests are still being recorded
      4    inconclusive: a gate's interval includes its limit
      130  interrupted (SIGINT); 143 for SIGTERM, 141 if the output was closed (SIGPIPE)
    """
    from stillme.cli.terminal import configure_logs

    configure_logs(verbose)


cli.sections = {
    "Start": (
        Verb("demo", "start:demo", "Audit two editors with injected bias on this machine."),
        Verb("new", "start:new", "Write a small, commented audit.toml into DIR."),
        Verb("plan", "planning:plan", "Show what a run will take: edits, dollars, GPU hours, precision."),
        Verb("list", "look:list_", "List the editors, judges, prompts or portraits of this machine."),
        Verb("doctor", "look:doctor", "Check this machine, or with RUN a whole run."),
    ),
    "Run an audit": (
        Verb("run", "stages:run", "Edit, judge, estimate and report: the whole audit."),
        Verb("status", "look:status", "Show a run's progress: edits, refusals, failures, cost."),
        Verb("serve", "serving:serve", "Show the report in a browser while the run is in progress."),
        Verb("merge", "merging:merge", "Add the rows and pictures of RUNS to one run."),
    ),
    "Read the results": (
        Verb("report", "stages:report", "Write report.html: one self-contained page."),
        Verb("tables", "tables:tables", "Write the paper's tables, and every further analysis, by name."),
        Verb("compare", "deciding:compare", "Compare two editors: what became worse, and for whom."),
        Verb("gate", "deciding:gate", "Hold a run to limits, for release decisions."),
        Verb("export", "exporting:export", "Write a run's rows, a sealed bundle, figures or a model card."),
        Verb("verify", "deciding:verify", "Check a bundle offline: every hash, every row, every number."),
        Verb("import", "importing:import_", "Bring in what was made elsewhere."),
    ),
    "Single pictures and judges": (
        Verb("check", "judging:check", "Check one pair: what did this edit do to this person?"),
        Verb("mitigate", "mitigating:mitigate", "Edit one picture and keep the person in it."),
        Verb("calibrate", "judging:calibrate", "Test a judge on changes of known size."),
    ),
    "Portraits and people": (
        Verb("portraits", "portraits:portraits", "Draw, choose, import and verify source portraits."),
        Verb("study", "study:study_group", "Have raters score edits, blind, and compare them with models."),
    ),
}
cli.hidden_verbs = (
    Verb("completion", "look:completion", "Print a completion script for your shell."),
    Verb("schema", "look:schema", "Print the JSON Schema of audit.toml or study.toml."),
)
keep_lines(cli)


EXIT_SIGPIPE = 141
EXIT_SIGTERM = 143
"""As shells say of a program that a signal ended."""


class _Terminated(KeyboardInterrupt):
    """SIGTERM outside of a run, which handles its own."""


def _terminate(_number: int, _frame: FrameType | None) -> None:
    raise _Terminated


def main() -> None:
    """Run the command line, turning expected errors into one sentence and an exit code."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            # A terminal whose encoding has no arrow shows a question mark instead of a crash.
            stream.reconfigure(errors="replace")
    signal.signal(signal.SIGTERM, _terminate)
    # Imports are a tenth slower while every few hundred new objects are searched for cycles.
    gc.set_threshold(50_000)
    try:
        code = cli(prog_name="stillme", standalone_mode=False)
        sys.exit(code if isinstance(code, int) else 0)
    except Interrupted as error:
        from stillme.work.interrupt import exit_code

        echo(f"stillme: {error}", err=True)
        sys.exit(exit_code())
    except StillmeError as error:
        echo(f"stillme: {error}", err=True)
        sys.exit(error.exit_code)
    except click.ClickException as error:
        usage = io.StringIO()
        error.show(usage)
        echo(usage.getvalue(), err=True, nl=False)
        sys.exit(error.exit_code)
    except (click.Abort, KeyboardInterrupt) as error:
        echo("stillme: interrupted; everything finished so far is saved.", err=True)
        sys.exit(EXIT_SIGTERM if isinstance(error, _Terminated) else Interrupted.exit_code)
    except (OutputClosed, BrokenPipeError):
        # Python would try once more to write what is left.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(EXIT_SIGPIPE)
    except OSError as error:
        # A full disk, a read-only folder, a file that was deleted: the machine's state, not a bug.
        what = f"{error.filename}: {error.strerror}" if error.filename else str(error)
        echo(f"stillme: {what}. Check the disk and the folder's permissions.", err=True)
        sys.exit(2)
    except Exception as error:
        # Python would end with 1, which says that a check failed.
        echo(f"stillme: {_unexpected(error)}", err=True)
        sys.exit(2)


def _unexpected(error: Exception) -> str:
    """A damaged ledger in a sentence; for anything else, what the authors need to know."""
    import sqlite3
    import traceback

    from stillme.runs.store.opening import is_fault_of_the_machine

    if isinstance(error, sqlite3.DatabaseError) and is_fault_of_the_machine(error):
        return f"the run's ledger cannot be read or written here ({error}). Check the disk and the permissions."
    if isinstance(error, sqlite3.DatabaseError):
        return f"the run's ledger is damaged ({error}). Put it back from a copy; `stillme doctor RUN` shows the damage."
    if isinstance(error, MemoryError):
        return "there is not enough memory. Use a machine with more, or a smaller part of the audit."
    traceback.print_exception(error)
    return f"this is a fault of stillme ({type(error).__name__}: {error}). Please report it with the lines above."
