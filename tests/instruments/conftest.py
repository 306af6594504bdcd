from __future__ import annotations

import importlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest


@pytest.fixture
def tool(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Any]:
    """A module of the tools that measure the instruments."""
    tools = Path(__file__).parents[2] / "tools" / "models"
    if not tools.exists():
        pytest.skip("the tools are not part of a source distribution")
    monkeypatch.syspath_prepend(str(tools))
    return importlib.import_module
