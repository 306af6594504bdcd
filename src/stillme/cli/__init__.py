"""The command line. Importing it stays cheap: what is heavy is imported by the command that needs it."""

from __future__ import annotations

import io
import os
import sys

import click

from stillme import __version__
from stillme.cli.deciding import compare, gate, verify
from stillme.cli.exporting import export
from stillme.cli.importing import import_
from stillme.cli.judging import calibrate, check
from stillme.cli.look import completion, doctor, list_, schema, status
from stillme.cli.merging import merge
from stillme.cli.mitigating import features, mitigate
from stillme.cli.planning import plan
from stillme.cli.portraits import curate, portraits
from stillme.cli.serving import serve
from stillme.cli.stages import edit, estimate, judge, report, run
from stillme.cli.start import demo, new
from stillme.cli.study import study_group
from stillme.cli.tables import statistics, tables
from stillme.cli.terminal import OutputClosed, echo
from stillme.cli.verbs import Verbs, keep_lines
from stillme.errors import StillmeError


@click.group(cls=Verbs, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(__version__, prog_name="stillme")
@click.option("-v", "--verbose", count=True, help="Log to standard error; -vv logs more. Also STILLME_LOG=debug.")
def cli(verbose: int) -> None:
    r"""Does an image editor keep people themselves?

    stillme edits portraits, has the results rated by instruments, models and people, and reports every
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
      130  interrupted
    """
    from stillme.cli.logs import configure

    configure(verbose)


cli.add_section("Start", demo, new, plan, list_, doctor)
cli.add_section("Run an audit", run, edit, judge, estimate, report, status, serve, merge)
cli.add_section("Read the results", tables, statistics, export, verify, compare, gate, import_)
cli.add_section("Judges and single pictures", check, calibrate, mitigate, features)
cli.add_section("Portraits and people", portraits, curate, study_group)
cli.add_section("Shell and text editor", completion, schema)
keep_lines(cli)


_NOBODY_READS = 141
"""As shells say of a program that was ended by SIGPIPE: no verdict of ours."""


def main() -> None:
    """Run the command line, turning expected errors into one sentence and an exit code."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            # A terminal whose encoding has no arrow shows a question mark instead of a crash.
            stream.reconfigure(errors="replace")
    try:
        code = cli(prog_name="stillme", standalone_mode=False)
        sys.exit(code if isinstance(code, int) else 0)
    except StillmeError as error:
        echo(f"stillme: {error}", err=True)
        sys.exit(error.exit_code)
    except click.ClickException as error:
        usage = io.StringIO()
        error.show(usage)
        echo(usage.getvalue(), err=True, nl=False)
        sys.exit(error.exit_code)
    except (click.Abort, KeyboardInterrupt):
        echo("stillme: interrupted; everything finished so far is saved.", err=True)
        sys.exit(130)
    except (OutputClosed, BrokenPipeError):
        # Python would try once more to write what is left.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(_NOBODY_READS)
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

    from stillme.store.opening import is_fault_of_the_machine

    if isinstance(error, sqlite3.DatabaseError) and is_fault_of_the_machine(error):
        return f"the run's ledger cannot be read or written here ({error}). Check the disk and the permissions."
    if isinstance(error, sqlite3.DatabaseError):
        return f"the run's ledger is damaged ({error}). Put it back from a copy; `stillme doctor RUN` shows the damage."
    if isinstance(error, MemoryError):
        return "there is not enough memory. Use a machine with more, or a smaller part of the audit."
    traceback.print_exception(error)
    return f"this is a fault of stillme ({type(error).__name__}: {error}). Please report it with the lines above."
