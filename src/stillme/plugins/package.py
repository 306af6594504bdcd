"""Write a small package with an editor and a judge, which installs and passes its own test."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

from stillme.core.errors import StillmeError
from stillme.core.files import write_whole

PYPROJECT = """\
[build-system]
requires = ["hatchling"]
build-backend = "hatchling.build"

[project]
name = "NAME"
version = "0.1.0"
description = "An editor and a judge for stillme."
readme = "README.md"
requires-python = ">=3.11"
dependencies = ["stillme"]

[project.entry-points."stillme.editors"]
NAME = "MODULE:CLASSEditor"

[project.entry-points."stillme.judges"]
NAME = "MODULE:CLASSJudge"

[tool.hatch.build.targets.wheel]
packages = ["src/MODULE"]
"""

MODULE = '''\
"""An editor and a judge for stillme: replace what they do, and keep what they declare true."""

from __future__ import annotations

from stillme.plugins import (
    Assessment,
    Capabilities,
    Edited,
    Editor,
    EditOutcome,
    Judge,
    JudgeCapabilities,
    Pair,
    Parameters,
    Rated,
    Request,
    images,
)


class CLASSEditorParameters(Parameters):
    """What an audit can set."""

    strength: float = 1.0
    """From 0, the portrait as it is, to 1, grey."""


class CLASSEditor(Editor):
    """Takes the colour out of a portrait."""

    Parameters = CLASSEditorParameters
    name = "NAME"
    version = "1"  # part of every result's key: change it whenever the same input would give another output
    capabilities = Capabilities(seed="exact")

    def __init__(self, parameters: CLASSEditorParameters) -> None:
        super().__init__(parameters)
        self._strength = parameters.strength

    def edit_one(self, request: Request) -> EditOutcome:
        """One outcome. What goes wrong is a `Failed`, a policy refusal a `Refused`."""
        rgb = images.read_rgb(request.portraits[0].image.path)
        grey = rgb.mean(axis=-1, keepdims=True)
        return Edited(image=images.encode_png((rgb + self._strength * (grey - rgb)).astype("uint8")))


class CLASSJudge(Judge):
    """Measures how much brighter an edit is than its source."""

    name = "NAME"
    version = "1"
    capabilities = JudgeCapabilities(kind="instrument", axes=("brighter",))

    def judge_one(self, pair: Pair) -> Assessment:
        """One assessment, with a rating on every axis."""
        before, after = images.read_rgb(pair.sources[0].path), images.read_rgb(pair.edited.path)
        return Assessment(ratings={"brighter": Rated(score=float(after.mean() - before.mean()))})
'''

TEST = '''\
"""The editor and the judge keep what they declare, and an audit finds them by name."""

from __future__ import annotations

from stillme.core import registry
from stillme.plugins import synthetic_portraits
from stillme.plugins.testing import check_plugin

from MODULE import CLASSEditor, CLASSJudge

PORTRAITS = synthetic_portraits()[:2]


def test_the_editor_conforms():
    check_plugin(CLASSEditor, PORTRAITS, {"strength": 0.5})


def test_the_judge_conforms():
    check_plugin(CLASSJudge, PORTRAITS)


def test_an_audit_finds_both_by_name():
    assert registry.plugin_class("editor", "NAME") is CLASSEditor
    assert registry.plugin_class("judge", "NAME") is CLASSJudge
'''

README = """\
# NAME

An editor and a judge for stillme.

    pip install -e .
    pytest
    stillme list editors NAME

Then every audit on this machine can use them:

    [[editors]]
    use = "NAME"
    [editors.parameters]
    strength = 0.5

    [[judges]]
    use = "NAME"
"""


def write_package(folder: Path, name: str, *, force: bool = False) -> Path:
    """Write the package, and return its folder. Nothing is overwritten unless told so."""
    if not re.fullmatch(r"[a-z][a-z0-9]*(-[a-z0-9]+)*", name):
        raise StillmeError(f"{name!r} is not a name for a plugin. Use small letters, digits and hyphens: my-editor.")
    contents = _contents(name)
    existing = [file for file in contents if (folder / file).exists()]
    if existing and not force:
        raise StillmeError(
            f"{folder / existing[0]} already exists. Choose another folder, or overwrite it with --force."
        )
    for file, text in contents.items():
        (folder / file).parent.mkdir(parents=True, exist_ok=True)
        write_whole(folder / file, text)
    return folder


def _contents(name: str) -> Mapping[str, str]:
    module = name.replace("-", "_")
    title = "".join(part.capitalize() for part in name.split("-"))

    def written(template: str) -> str:
        return template.replace("NAME", name).replace("MODULE", module).replace("CLASS", title)

    return {
        "pyproject.toml": written(PYPROJECT),
        "README.md": written(README),
        f"src/{module}/__init__.py": written(MODULE),
        f"tests/test_{module}.py": written(TEST),
    }
