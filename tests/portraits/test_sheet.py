from __future__ import annotations

from pathlib import Path

import pytest
from PIL import Image

from stillme import portraits as room
from stillme.core.errors import StillmeError
from stillme.portraits import portraits as synthetic
from stillme.portraits.sheet import rows_of, write_sheet


def test_matched_portraits_share_a_row():
    for row in rows_of(synthetic()):
        assert len({portrait.block for portrait in row}) == 1
        assert [portrait.attributes["preset"] for portrait in row] == list("ABCDEFG")


def test_a_sheet_shows_every_portrait(tmp_path: Path, portraits: Path):
    with Image.open(write_sheet(synthetic(), tmp_path / "sheet.png")) as sheet:
        assert sheet.width > 7 * 160
    page = write_sheet(room.load(portraits), tmp_path / "sheet.html").read_text()
    assert page.count("<figure>") == 6
    assert "made up" in page


def test_a_name_is_text_and_never_markup(tmp_path: Path, portraits: Path):
    table = portraits / "portraits.csv"
    table.write_text('file,id,group\np0.png,<script>alert(1)</script>,"<b>"\n')
    page = write_sheet(room.load(portraits), tmp_path / "sheet.html").read_text()
    assert "<script>" not in page
    assert "&lt;b&gt;" in page


def test_other_formats_are_refused(tmp_path: Path):
    with pytest.raises(StillmeError, match=r"cannot be '\.pdf'"):
        write_sheet(synthetic(), tmp_path / "sheet.pdf")
