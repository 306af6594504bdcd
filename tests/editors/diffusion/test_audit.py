"""A diffusers editor in a whole audit: stopped before the first edit, or run, resumed and recorded."""

from __future__ import annotations

import json
import re
import sqlite3
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from stillme.api.pipeline import run_stages
from stillme.audit import load
from stillme.core.errors import InvalidAudit
from stillme.core.prompts import diagnostic
from stillme.core.registry import plugin_class
from stillme.editors.diffusion.step1x import Step1XParameters
from stillme.editors.diffusion.traits import OpenParameters, presets
from tests.editors.diffusion.conftest import THIRD_PARTY, picture

pytestmark = THIRD_PARTY

WriteAudit = Callable[..., Path]


def test_a_setting_that_would_be_ignored_stops_the_audit_and_is_named(installed: None, write_audit: WriteAudit) -> None:
    editor = 'use = "qwen-image-edit-2511"\nparameters = { guidance_scale = 7.5, true_cfg_scale = 1.0 }'
    with pytest.raises(InvalidAudit) as stopped:
        load(write_audit(editor))
    # The machine has no GPU for it either, which is a problem of its own.
    [problem] = [problem for problem in stopped.value.problems if "ignored" in problem.message]
    assert problem.place == "line 9, editors[0].parameters"
    assert "`guidance_scale = 7.5` would be ignored" in problem.message


def test_a_missing_extra_gives_the_command(write_audit: WriteAudit, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("stillme.core.registry.find_spec", lambda name: None)
    with pytest.raises(InvalidAudit, match=r'run `pip install "stillme\[diffusers\]"`'):
        load(write_audit('use = "flux2-dev"'))


def test_an_audit_runs_and_a_second_run_has_nothing_to_do(offline: dict[str, Path], write_audit: WriteAudit) -> None:
    values = f'repo = "{offline["kontext"]}", steps = 2, dtype = "float32", device = "cpu", size = [64, 64]'
    extra = "extra = { _auto_resize = false }"
    folder = write_audit(f'use = "flux1-kontext"\nseeds = [42]\nparameters = {{ {values}, {extra} }}')
    first = run_stages(folder, ("edit",))
    assert first.tallies[0].counts == {"edited": 12}
    again = run_stages(folder, ("edit",))
    assert (again.tallies[0].already, again.tallies[0].done) == (12, 0)
    with sqlite3.connect(folder / "stillme.sqlite") as ledger:
        [(effective,)] = ledger.execute("SELECT effective FROM edit LIMIT 1")
    assert json.loads(effective)["guidance"] == {"cfg": False, "guidance_scale": 2.5}
    assert json.loads(effective)["batch"] == 2


PAGE = (Path(__file__).parents[3] / "docs" / "editors-diffusers.md").read_text()


def test_the_page_knows_every_editor_and_every_parameter() -> None:
    names = {*presets(), "diffusers", "step1x-edit-v1p2"}
    assert set(re.findall(r"^\| `([\w-]+)` \| (?:`\w+Pipeline`|a fork's|any, by)", PAGE, flags=re.MULTILINE)) == names
    for parameter in {*OpenParameters.model_fields, *Step1XParameters.model_fields}:
        assert f"`{parameter}`" in PAGE or f"\n{parameter} = " in PAGE or f".{parameter}]" in PAGE, parameter


@pytest.mark.parametrize("block", re.findall(r"^```toml\n(.*?)^```", PAGE, flags=re.DOTALL | re.MULTILINE))
def test_the_page_s_examples_start(block: str, tmp_path: Path) -> None:
    person = picture(tmp_path / "p.png")
    for entry in tomllib.loads(block)["editors"]:
        kind = plugin_class("editor", entry["use"])
        editor: Any = kind(kind.Parameters.model_validate(entry["parameters"]))
        problems = list(editor.problems([person], diagnostic()))
        assert [sentence for sentence in problems if "run `pip install" not in sentence] == []
