"""The group of all commands: listed by what they are for, imported when they are called."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import NamedTuple

import click


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
