"""`stillme new --plugin` writes a package that installs and passes its own test."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests import processes
from tests.command_lines import invoke, ran


def test_the_package_installs_and_passes_its_own_test(tmp_path: Path):
    package, installed = tmp_path / "package", tmp_path / "installed"
    shown = ran("new", package, "--plugin", "my-grey")
    assert "Next: pip install -e" in shown.stderr
    quiet = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    subprocess.run(
        [*quiet, "--no-deps", "--no-build-isolation", "--no-index", "--target", str(installed), str(package)],
        check=True,
        timeout=120,
    )
    environment = processes.installed(installed)
    tested = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(package)],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert tested.returncode == 0, tested.stdout
    assert "3 passed" in tested.stdout
    for kind in ("editors", "judges"):
        listed = processes.stillme("list", kind, "my-grey", environment=environment)
        assert listed.returncode == 0, listed.stderr
        assert "my-grey" in listed.stdout


@pytest.mark.parametrize("name", ["My Editor", "x/y", "../x", "1st", "my_editor", ""])
def test_a_name_that_is_none_is_refused(tmp_path: Path, name: str):
    shown = invoke("new", tmp_path / "package", "--plugin", name)
    assert shown.exit_code != 0
    assert not (tmp_path / "package").exists()


def test_nothing_is_overwritten_unless_told_so(tmp_path: Path):
    (tmp_path / "README.md").write_text("mine")
    refused = invoke("new", tmp_path, "--plugin", "my-grey")
    assert refused.exit_code != 0
    assert (tmp_path / "README.md").read_text() == "mine"
    assert not (tmp_path / "pyproject.toml").exists()
    ran("new", tmp_path, "--plugin", "my-grey", "--force")


def test_a_package_is_no_experiment(tmp_path: Path):
    shown = ran("new", tmp_path, "--plugin", "my-grey", "--experiment", "roles", code=2)
    assert "leave the other options out" in shown.output
