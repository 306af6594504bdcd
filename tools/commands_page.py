"""Write docs/commands.md from what `--help` says: each command's first paragraph, its lists and its options.

The paragraphs between explain what the pages on tasks explain too, so only `--help` has them. Options that several
commands share are explained once.
"""

from __future__ import annotations

import inspect
from collections import Counter
from pathlib import Path

import click

from stillme.cli import cli

PAGE = Path(__file__).parent.parent / "docs" / "commands.md"
TASKS = {
    "plan": "experiments",
    "run": "running",
    "merge": "running",
    "report": "report",
    "serve": "report",
    "compare": "gate",
    "gate": "gate",
    "export": "evidence",
    "verify": "evidence",
    "import": "import",
    "check": "judges",
    "mitigate": "mitigation",
    "calibrate": "calibration",
    "portraits": "curation",
    "study": "study",
}
"""Commands whose lists stand on a page on their task."""
SHARED_BY = 3
"""Commands with the same option and the same help, from which on the page explains it once."""


def page() -> str:
    """The whole page; the same for the same version."""
    every = list(_commands())
    shared = _shared([command for _, command in every])
    intro = [
        "# Commands",
        "",
        "Made from `--help` by `python tools/commands_page.py`. Every command has `-h`, which says more.",
    ]
    parts = [*intro, "", "```text", _start(), "```", "", "## Shared options", "", _block(list(shared))]
    for name, command in every:
        level = "##" if name.count(" ") == 1 else "###"
        short = name.removeprefix("stillme ")
        title = f"[{short}]({TASKS[short]}.md)" if short in TASKS else short
        parts += ["", f"{level} {title}", "", _help(command, name, shared)]
    return "\n".join(parts) + "\n"


def _commands() -> list[tuple[str, click.Command]]:
    context = click.Context(cli)
    found: list[tuple[str, click.Command]] = []
    for name in cli.list_commands(context):
        command = cli.get_command(context, name)
        assert command is not None
        found.append((f"stillme {name}", command))
        if isinstance(command, click.Group):
            found += [(f"stillme {name} {verb}", each) for verb, each in command.commands.items()]
    return found


def _records(command: click.Command) -> list[tuple[str, str]]:
    """Options with their help, without the help option itself."""
    context = click.Context(command, help_option_names=[])
    options = [option for option in command.params if isinstance(option, click.Option)]
    return [record for option in options if (record := option.get_help_record(context)) is not None]


def _shared(commands: list[click.Command]) -> dict[tuple[str, str], None]:
    counted = Counter(record for command in commands for record in _records(command))
    return dict.fromkeys(sorted(record for record, times in counted.items() if times >= SHARED_BY))


def _formatter() -> click.HelpFormatter:
    return click.HelpFormatter(width=100, max_width=100)


def _start() -> str:
    """The head of `stillme --help`: its commands have sections here."""
    formatter, context = _formatter(), click.Context(cli, info_name="stillme", help_option_names=[])
    cli.format_usage(context, formatter)
    cli.format_help_text(context, formatter)
    formatter.write_paragraph()
    formatter.write_dl(_records(cli))
    return formatter.getvalue().rstrip()


def _block(records: list[tuple[str, str]]) -> str:
    formatter = _formatter()
    formatter.write_dl(records)
    return f"```text\n{formatter.getvalue().rstrip()}\n```"


def _help(command: click.Command, name: str, shared: dict[tuple[str, str], None]) -> str:
    formatter, context = _formatter(), click.Context(command, info_name=name, help_option_names=[])
    arguments = [piece for piece in command.collect_usage_pieces(context) if piece != "[OPTIONS]"]
    formatter.write_text(" ".join([name, *arguments]))
    first, *others = inspect.cleandoc(command.help or "").split("\n\n")
    explained = name.removeprefix("stillme ").partition(" ")[0] in TASKS
    lists = [text for text in others if text.startswith("\b") and not text[1:].lstrip().startswith("stillme ")]
    formatter.write_paragraph()
    with formatter.indentation():
        formatter.write_text("\n\n".join([first, *([] if explained else lists)]))
    records = _records(command)
    if own := [record for record in records if record not in shared]:
        formatter.write_paragraph()
        formatter.write_dl(own)
    if known := [record[0].split()[0].rstrip(",") for record in records if record in shared]:
        formatter.write_paragraph()
        formatter.write_text(f"Shared: {' '.join(known)}")
    return f"```text\n{formatter.getvalue().rstrip()}\n```"


if __name__ == "__main__":
    PAGE.write_text(page(), "utf-8")
