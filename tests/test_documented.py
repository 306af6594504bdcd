"""Nothing is offered without documentation: commands, options, keys, columns, names, hooks. No link is dead."""

from __future__ import annotations

import csv
import re
import subprocess
import sys
from collections.abc import Iterator
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import get_args

import click
import pytest
from pydantic import BaseModel

import stillme
from stillme import estimates, plugins
from stillme.audit.config import schema_of
from stillme.core import registry
from stillme.findings.calibration import standing_of
from stillme.findings.tables.analyses import ANALYSES, analyse
from stillme.findings.tables.estimates import write_tables
from stillme.plugins import testing
from stillme.runs import RecordedRun
from stillme.study.config import StudyConfig
from tests.command_lines import commands
from tests.runs import fill, group, luck, people, scores, write_audit

ROOT = Path(__file__).parent.parent
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / ".github").rglob("*.md")])
MADE = {"commands.md", "reference.md"}
"""Pages that are made from code explain nothing by themselves."""


def text_of(name: str) -> str:
    return (ROOT / "docs" / name).read_text()


@pytest.mark.parametrize(
    ("name", "command"), list(commands()), ids=lambda value: value if isinstance(value, str) else ""
)
def test_every_command_and_option_is_explained(name: str, command: click.Command):
    assert command.help, f"{name} has no help"
    for parameter in command.params:
        if isinstance(parameter, click.Option):
            assert parameter.help, f"{name} {parameter.opts[0]} has no help"
    written = "\n".join(page.read_text() for page in PAGES if page.name not in MADE)
    assert re.search(rf"{re.escape(name)}\b", written), f"no page that people wrote mentions `{name}`"


def test_every_key_of_study_toml_is_explained():
    schema = schema_of(StudyConfig, "study.toml")
    keys = set(study_keys(StudyConfig))
    assert "recruiting.codes.no_consent" in keys
    for key in keys:
        section, *inner = key.split(".")
        value = schema["properties"][section]
        for name in inner:
            (reference,) = (each["$ref"] for each in (value, *value.get("anyOf", ())) if "$ref" in each)
            value = schema["definitions"][reference.rpartition("/")[2]]["properties"][name]
        assert value.get("description"), key


def study_keys(section: type[BaseModel], prefix: str = "") -> Iterator[str]:
    for name, field in section.model_fields.items():
        parts = (field.annotation, *get_args(field.annotation))
        inner = next((part for part in parts if isinstance(part, type) and issubclass(part, BaseModel)), None)
        if inner:
            yield from study_keys(inner, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}"


@pytest.mark.parametrize(
    ("module", "page"), [(stillme, "python.md"), (plugins, "reference.md"), (testing, "reference.md")], ids=str
)
def test_every_exported_name_is_explained(module: ModuleType, page: str):
    for name in module.__all__:
        assert f"`{name}`" in text_of(page), f"{module.__name__}.{name} is not in {page}"


def test_every_kind_of_plugin_has_its_entry_point_explained():
    for kind in ("editors", "judges", "prompts", "portraits"):
        assert f"stillme.{kind}" in text_of("plugins.md")
    assert {f"stillme.{name}" for name in registry._LISTED_BY.values()} == {
        f"stillme.{kind}" for kind in ("editors", "judges", "prompts", "portraits")
    }


@pytest.fixture(scope="module")
def reference() -> ModuleType:
    spec = spec_from_file_location("reference_page", ROOT / "tools" / "reference_page.py")
    assert spec
    assert spec.loader
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_reference_is_what_the_code_says():
    script = "import sys; sys.path.insert(0, 'tools'); import reference_page; sys.stdout.write(reference_page.page())"
    made = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=False)
    assert made.returncode == 0, made.stderr
    assert text_of("reference.md") == made.stdout, "run `python tools/reference_page.py`"


def test_a_name_without_a_docstring_stops_the_reference(reference: ModuleType):
    with pytest.raises(SystemExit, match="no docstring"):
        reference.first_line("nameless", type("Nameless", (), {}))
    with pytest.raises(SystemExit, match="no meaning"):
        list(reference.table([("strange", "")]))


def test_every_column_that_is_written_is_in_the_reference(reference: ModuleType, tmp_path: Path):
    audit = write_audit(
        tmp_path / "run",
        people(tmp_path / "people", per_group=6),
        editors=("one", "two"),
        judges=("first", "second"),
        prompts=("O-01", "V-01"),
        arms=("baseline", "noop"),
    )
    run = RecordedRun.open(fill(audit, lambda _, asked: scores(skin=3 + (group(asked) == "b") * (luck(asked) < 0.7))))
    computed = estimates.estimate(run.results.edits, run.results.scores, run.settings)
    page = text_of("reference.md")
    first = (
        page[page.index("### tables/estimates.csv") :].split("\n### ")[0] + page.split("### tables/estimates.csv")[1]
    )
    for file in write_tables(computed, tmp_path, run.settings, standing_of(run))[:3]:
        for column in heads(file):
            assert f"| `{column}` |" in first, f"{file.name}: {column}"
    written = {name: table.path for name, table in analyse(run, only=list(ANALYSES)).items() if table.rows}
    assert len(written) >= 10
    for name, path in written.items():
        known = reference.columns_of(name)
        for column in heads(path):
            assert column in known, f"{path.name}: {column}"


def heads(file: Path) -> list[str]:
    with file.open(newline="") as stream:
        return next(csv.reader(stream))


# -- links -------------------------------------------------------------------------------------------------------


def without_code(text: str) -> str:
    text = re.sub(r"^```.*?^```", "", text, flags=re.DOTALL | re.MULTILINE)
    return re.sub(r"`[^`\n]*`", "", text)


def anchors(page: Path) -> set[str]:
    """The anchors of a page's headings, as GitHub makes them."""
    found: set[str] = set()
    text = re.sub(r"^```.*?^```", "", page.read_text(), flags=re.DOTALL | re.MULTILINE)
    for heading in re.findall(r"^#+ (.+)$", text, flags=re.MULTILINE):
        plain = re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", heading).replace("`", "").strip().lower()
        anchor = re.sub(r"[^\w\- ]", "", plain).replace(" ", "-")
        repeated = sum(other == anchor or other.startswith(f"{anchor}-") for other in found) if anchor in found else 0
        found.add(f"{anchor}-{repeated}" if repeated else anchor)
    return found


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_no_link_is_dead(page: Path):
    for target in re.findall(r"\]\(\s*<?([^)\s>]+)", without_code(page.read_text())):
        if re.match(r"[a-z]+:", target):
            continue
        path, _, anchor = target.partition("#")
        to = (page.parent / path).resolve() if path else page
        assert to.exists(), f"{page.name} links to {target}"
        if anchor and to.suffix == ".md":
            assert anchor in anchors(to), f"{page.name} links to {target}, but {to.name} has no such heading"


def test_addresses_are_https():
    for page in PAGES:
        for address in re.findall(r"\]\((http://[^)]+)\)", page.read_text()):
            assert re.match(r"http://(localhost|127\.0\.0\.1)", address), f"{page.name}: {address}"
