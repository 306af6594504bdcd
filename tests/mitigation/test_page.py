"""The page on mitigation works as it stands."""

from __future__ import annotations

import shlex
import shutil
import tomllib
from pathlib import Path

import pytest
from PIL import Image

from stillme.audit.config import Config
from stillme.mitigation.arms import placebo
from stillme.mitigation.labels import lint
from stillme.portraits import portraits
from tests.command_lines import ran
from tests.test_docs import ROOT, blocks

PAGE = ROOT / "docs" / "mitigation.md"


@pytest.fixture
def _anna(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with Image.open(portraits()[0].image.path) as picture:
        picture.save("anna.png")
    shutil.copy(portraits()[0].image.path, "anna.webp")


@pytest.mark.usefixtures("_anna")
def test_the_commands_work():
    (block,) = blocks(PAGE, "sh")
    for line in block.splitlines():
        ran(*shlex.split(line)[1:])
    assert Path("anna-mitigated.png").exists()


@pytest.mark.usefixtures("_anna")
def test_the_python_example_works():
    names: dict[str, object] = {}
    (code,) = blocks(PAGE, "python")
    exec(code, names)
    assert str(names["instruction"]).startswith("Maintain the person's deep brown skin")


def test_the_configurations_are_valid():
    for block in blocks(PAGE, "toml"):
        rest = {"editors": [{"use": "noop"}], "judges": [{"use": "scripted"}]}
        Config.model_validate({**rest, **tomllib.loads(block)})


def test_the_placebo_shown_is_as_long_as_its_sentence():
    sentence, shown = (line.strip() for line in PAGE.read_text().splitlines() if line.startswith("    Maintain"))
    assert (len(sentence), len(sentence.split())) == (len(shown), len(shown.split()))
    assert lint(shown) == ()
    assert len(placebo(sentence, "any").split()) == len(shown.split())
