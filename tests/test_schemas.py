"""The JSON Schemas accept what stillme accepts, and find what it refuses."""

from __future__ import annotations

import json
import re
import tomllib
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from jsonschema import Draft7Validator

from stillme.audit.config import audit_schema, schema_of
from stillme.audit.experiments import Setup, experiment
from stillme.audit.template import small_audit
from stillme.cli import cli
from stillme.study.config import StudyConfig
from tests.command_lines import invoke

ROOT = Path(__file__).parent.parent


@pytest.fixture(scope="module")
def validator() -> Draft7Validator:
    schema = audit_schema()
    Draft7Validator.check_schema(schema)
    return Draft7Validator(schema)


def errors(validator: Draft7Validator, text: str) -> list[str]:
    return [
        f"{'.'.join(map(str, error.path))}: {error.message}" for error in validator.iter_errors(tomllib.loads(text))
    ]


@pytest.mark.parametrize("name", ["diagnosis", "mitigation", "roles"])
@pytest.mark.parametrize("as_paper", [False, True])
def test_the_papers_experiments_are_valid(validator: Draft7Validator, name: Any, as_paper: bool):
    assert errors(validator, experiment(name, "a title", Setup(as_paper=as_paper))) == []


def test_the_small_audit_is_valid(validator: Draft7Validator):
    assert errors(validator, small_audit("a title")) == []


def test_every_editor_and_judge_in_the_docs_is_valid(validator: Draft7Validator):
    checked = 0
    for page in sorted((ROOT / "docs").glob("*.md")):
        for block in re.findall(r"^```toml\n(.*?)^```", page.read_text(), flags=re.DOTALL | re.MULTILINE):
            tables = tomllib.loads(block)
            if not set(tables) <= set(validator.schema["properties"]):
                continue
            found = [error for error in validator.iter_errors(tables) if error.validator != "required"]
            assert found == [], f"{page.name}: {found[0].message}"
            checked += 1
    assert checked >= 5


@pytest.mark.parametrize(
    ("text", "where"),
    [
        ("[estimate]\nseed = 1", "estimate"),
        ("[executor]\nworkers = 0", "executor.workers"),
        ('[[editors]]\nuse = "plantd"', "editors.0.use"),
        ('[[editors]]\nuse = "planted"\n[editors.parameters]\nbias = 1', "editors.0.parameters"),
        ('[[judges]]\nuse = "vlm"\n[judges.parameters]\nconcurrency = "many"', "judges.0.parameters.concurrency"),
    ],
)
def test_a_mistake_is_found_while_one_types(validator: Draft7Validator, text: str, where: str):
    found = [error for error in validator.iter_errors(tomllib.loads(text)) if error.validator != "required"]
    assert any(where in f"{'.'.join(map(str, error.path))} {error.message}" for error in found)


def test_every_key_of_audit_toml_is_explained():
    schema = audit_schema()
    sections = {name: table for name, table in schema["definitions"].items() if name.endswith("Section")}
    assert len(sections) >= 14
    for name, table in sections.items():
        for key, value in table["properties"].items():
            assert value.get("description"), f"{name}.{key} has no docstring in audit/config.py"


def test_the_schema_of_a_study_is_valid():
    Draft7Validator.check_schema(schema_of(StudyConfig, "study.toml"))
    assert json.loads(invoke("schema", "study").stdout)["title"] == "study.toml of stillme"


def test_a_new_audit_names_its_schema(tmp_path: Path):
    CliRunner().invoke(cli, ["new", str(tmp_path / "a")], catch_exceptions=False)
    first, _, text = (tmp_path / "a" / "audit.toml").read_text().partition("\n")
    assert first == "#:schema audit.schema.json"
    schema = json.loads((tmp_path / "a" / "audit.schema.json").read_text())
    assert errors(Draft7Validator(schema), text) == []
