"""What docs/statistics.md says runs, and names what exists."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from stillme import estimates
from stillme.estimates import agreement, behaviour, directions, people

PAGE = (Path(__file__).parents[2] / "docs" / "statistics.md").read_text("utf-8")


def test_the_example_runs(capsys: pytest.CaptureFixture[str]) -> None:
    (code,) = re.findall(r"^```python\n(.*?)^```", PAGE, flags=re.DOTALL | re.MULTILINE)
    exec(code, {})
    assert capsys.readouterr().out.startswith("A - rest difference Interval(")


def test_every_function_of_the_table_exists() -> None:
    rows = re.findall(r"^\| (`[^|]+) \|", PAGE, flags=re.MULTILINE)
    named = [name for row in rows for name in re.findall(r"`([\w.]+)`", row)]
    assert len(named) >= 13
    for name in named:
        modules = (agreement, behaviour, directions, people)
        rooms = {module.__name__.rpartition(".")[2]: module for module in modules} | {"": behaviour}
        room = rooms.get(name.partition(".")[0], estimates) if "." in name else estimates
        if name not in ("stillme.estimates",):
            assert callable(getattr(room, name.rpartition(".")[2]))
