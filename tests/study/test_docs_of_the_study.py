"""The study's page of docs: its commands exist and its examples load."""

from __future__ import annotations

import re
import shlex
import tomllib
from pathlib import Path

import click
import pytest

from stillme.audit.config import JudgeSection
from stillme.cli.study import study_group
from stillme.study.config import StudyConfig
from stillme.study.drawing import study_toml
from stillme.study.items import Drawn

PAGE = (Path(__file__).parents[2] / "docs" / "study.md").read_text()
COMMANDS = [
    shlex.split(line, comments=True)
    for block in re.findall(r"^```sh\n(.*?)^```", PAGE, flags=re.DOTALL | re.MULTILINE)
    for line in block.splitlines()
]
INLINE = [shlex.split(words) for words in re.findall(r"`(stillme study [^`]+)`", PAGE)]


@pytest.mark.parametrize("words", [*COMMANDS, *INLINE], ids=" ".join)
def test_every_command_of_the_page_parses(words: list[str]) -> None:
    assert words[:2] == ["stillme", "study"]
    command, rest = study_group.commands[words[2]], words[3:]
    command.make_context(words[2], list(rest))


def test_every_option_that_the_page_names_exists() -> None:
    known = {name for command in study_group.commands.values() for option in command.params for name in option.opts}
    assert set(re.findall(r"--[a-z][a-z-]+", PAGE)) <= known


def test_the_examples_are_valid() -> None:
    (judge,) = tomllib.loads(re.findall(r"^```toml\n(.*?)^```", PAGE, flags=re.DOTALL | re.MULTILINE)[0])["judges"]
    JudgeSection.model_validate(judge)


def test_a_new_study_toml_shows_every_setting() -> None:
    drawn = Drawn(study="x", run="run", audit="", design={}, items=())
    written = tomllib.loads(study_toml(drawn, recruit="prolific"))
    config = StudyConfig.model_validate(written)
    rare = {"limits"}
    assert set(written) >= set(StudyConfig.model_fields) - rare
    for name in ("pay", "checks", "texts", "recruiting"):
        assert set(written[name]) == set(type(getattr(config, name)).model_fields)
    assert isinstance(study_group, click.Group)
