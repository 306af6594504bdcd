"""The ratchet that keeps stillme small."""

from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path
from types import ModuleType

import pytest


@pytest.fixture
def size(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    path = Path(__file__).parent.parent / "tools" / "size.py"
    spec = importlib.util.spec_from_file_location("size", path)
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    monkeypatch.setattr(module, "ROOT", tmp_path)
    monkeypatch.setattr(module, "RATCHET", tmp_path / "size.json")
    monkeypatch.setattr(module, "measure", lambda: {"src lines": 1_020, "commands": 20})
    monkeypatch.setattr(sys, "argv", ["size.py"])
    return module


def test_tokens_leave_out_comments_docstrings_and_layout(size: ModuleType, tmp_path: Path) -> None:
    bare, told = tmp_path / "bare.py", tmp_path / "told.py"
    bare.write_text("def f(a):\n    return a\n")
    told.write_text('"""Said."""\n\n\ndef f(\n    a  # why\n):\n    """Said."""\n    return a\n')
    assert size.count_tokens([bare]) == size.count_tokens([told]) == 8


def test_a_number_that_rises_by_more_than_a_percent_fails(size: ModuleType, capsys: pytest.CaptureFixture[str]) -> None:
    size.RATCHET.write_text(json.dumps({"src lines": 1_000, "commands": 20}))
    assert size.main() == 1
    assert "src lines rose from 1,000 to 1,020" in capsys.readouterr().err
    size.RATCHET.write_text(json.dumps({"src lines": 1_011, "commands": 20}))
    assert size.main() == 0


def test_setting_the_ratchet_only_lowers_it(size: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["size.py", "--set"])
    size.RATCHET.write_text(json.dumps({"src lines": 2_000, "commands": 19}))
    size.main()
    assert json.loads(size.RATCHET.read_text()) == {"src lines": 1_020, "commands": 19}


def test_a_class_name_in_two_modules_is_named(size: ModuleType, tmp_path: Path) -> None:
    for name in ("one", "two"):
        file = tmp_path / "src" / name / "things.py"
        file.parent.mkdir(parents=True)
        file.write_text("class Answer: ...\nclass _Own: ...\n")
    assert size.repeated_class_names() == {"Answer": ["one/things.py", "two/things.py"]}
