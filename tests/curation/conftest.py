from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from stillme.portraits.pools import Pools, load_pools
from tests.portraits.renders import draw_renders


@pytest.fixture(scope="session")
def drawn(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("drawn") / "pools"
    draw_renders(folder)
    return folder


@pytest.fixture
def pools(drawn: Path, tmp_path: Path) -> Pools:
    """Twelve rendered candidates in four cells, already looked at; a copy of this test's own."""
    return load_pools(Path(shutil.copytree(drawn, tmp_path / "pools")))
