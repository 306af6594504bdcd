"""Files to copy work as they stand: scripts, a notebook, the Action."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import nbclient
import nbformat
import pytest
import yaml

from stillme import portraits as embedded
from stillme.api.demo import shrink_into
from stillme.api.pipeline import run_stages
from tests.processes import installed
from tests.runs import fill, group, people, scores, write_audit

ROOT = Path(__file__).parent.parent
EXAMPLES = ROOT / "docs" / "examples"
ACTION = yaml.safe_load((ROOT / "action.yml").read_text())


def test_python_takes_fifteen_lines(tmp_path: Path):
    script = (EXAMPLES / "python_api.py").read_text()
    assert sum(bool(line.strip()) for line in script.splitlines()) <= 15
    (tmp_path / "example.py").write_text(script.replace('{"size": 12}', '{"size": 4}'))
    shown = subprocess.run(
        [sys.executable, "example.py"], cwd=tmp_path, capture_output=True, text=True, timeout=300, env=installed()
    )
    assert shown.returncode == 0, shown.stderr
    assert "changed_area" in shown.stdout
    assert (tmp_path / "my-run" / "report.html").exists()


def test_the_notebook_draws_the_figures_of_a_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    audit = write_audit(tmp_path / "run", people(tmp_path / "people"), prompts=("O-01", "V-01"))
    run = fill(audit, lambda _, asked: scores(skin=4 if group(asked) == "b" else 3))
    # A kernel is a process of its own: it takes the interpreter of this one.
    monkeypatch.setenv("RUN", str(run))
    monkeypatch.setenv("JUPYTER_PATH", str(_kernel(tmp_path)))
    notebook = nbformat.read(EXAMPLES / "figures.ipynb", as_version=4)
    assert not any(cell.get("outputs") for cell in notebook.cells), "it is shipped without output"
    monkeypatch.chdir(tmp_path)
    nbclient.NotebookClient(notebook, timeout=300, kernel_name="stillme-test").execute()
    outputs = [output for cell in notebook.cells for output in cell.get("outputs", ())]
    pages = [output["data"]["text/html"] for output in outputs if "text/html" in output.get("data", {})]
    assert "Did people stay the same, for everyone?" in pages[0], "a run shows its verdicts"
    assert sum("image/svg+xml" in output.get("data", {}) for output in outputs) == 1
    assert (tmp_path / "figure.svg").read_text().count("Skin lightened by group") == 1
    assert any("Table 4" in page for page in pages), "a table of the paper shows itself"
    assert any("<progress" in page and "grey" in page for page in pages), "a run shows its progress"


def _kernel(folder: Path) -> Path:
    place = folder / "jupyter" / "kernels" / "stillme-test"
    place.mkdir(parents=True)
    start = [sys.executable, "-m", "ipykernel_launcher", "-f", "{connection_file}"]
    (place / "kernel.json").write_text(json.dumps({"argv": start, "display_name": "test", "language": "python"}))
    return folder / "jupyter"


@pytest.mark.filterwarnings("ignore:__array__ implementation doesn't accept a copy keyword:DeprecationWarning")
@pytest.mark.skipif(
    find_spec("diffusers") is None, reason="diffusers is not installed: pip install 'stillme[diffusers]'"
)
def test_a_pipeline_of_ones_own_runs_an_audit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    from tests.editors.diffusion import tiny

    tiny.allow_torchvision()
    monkeypatch.setenv("PIPELINE", str(tiny.pix2pix(tmp_path / "weights")))
    shutil.copy(EXAMPLES / "own_pipeline.py", tmp_path)
    # Here torchvision only works as `allow_torchvision` leaves it, which a process of its own would not know.
    editor = '[executor]\nisolate = false\n[[editors]]\nuse = "python:./own_pipeline.py:edit"\nname = "own"\n'
    shrink_into(tmp_path / "small", embedded.portraits()[:2], longest=128)
    short = '[portraits]\nsource = "./small"\n[prompts]\nonly = ["O-01"]\n'
    (tmp_path / "audit.toml").write_text(short + editor + '[[judges]]\nuse = "instruments"\n')
    summary = run_stages(tmp_path, ("edit", "judge"))
    assert [tally.counts for tally in summary.tallies] == [{"edited": 2}, {"judged": 2}]


# -- the Action --------------------------------------------------------------------------------------------------


def steps() -> list[dict[str, Any]]:
    return ACTION["runs"]["steps"]


def test_no_input_of_the_action_is_part_of_a_script():
    for step in steps():
        assert "${{" not in step.get("run", ""), step["name"]
        assert step.get("shell") == "bash" or "uses" in step


def test_the_action_uses_what_it_declares():
    used = set(re.findall(r"inputs\.([\w-]+)", (ROOT / "action.yml").read_text()))
    assert used == set(ACTION["inputs"])
    ids = {step["id"]: step["run"] for step in steps() if "id" in step}
    for name, output in ACTION["outputs"].items():
        step, key = re.search(r"steps\.(\w+)\.outputs\.(\w+)", output["value"]).groups()  # pyright: ignore[reportOptionalMemberAccess]
        assert f'"{key}=' in ids[step], name


def test_the_action_runs_gates_and_seals(tmp_path: Path):
    audit = tmp_path / "audits" / "editor" / "audit.toml"
    audit.parent.mkdir(parents=True)
    text = '[portraits]\nonly = { preset = "A" }\n[prompts]\nonly = ["O-01"]\n[[editors]]\nuse = "noop"\n'
    audit.write_text(f'{text}[[judges]]\nuse = "instruments"\n[claims]\nrules = ["unchanged <= 5%"]\n')
    given = {name: str(entry.get("default", "")) for name, entry in ACTION["inputs"].items()}
    given |= {"audit": "audits/editor", "baseline": "nowhere.zip", "margins": "failed <= 5%\n"}
    scripts = {step["name"]: step for step in steps() if "run" in step and step["name"] != "Install"}
    codes = {name: _run_step(step, given, tmp_path) for name, step in scripts.items()}
    assert codes == {"Run the audit": 0, "Gate": 1, "Seal the evidence": 0}
    outputs = dict(line.split("=", 1) for line in (tmp_path / "output").read_text().splitlines())
    assert set(outputs) == set(ACTION["outputs"])
    assert all((tmp_path / path).exists() for path in outputs.values())
    assert (tmp_path / "summary").read_text()
    audit.write_text(audit.read_text().replace("unchanged <= 5%", "failed <= 50%"))
    assert [_run_step(scripts[name], given, tmp_path) for name in ("Run the audit", "Gate")] == [0, 0]


def _run_step(step: dict[str, Any], given: dict[str, str], folder: Path) -> Any:
    variables = {
        name: re.sub(r"\$\{\{ inputs\.([\w-]+) \}\}", lambda found: given[found[1]], str(value))
        for name, value in step["env"].items()
    }
    files = {"GITHUB_OUTPUT": str(folder / "output"), "GITHUB_STEP_SUMMARY": str(folder / "summary")}
    shown = subprocess.run(
        ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", step["run"]],
        cwd=folder,
        env=installed() | files | variables,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert shown.returncode in (0, 1), shown.stderr
    return shown.returncode


@pytest.mark.parametrize(
    ("source", "extras", "asked"),
    [
        ("", "", "stillme @ file:///action"),
        ("", "hosted,judges", "stillme[hosted,judges] @ file:///action"),
        ("git+https://example.org/stillme", "hosted", "stillme[hosted] @ git+https://example.org/stillme"),
    ],
)
def test_the_action_installs_what_it_was_told(tmp_path: Path, source: str, extras: str, asked: str):
    (install,) = (step["run"] for step in steps() if step.get("name") == "Install")
    fake = tmp_path / "python"
    fake.write_text('#!/bin/sh\nprintf "%s\\n" "$@"\n')
    fake.chmod(0o755)
    variables = {
        "SOURCE": source,
        "EXTRAS": extras,
        "HERE": "/action",
        "PATH": f"{tmp_path}{os.pathsep}{os.environ['PATH']}",
    }
    shown = subprocess.run(["bash", "-ec", install], env=variables, capture_output=True, text=True, check=True)
    assert shown.stdout.splitlines() == ["-m", "pip", "install", asked]
