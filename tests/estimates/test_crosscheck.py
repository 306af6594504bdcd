"""The same numbers as R's, on recorded data: `tools/crosscheck` makes them, and compares on machines that have R."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path

import pytest

pytestmark = pytest.mark.numeric

ROOT = Path(__file__).parents[2]


def test_every_number_agrees_with_r() -> None:
    spec = importlib.util.spec_from_file_location("crosscheck", ROOT / "tools" / "crosscheck" / "crosscheck.py")
    assert spec
    assert spec.loader
    crosscheck = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(crosscheck)
    theirs = json.loads(crosscheck.RECORDED.read_text("utf-8"))
    ours = crosscheck.by_stillme()
    assert len(theirs) > 20
    for name, value in theirs.items():
        assert ours[name] == pytest.approx(value, rel=0, abs=crosscheck.TOLERANCE.get(name, 1e-9)), name
