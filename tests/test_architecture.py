"""The map shows the house as it is."""

from __future__ import annotations

import importlib
import re
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent
sys.path.append(str(ROOT / "tools"))

import architecture  # noqa: E402


def test_the_picture_and_the_table_are_those_of_the_real_imports():
    assert architecture.PICTURE.read_text("utf-8") == architecture.picture(), "run `python tools/architecture.py`"
    text = architecture.PAGE.read_text("utf-8")
    assert architecture.page(text) == text, "run `python tools/architecture.py`"


def test_every_room_is_in_the_contract_and_says_what_it_is():
    rooms = {room for layer in architecture.layers() for room in layer}
    folder = ROOT / "src" / "stillme"
    there = {path.stem for path in folder.iterdir() if path.suffix == ".py" or (path / "__init__.py").is_file()}
    assert there - {"__init__", "__main__"} == rooms
    assert all(architecture.summary(room) for room in rooms)


def test_the_map_leads_to_files_that_exist():
    text = architecture.PAGE.read_text("utf-8")
    named = set(re.findall(r"`((?:[a-z_]+/)*[a-z_]+\.py|(?:[a-z_]+/)+[a-z_]+\.toml)`", text))
    assert len(named) > 12
    assert [name for name in named if not any((base / name).exists() for base in (ROOT, ROOT / "src/stillme"))] == []


def test_no_deferred_name_is_that_of_a_module():
    # Python would give the module instead, as soon as anyone has imported it.
    for room in (ROOT / "src" / "stillme").rglob("__init__.py"):
        if "deferred(" in room.read_text("utf-8"):
            names = importlib.import_module(".".join(room.parent.relative_to(ROOT / "src").parts)).__all__
            assert not {path.stem for path in room.parent.iterdir()} & set(names), room


def test_sql_stands_only_in_rooms_that_have_a_database_of_their_own():
    owners = {"runs/store", "study", "curation", "web"}
    pattern = re.compile(r"\b(SELECT|INSERT INTO|CREATE TABLE)\b .*\b(FROM|VALUES|\()", re.DOTALL)
    for path in (ROOT / "src" / "stillme").rglob("*.py"):
        room = path.relative_to(ROOT / "src" / "stillme").parent.as_posix()
        if not room.startswith(tuple(owners)):
            assert not pattern.search(path.read_text("utf-8")), path
