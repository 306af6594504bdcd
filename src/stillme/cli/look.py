"""Commands that show: status, list, schema, doctor, completion."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from stillme.cli.options import FILE, PATH, audit_argument, json_option, opened_run, out_option, print_json, print_next
from stillme.cli.terminal import echo


@click.command()
@audit_argument
@out_option
@json_option
def status(audit: Path, out: Path | None, as_json: bool) -> None:
    """Show a run's progress: edits, refusals, failures, cost.

    Works while another process runs the audit.
    """
    from stillme.runs.status import status_of

    with opened_run(audit, out, quiet=True) as run:
        status = status_of(run)
        # Rows that were imported are all there is: no command could finish them.
        following = "tables" if status.complete or run.design.of_rows else "run"
    if as_json:
        print_json(status)
    else:
        echo(status.as_text())
        print_next(following, audit, out=out)


@click.command("list")
@click.argument("what", type=click.Choice(["editors", "judges", "prompts", "portraits"]))
@click.argument("name", required=False)
@click.option(
    "--sheet",
    type=FILE,
    help="Portraits only: also write a contact sheet; .png, or .html with the set's card.",
)
@json_option
def list_(what: str, name: str | None, sheet: Path | None, as_json: bool) -> None:
    """List the editors, judges, prompts or portraits of this machine.

    With a NAME, show only that one in full: an editor's or judge's parameters, a prompt set, a portrait set.
    NAME may also be a folder with your own portraits.
    """
    from stillme.api.catalogue import as_table, catalogue, contact_sheet

    if sheet:
        if what != "portraits":
            raise click.UsageError("--sheet only works with `stillme list portraits`.")
        echo(f"Wrote {contact_sheet(name, sheet)}", err=True)

    entries = catalogue(what, name, full=as_json or name is not None)
    if as_json:
        print_json([dict(entry.details) for entry in entries])
    else:
        echo(as_table(what, entries) if name is None else "\n".join(entry.as_text() for entry in entries))
        if name is None and what != "prompts":
            print_next("list", what, entries[0].title)
        else:
            print_next("new", "my-audit")


@click.command()
@click.argument("what", type=click.Choice(["audit", "study"]), default="audit")
def schema(what: str) -> None:
    r"""Print the JSON Schema of audit.toml or study.toml.

    Text editors complete and check the file with it. That of audit.toml knows the parameters of every editor and judge
    that is installed here. `stillme new` writes it beside audit.toml; write it again after you have installed a plugin:

    \b
    stillme schema > my-audit/audit.schema.json

    VS Code (Even Better TOML), Zed, Neovim and others with the Taplo language server read it by the first line of
    audit.toml, `#:schema audit.schema.json`.
    """
    if what == "study":
        from stillme.audit.config import schema_of
        from stillme.study.config import StudyConfig

        print_json(schema_of(StudyConfig, "study.toml of stillme"))
    else:
        from stillme.audit.config import audit_schema

        print_json(audit_schema())


@click.command()
@click.argument("run", type=PATH, required=False)
@out_option
@click.option(
    "--accept-loss", is_flag=True, help="Go on without lost rows and pictures; the next run makes them again."
)
@click.option("--download", is_flag=True, help="Also read every picture that is kept in an object store.")
@json_option
def doctor(run: Path | None, out: Path | None, accept_loss: bool, download: bool, as_json: bool) -> None:
    """Check this machine, or with RUN a whole run.

    The machine: versions, models, plugins and what each still needs. A run: its database and log, rows,
    keys, the hash of every picture, and leftover files. Exits with 1 if something is broken.
    """
    from stillme.api.doctor import accept_losses, as_table, examine, examine_run
    from stillme.runs import folder_of

    if run is None and out is None:
        if accept_loss or download:
            raise click.UsageError(f"{'--accept-loss' if accept_loss else '--download'} needs a run folder.")
        checks, following = examine(), ("demo",)
    else:
        folder = folder_of(run or Path(), out)
        for done in accept_losses(folder, download=download) if accept_loss else ():
            echo(f"{done}.", err=True)
        checks = examine_run(folder, download=download)
        following = ("run", folder)
    if as_json:
        print_json(checks)
    else:
        echo(as_table(checks))
        # What is broken names its own next step.
        if not any(check.state == "broken" for check in checks):
            print_next(*following)
    if any(check.state == "broken" for check in checks):
        sys.exit(1)


@click.command()
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def completion(shell: str) -> None:
    r"""Print a completion script for your shell.

    \b
    bash:  echo 'eval "$(stillme completion bash)"' >> ~/.bashrc
    zsh:   echo 'eval "$(stillme completion zsh)"' >> ~/.zshrc
    fish:  stillme completion fish > ~/.config/fish/completions/stillme.fish
    """
    from click.shell_completion import get_completion_class

    from stillme.cli import cli

    script = get_completion_class(shell)
    if script is not None:
        echo(script(cli, {}, "stillme", "_STILLME_COMPLETE").source())
