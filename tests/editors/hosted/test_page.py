"""The page on hosted editors is run, too."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

from stillme.editors.folder import Folder
from tests.editors.hosted.providers import PROVIDERS, WORKFLOW

PAGE = (Path(__file__).parents[3] / "docs" / "editors-hosted.md").read_text()
KINDS = {"folder": Folder} | {provider.kind.name: provider.kind for provider in PROVIDERS}


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", PAGE, flags=re.DOTALL | re.MULTILINE)


(EXAMPLE,) = blocks("toml")
SECTIONS = {section["use"]: section for section in tomllib.loads(EXAMPLE)["editors"]}


def test_the_example_shows_every_editor():
    assert SECTIONS.keys() == KINDS.keys()


@pytest.mark.parametrize("use", KINDS)
def test_every_example_is_valid_and_nothing_speaks_against_it(use: str):
    kind = KINDS[use]
    editor = kind(kind.Parameters.model_validate(SECTIONS[use]["parameters"]).with_base(WORKFLOW.parent))
    assert use == "folder" or list(editor.problems([], [])) == []


@pytest.mark.parametrize("use", KINDS)
def test_the_table_names_extra_and_key_as_the_editor_declares_them(use: str):
    (row,) = re.findall(rf"^\| `{use}` \|.*$", PAGE, flags=re.MULTILINE)[:1]
    needs = KINDS[use].needs
    assert not needs.extra or f"stillme[{needs.extra}]" in row
    assert all(variable in row for variable in needs.variables)


def test_the_suite_runs_as_shown():
    (code,) = blocks("python")
    exec(code, {})
