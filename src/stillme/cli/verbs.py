"""The group of all commands: listed by what they are for."""

from __future__ import annotations

import click


class Verbs(click.Group):
    """Commands in sections, in the order in which they are needed."""

    def __init__(self, *args: object, **options: object) -> None:
        super().__init__(*args, **options)  # pyright: ignore[reportArgumentType]
        self._sections: dict[str, list[click.Command]] = {}

    def add_section(self, title: str, *commands: click.Command) -> None:
        """Add commands under a heading of `--help`."""
        self._sections[title] = list(commands)
        for command in commands:
            self.add_command(command)

    def add_command(self, cmd: click.Command, name: str | None = None) -> None:
        """Add a command, and have its help keep the lines that it marks."""
        keep_lines(cmd)
        super().add_command(cmd, name)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write one list per section."""
        width = max(len(name) for name in self.commands)
        for title, commands in self._sections.items():
            with formatter.section(title):
                room = formatter.width - width - 8
                formatter.write_dl([(f"{verb.name:<{width}}", verb.get_short_help_str(room)) for verb in commands])


def keep_lines(command: click.Command) -> None:
    r"""Turn the `\b` of raw docstrings into the character that tells click not to rewrap a paragraph."""
    if command.help:
        command.help = command.help.replace("\\b\n", "\b\n")
    if isinstance(command, click.Group):
        for verb in command.commands.values():
            keep_lines(verb)
