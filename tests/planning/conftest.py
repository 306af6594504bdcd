from __future__ import annotations

from pathlib import Path

import pytest

from stillme.audit.experiments import experiment


@pytest.fixture
def diagnosis(tmp_path: Path) -> Path:
    """A folder with the paper's first experiment."""
    (tmp_path / "audit.toml").write_text(experiment("diagnosis", "x"))
    return tmp_path
