"""The example workflow is one that works: its commands, its extras, its baseline."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

from stillme.audit.rules import parse_rule
from stillme.core import registry
from tests.command_lines import parse

ROOT = Path(__file__).parent.parent
FILE = ROOT / "docs" / "examples" / "github-workflow.yml"


@pytest.fixture(scope="module")
def steps() -> list[dict[str, Any]]:
    return yaml.safe_load(FILE.read_text())["jobs"]["gate"]["steps"]


def commands(steps: list[dict[str, Any]]) -> list[str]:
    lines = [line.strip() for step in steps for line in step.get("run", "").splitlines()]
    return [line for line in lines if line.startswith("stillme ")]


def test_every_command_is_one_that_the_command_line_takes(steps: list[dict[str, Any]]):
    names = [parse(command).info_name for command in commands(steps)]
    assert names == ["run", "gate", "gate", "export"]


def test_a_rule_of_a_margin_can_be_read(steps: list[dict[str, Any]]):
    margins = [margin for command in commands(steps) for margin in parse(command).params.get("margins", ())]
    assert margins
    for margin in margins:
        parse_rule(margin)


def test_what_the_audit_uses_is_installed_and_no_more(steps: list[dict[str, Any]]):
    installed = re.search(r"stillme\[([\w,]+)\]", FILE.read_text())
    assert installed
    loaded = [
        registry.plugin_class("editor", "openai"),
        registry.plugin_class("judge", "gpt-5-mini"),
        registry.plugin_class("judge", "gemini-3-flash"),
    ]
    assert set(installed[1].split(",")) == {plugin.needs.extra for plugin in loaded}
    known = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    assert set(installed[1].split(",")) <= set(known)
    keys = {name for step in steps for name in step.get("env", {}) if name.endswith("_API_KEY")}
    assert keys == {variable for plugin in loaded for variable in plugin.needs.variables}


def test_a_baseline_is_kept_on_main_and_used_in_a_pull_request(steps: list[dict[str, Any]]):
    baseline = next(
        params["baseline"] for command in commands(steps) if (params := parse(command).params).get("baseline")
    )
    caches = {step["uses"].partition("@")[0]: step for step in steps if "cache/" in step.get("uses", "")}
    assert caches["actions/cache/save"]["with"]["path"] == caches["actions/cache/restore"]["with"]["path"]
    assert str(baseline) == caches["actions/cache/restore"]["with"]["path"]
    assert "refs/heads/main" in caches["actions/cache/save"]["if"]


@pytest.mark.parametrize("name", ["test", "soak"])
def test_our_own_workflows_call_make_on_the_pythons_that_we_support(name: str):
    (job,) = yaml.safe_load((ROOT / ".github" / "workflows" / f"{name}.yml").read_text())["jobs"].values()
    assert job["steps"][-1]["run"] == f"make {name} PYTHON=python"
    assert job.get("strategy", {"matrix": {"python": []}})["matrix"]["python"] in ([], ["3.11", "3.12", "3.13"])
