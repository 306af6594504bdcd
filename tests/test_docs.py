"""Docs are run: every example in README and docs works as it stands."""

from __future__ import annotations

import asyncio
import math
import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any, get_args

import pytest

from stillme import audit
from stillme.api.pipeline import RunOptions, run_stages
from stillme.audit.config import Config
from stillme.core.protocols import expected_dollars
from stillme.plugins.testing import check_plugin
from stillme.portraits import portraits
from tests.editors.hosted.loopback import Asked, Loopback, Says, serving
from tests.processes import installed, typed
from tests.runs import fill, people, scores, write_audit

ROOT = Path(__file__).parent.parent
SHORT = '[portraits]\nsource = "synthetic"\nlimit = 2\n[prompts]\nonly = ["O-01"]\n'
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]


def blocks(page: Path, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", page.read_text(), flags=re.DOTALL | re.MULTILINE)


@pytest.mark.xdist_group("site")
def test_every_command_of_the_readme_works(tmp_path: Path, demo: tuple[Path, str]):
    lines = [line for block in blocks(ROOT / "README.md", "sh") for line in block.splitlines()]
    ran = [line for line in lines if line.startswith("stillme ")]
    assert len(ran) >= 8
    folder, printed = demo
    shutil.copytree(folder, tmp_path / folder.name)
    (shown,) = blocks(ROOT / "README.md", "text")
    assert not set(shown.splitlines()) - set(printed.splitlines()), "README shows what the demo does not print"
    for line in ran:
        code = re.search(r"exit code (\d)", line)
        done = typed(line, cwd=tmp_path, environment=installed())
        assert done.returncode == (int(code[1]) if code else 0), (line, done.stdout)
        if line.startswith("stillme new"):
            _take_over(tmp_path / "my-audit" / "audit.toml")
    promised = re.findall(r"^\| `([\w./*]+)` \|", (ROOT / "README.md").read_text(), flags=re.MULTILINE)
    for name in promised:
        assert list((tmp_path / "my-audit").glob(name.rstrip("/"))), f"README promises {name}"


def test_each_door_of_the_readme_opens_with_ones_own_function_files_and_pictures(tmp_path: Path):
    doors = next(line for line in (ROOT / "README.md").read_text().splitlines() if line.startswith("| `stillme new"))
    commands = re.findall(r"`(stillme [^`]+)`", doors)
    assert [command.split()[1] for command in commands] == ["new", "run", "new", "plan", "check"]
    for name, portrait in zip(("SOURCE.png", "EDITED.png"), portraits(), strict=False):
        (tmp_path / name).write_bytes(portrait.image.path.read_bytes())
    for command in commands:
        if command.startswith("stillme run"):
            function = "def edit(image, instruction, seed):\n    return image.convert('L')\n"
            (tmp_path / "my-audit" / "my_module.py").write_text(function)
            command += " --limit 2"
        if "--editor folder" in command:
            shutil.rmtree(tmp_path / "my-audit")
        done = typed(command, cwd=tmp_path, environment=installed())
        assert done.returncode == 0, (command, done.stdout, done.stderr)
    assert "my-audit/edits/A_f_23/O-01.png" in (tmp_path / "requests.csv").read_text()


def _take_over(file: Path) -> None:
    """The demo made and judged the same edits, of smaller copies of the same portraits."""
    text = file.read_text()
    assert 'source = "synthetic"' in text
    text = text.replace('source = "synthetic"', 'source = "../stillme-demo/portraits"')
    file.write_text(f'{text}\n[reuse]\nruns = ["../stillme-demo"]\n')


def test_every_make_target_of_the_docs_exists():
    targets = set(re.findall(r"^(\w+):", (ROOT / "Makefile").read_text(), flags=re.MULTILINE))
    named = {
        name for page in PAGES for name in re.findall(r"^(?:    )?make (\w+)", page.read_text(), flags=re.MULTILINE)
    }
    assert {"demo", "test"} <= named <= targets


def test_the_example_audit_uses_every_section_and_loads(tmp_path: Path):
    (example,) = blocks(ROOT / "docs" / "audit.md", "toml")
    assert set(tomllib.loads(example)) == set(Config.model_fields)
    (tmp_path / "audit.toml").write_text(example)
    loaded = audit.load(tmp_path)
    # 20 sampled cells and one role sentence as a pair and with each of the two alone, both under two arms; and who is
    # there once as a no-op.
    assert loaded.request_count(loaded.editors[0]) == ((20 + 3) * 2 + 12) * 2


def test_the_table_of_keys_knows_every_key():
    page = (ROOT / "docs" / "audit.md").read_text()
    for name, section in Config.model_fields.items():
        inner = next(iter(get_args(section.annotation)), section.annotation)
        for key in getattr(inner, "model_fields", None) or [name]:
            assert f"`{key}`" in page or f"{name}.{key}`" in page or f"{name}[].{key}`" in page, f"{name}.{key}"


def test_the_example_functions_run_an_audit(tmp_path: Path):
    page = ROOT / "docs" / "plugins.md"
    (tmp_path / "my_module.py").write_text(blocks(page, "python")[0])
    (tmp_path / "audit.toml").write_text(SHORT + blocks(page, "toml")[0])
    summary = run_stages(tmp_path, ("edit", "judge", "estimate", "report"))
    assert [tally.counts for tally in summary.tallies] == [{"edited": 2}, {"judged": 2}]


def test_the_example_reader_reads(tmp_path: Path):
    page = ROOT / "docs" / "readings.md"
    (tmp_path / "reader.py").write_text(blocks(page, "python")[0])
    model, function = blocks(page, "toml")
    assert tomllib.loads(model)["readings"]["judges"] == ["gemini-3-flash"]
    plugins = '[[editors]]\nuse = "planted"\n[[judges]]\nuse = "scripted"\n'
    (tmp_path / "audit.toml").write_text(SHORT + plugins + function)
    summary = run_stages(tmp_path, ("edit", "judge"))
    assert [tally.counts for tally in summary.tallies] == [{"edited": 2}, {"judged": 2}, {"read": 6}]
    # The same pictures with a table of readings: another reader, by their hashes.
    (tmp_path / "reader.py").write_text(blocks(page, "python")[1])
    pictures = (path.stem for path in (tmp_path / "images").rglob("*") if path.is_file())
    (tmp_path / "readings.csv").write_text(
        "\n".join(["sha256,race,gender,age", *(f"{each},A,,40" for each in pictures)])
    )
    summary = run_stages(tmp_path, ("judge",), RunOptions(allow_changes=True))
    assert summary.tallies[-1].counts == {"read": 6}


def test_the_example_programs_run_an_audit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    page = ROOT / "docs" / "plugins.md"
    _, edit, rate, *_ = blocks(page, "python")
    (tmp_path / "edit.py").write_text(edit)
    (tmp_path / "rate.py").write_text(rate)
    (tmp_path / "audit.toml").write_text(SHORT + blocks(page, "toml")[1])
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    summary = run_stages(tmp_path, ("edit", "judge", "estimate"))
    assert [tally.counts for tally in summary.tallies] == [{"edited": 2}, {"judged": 2}]


def test_the_example_addresses_load(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("EXAMPLE_KEY", "sk-example-0123456789")
    (tmp_path / "audit.toml").write_text(SHORT + blocks(ROOT / "docs" / "plugins.md", "toml")[2])
    loaded = audit.load(tmp_path)
    assert expected_dollars(loaded.editors[0].editor) == 0.04
    assert expected_dollars(loaded.judges[0].judge) == 0.0


def test_the_example_classes_conform(monkeypatch: pytest.MonkeyPatch):
    _, _, _, editor, hosted, judge = blocks(ROOT / "docs" / "plugins.md", "python")
    names: dict[str, Any] = {"__name__": "docs_plugins"}
    for code in (editor, hosted, judge):
        exec(code, names)
    check_plugin(names["Grey"], portraits()[:2], {"strength": 0.5})
    check_plugin(names["Brighter"], portraits()[:2])
    monkeypatch.setenv("EXAMPLE_KEY", "sk-example-0123456789")

    def returns_it(_: Loopback, asked: Asked) -> Says:
        assert asked.headers["authorization"] == "Bearer sk-example-0123456789"
        return Says(body={"image": asked.json["image"].partition(",")[2]})

    with serving(returns_it) as server:
        check_plugin(names["Example"], portraits()[:2], {"base_url": server.url, "price": {"image": 0.04}})


@pytest.mark.parametrize("place", [0, 1], ids=["mlflow", "wandb"])
def test_the_lines_for_trackers_hand_over_frames(place: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    fill(write_audit(tmp_path / "my-run", people(tmp_path / "people", per_group=2)), lambda *_: scores())
    given: list[Any] = []
    tracker = ModuleType("tracker")
    for name in ("log_table", "log_artifact", "log"):
        setattr(tracker, name, lambda *parts: given.extend(parts))
    tracker.Table = lambda dataframe: dataframe  # pyright: ignore[reportAttributeAccessIssue]
    for name in ("mlflow", "wandb"):
        monkeypatch.setitem(sys.modules, name, tracker)
    monkeypatch.chdir(tmp_path)
    exec(blocks(ROOT / "docs" / "publishing.md", "python")[place], {})
    frame = given[0] if place == 0 else given[0]["stillme"]
    assert {"quantity", "value", "low", "high", "portraits"} <= set(frame.columns)
    if place == 0:
        assert Path(given[2]).name == "report.html"


def test_the_scorer_for_inspect_measures_a_pair(monkeypatch: pytest.MonkeyPatch):
    framework = ModuleType("inspect_ai.scorer")
    framework.Score = lambda **parts: parts  # pyright: ignore[reportAttributeAccessIssue]
    framework.mean = framework.stderr = lambda **_: None  # pyright: ignore[reportAttributeAccessIssue]
    framework.scorer = lambda **_: lambda function: function  # pyright: ignore[reportAttributeAccessIssue]
    monkeypatch.setitem(sys.modules, "inspect_ai", ModuleType("inspect_ai"))
    monkeypatch.setitem(sys.modules, "inspect_ai.scorer", framework)
    names: dict[str, Any] = {}
    exec(blocks(ROOT / "docs" / "publishing.md", "python")[2], names)
    score = names["keeps_person"]()
    picture = str(portraits()[0].image.path)
    same = asyncio.run(score(SimpleNamespace(metadata={"source": picture, "edited": picture}), None))
    assert same["value"] == pytest.approx({"skin_delta_l": 0.0, "identity_distance": 0.0}, abs=1e-6)
    nothing = asyncio.run(score(SimpleNamespace(metadata={"source": picture}), None))
    assert all(math.isnan(value) for value in nothing["value"].values())


def test_the_page_of_commands_is_what_help_says():
    # In a process of its own: click keeps what the first caller of a command wanted its help option to be called.
    script = "import sys; sys.path.insert(0, 'tools'); import commands_page; sys.stdout.write(commands_page.page())"
    made = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=True)
    assert (ROOT / "docs" / "commands.md").read_text() == made.stdout, "run `python tools/commands_page.py`"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_pages_name_no_path_of_one_machine(page: Path):
    assert not re.search(r"/(work|root|tmp|home)/", page.read_text())
