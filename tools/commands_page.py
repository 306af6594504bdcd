"""Write docs/commands.md from what `--help` says."""

from __future__ import annotations

from pathlib import Path

import click

from stillme.cli import cli

PAGE = Path(__file__).parent.parent / "docs" / "commands.md"


def page() -> str:
    """The whole page; the same for the same version."""
    parts = ["# Commands", "", "Made from `--help` by `python tools/commands_page.py`.", "", _help(cli, "stillme")]
    context = click.Context(cli)
    for name in cli.list_commands(context):
        command = cli.get_command(context, name)
        assert command is not None
        parts += ["", f"## stillme {name}", "", _help(command, f"stillme {name}")]
        if isinstance(command, click.Group):
            for verb, each in command.commands.items():
                full = f"stillme {name} {verb}"
                parts += ["", f"### {full}", "", _help(each, full)]
    return "\n".join(parts) + "\n"


def _help(command: click.Command, name: str) -> str:
    context = click.Context(
        command, info_name=name, max_content_width=100, terminal_width=100, help_option_names=["-h", "--help"]
    )
    return f"```text\n{command.get_help(context)}\n```"


if __name__ == "__main__":
    PAGE.write_text(page(), "utf-8")
