"""Command lines: run in this process, or checked against the real options without running."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence

import click
from click.testing import CliRunner, Result

from stillme.cli import cli


def invoke(*words: object) -> Result:
    """What a user gets who types `stillme` and these words, in this process."""
    return CliRunner().invoke(cli, [*map(str, words)])


def parse(line: str | Sequence[str]) -> click.Context:
    """The context of a `stillme` command; raises what a user who typed it would see."""
    program, *words = shlex.split(line) if isinstance(line, str) else line
    assert program.rpartition("/")[2] == "stillme"
    command: click.Command = cli
    context = click.Context(cli, info_name="stillme")
    while isinstance(command, click.Group):
        name, subcommand, words = command.resolve_command(context, words)
        assert subcommand is not None
        command, context = subcommand, click.Context(subcommand, info_name=name, parent=context)
    return command.make_context(context.info_name, words, parent=context.parent)


def commands(command: click.Command = cli, name: str = "stillme") -> Iterator[tuple[str, click.Command]]:
    """Every command with its whole name, loaded if it was not yet."""
    yield name, command
    if isinstance(command, click.Group):
        context = click.Context(command)
        for verb in command.list_commands(context):
            inner = command.get_command(context, verb)
            assert inner
            yield from commands(inner, f"{name} {verb}")


def ran(*words: object, code: int = 0) -> Result:
    """A command, which must end with this code."""
    done = invoke(*words)
    assert done.exit_code == code, done.exception or done.output
    return done
