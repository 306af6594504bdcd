"""The command line. Importing it stays cheap: what is heavy is imported by the command that needs it."""

from __future__ import annotations

import gc
import io
import os
import signal
import sys
from collections.abc import Mapping, Sequence
from importlib import import_module
from types import FrameType
from typing import NamedTuple

import click

from stillme import __version__
from stillme.cli.terminal import OutputClosed, echo
from stillme.core.errors import Interrupted, StillmeError
from stillme.work import interrupt


class Verb(NamedTuple):
    """A command that is not imported yet: enough to list it."""

    name: str
    home: str
    """Its module in this room and its name there, as `module:name`."""
    help: str


class Verbs(click.Group):
    """Commands in sections, in the order in which they are needed."""

    sections: Mapping[str, Sequence[Verb]] = {}
    hidden_verbs: Sequence[Verb] = ()
    """Commands that are not listed: set-up that documentation names where it is needed."""

    @property
    def verbs(self) -> tuple[Verb, ...]:
        """All commands, in the order of the sections."""
        return (*(verb for verbs in self.sections.values() for verb in verbs), *self.hidden_verbs)

    def list_commands(self, ctx: click.Context) -> list[str]:
        """The names of all commands, in the order of the sections."""
        return [verb.name for verb in self.verbs]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The command of that name, imported with the first call."""
        if cmd_name not in self.commands:
            homes = {verb.name: verb.home for verb in self.verbs}
            if cmd_name not in homes:
                return None
            module, _, name = homes[cmd_name].partition(":")
            command: click.Command = getattr(import_module(f"{__package__}.{module}"), name)
            keep_lines(command)
            self.add_command(command)
        return self.commands[cmd_name]

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write one list per section, without importing a command."""
        width = max(len(verb.name) for verbs in self.sections.values() for verb in verbs)
        for title, verbs in self.sections.items():
            with formatter.section(title):
                formatter.write_dl([(f"{verb.name:<{width}}", verb.help) for verb in verbs])


def keep_lines(command: click.Command) -> None:
    r"""Turn the `\b` of raw docstrings into the character that tells click not to rewrap a paragraph."""
    if command.help:
        command.help = command.help.replace("\\b\n", "\b\n")
    if isinstance(command, click.Group):
        for verb in command.commands.values():
            keep_lines(verb)


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
        Verb("plan", "start:plan", "Show what a run will take: edits, dollars, GPU hours, precision."),
        Verb("list", "look:list_", "List the editors, judges, prompts or portraits of this machine."),
        Verb("doctor", "look:doctor", "Check this machine, or with RUN a whole run."),
    ),
    "Run an audit": (
        Verb("run", "stages:run", "Edit, judge, estimate and report: the whole audit."),
        Verb("status", "look:status", "Show a run's progress: edits, refusals, failures, cost."),
        Verb("serve", "stages:serve", "Show the report in a browser while the run is in progress."),
        Verb("merge", "stages:merge", "Add the rows and pictures of RUNS to one run."),
    ),
    "Read the results": (
        Verb("report", "stages:report", "Write report.html: one self-contained page."),
        Verb("tables", "tables:tables", "Write the paper's tables, and every further analysis, by name."),
        Verb("compare", "release:compare", "Compare two editors: what became worse, and for whom."),
        Verb("gate", "release:gate", "Hold a run to limits, for release decisions."),
        Verb("export", "exchange:export", "Write a run's rows, a sealed bundle, figures or a model card."),
        Verb("verify", "release:verify", "Check a bundle offline: every hash, every row, every number."),
        Verb("import", "exchange:import_", "Bring in what was made elsewhere."),
    ),
    "Single pictures and judges": (
        Verb("check", "single:check", "Check one pair: what did this edit do to this person?"),
        Verb("mitigate", "single:mitigate", "Edit one picture and keep the person in it."),
        Verb("calibrate", "single:calibrate", "Test a judge on changes of known size."),
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
"""As shells say of a program that a signal ended."""


def _terminate(number: int, _frame: FrameType | None) -> None:
    """SIGTERM outside of a run, which handles its own."""
    interrupt.note(number)
    raise KeyboardInterrupt


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
        echo(f"stillme: {error}", err=True)
        sys.exit(interrupt.exit_code())
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
        sys.exit(interrupt.exit_code())
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
    finally:
        gc.freeze()  # else Python searches all objects for cycles as it ends, which takes a tenth of a second


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
