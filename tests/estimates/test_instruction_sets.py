"""The same rows give the same bytes under every instruction set of this processor."""

from __future__ import annotations

import platform
import subprocess
import sys
from pathlib import Path

import pytest

from . import instruction_sets

HERE = Path(__file__).parents[2]


def written(folder: Path, environment: dict[str, str]) -> dict[str, bytes]:
    # Warnings are errors here too, as for a numpy that does not know a feature.
    command = [sys.executable, "-W", "error", "-m", "tests.estimates.fixed_rows", str(folder)]
    subprocess.run(command, env=environment, cwd=HERE, check=True)
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_tables_and_analyses_are_the_same_byte_for_byte(tmp_path: Path) -> None:
    environments = instruction_sets.older()
    if not environments:
        pytest.skip(f"no second instruction set is known for {platform.machine()}")
    expected = written(tmp_path / "native", instruction_sets.native())
    assert len(expected) == 12
    for name, environment in environments.items():
        files = written(tmp_path / name, environment)
        for path, content in expected.items():
            assert files[path].splitlines() == content.splitlines(), f"{path} differs {name}"
        assert files == expected
