"""The same numbers as R's and ppi_py's, on recorded data: `tools/crosscheck` makes them where these are installed."""

from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path
from types import ModuleType

import pytest

pytestmark = pytest.mark.numeric

ROOT = Path(__file__).parents[2]


def tool(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, ROOT / "tools" / "crosscheck" / f"{name}.py")
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    # Dataclasses look their module up.
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def test_every_number_agrees_with_r() -> None:
    crosscheck = tool("crosscheck")
    theirs = json.loads(crosscheck.RECORDED.read_text("utf-8"))
    ours = crosscheck.by_stillme()
    assert len(theirs) > 20
    for name, value in theirs.items():
        assert ours[name] == pytest.approx(value, rel=0, abs=crosscheck.TOLERANCE.get(name, 1e-9)), name


def test_corrected_numbers_agree_with_ppi_py() -> None:
    """Where a portrait is the unit there too; with rows as units its errors are too small for four edits each."""
    ppi = tool("ppi")
    theirs = json.loads(ppi.RECORDED.read_text("utf-8"))
    ours = ppi.by_stillme()
    by_rows = {name: value for name, value in theirs.items() if name.startswith(ppi.BY_ROWS)}
    assert set(theirs) == {*ours, *by_rows}
    for name, value in ours.items():
        tolerance = ppi.TOLERANCE.get(name.rpartition("_")[2], 1e-9)
        assert value == pytest.approx(theirs[name], rel=0, abs=tolerance), name
    for quantity in (ppi.AXIS, ppi.RATE):
        assert by_rows[f"{ppi.BY_ROWS}_{quantity}"] < 0.75 * ours[f"portraits_{quantity}_error"]
