from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from stillme import portraits as synthetic
from stillme.api.demo import shrink_into
from stillme.api.pipeline import run_stages
from stillme.core.errors import StillmeError
from stillme.portraits import folder as portrait_folder
from stillme.portraits.sheet import rows_of, write_sheet
from tests.records import small_audit


def test_copies_are_smaller_and_everything_else_is_kept(tmp_path: Path) -> None:
    originals = synthetic.portraits()[:3]
    copies = portrait_folder.load(shrink_into(tmp_path / "small", originals, longest=96))
    assert not portrait_folder.check(copies)
    for original, copy in zip(originals, copies, strict=True):
        assert (copy.id, copy.block, copy.licence, copy.label_origin) == (
            *(original.id, original.block, original.licence, original.label_origin),
        )
        assert dict(copy.attributes) == dict(original.attributes)
        with Image.open(copy.image.path) as small, Image.open(original.image.path) as large:
            assert max(small.size) == 96
            close = np.asarray(large.convert("RGB").resize((8, 8), Image.Resampling.BOX)).astype(float)
            assert np.abs(np.asarray(small.resize((8, 8), Image.Resampling.BOX)) - close).max() < 4


def test_a_portrait_that_is_small_enough_keeps_its_size(tmp_path: Path) -> None:
    copies = portrait_folder.load(shrink_into(tmp_path / "same", synthetic.portraits()[:1], longest=5000))
    with Image.open(copies[0].image.path) as copy, Image.open(synthetic.portraits()[0].image.path) as original:
        assert copy.size == original.size


def test_copies_that_edits_were_made_of_are_not_written_again(tmp_path: Path) -> None:
    folder = shrink_into(tmp_path / "small", synthetic.portraits()[:1], longest=96)
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    shrink_into(folder, synthetic.portraits()[:2], longest=64)
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before


def test_a_run_on_copies_of_rendered_people_says_that_they_are_rendered(tmp_path: Path) -> None:
    shrink_into(tmp_path / "portraits", synthetic.portraits()[:2], longest=64)
    estimates = {"factors": ["preset"]}
    small_audit(tmp_path, portraits={"source": "./portraits"}, prompts=["O-01"], estimates=estimates)
    summary = run_stages(tmp_path, ("edit", "judge", "estimate", "report"))
    assert summary.report
    assert "The portraits are rendered." in summary.report.read_text("utf-8")


def test_matched_portraits_share_a_row():
    for row in rows_of(synthetic.portraits()):
        assert len({portrait.block for portrait in row}) == 1
        assert [portrait.attributes["preset"] for portrait in row] == list("ABCDEFG")


def test_a_sheet_shows_every_portrait(tmp_path: Path, portraits: Path):
    with Image.open(write_sheet(synthetic.portraits(), tmp_path / "sheet.png")) as sheet:
        assert sheet.width > 7 * 160
    page = write_sheet(synthetic.load(portraits), tmp_path / "sheet.html").read_text()
    assert page.count("<figure>") == 6
    assert "made up" in page


def test_a_name_is_text_and_never_markup(tmp_path: Path, portraits: Path):
    table = portraits / "portraits.csv"
    table.write_text('file,id,group\np0.png,<script>alert(1)</script>,"<b>"\n')
    page = write_sheet(synthetic.load(portraits), tmp_path / "sheet.html").read_text()
    assert "<script>" not in page
    assert "&lt;b&gt;" in page


def test_other_formats_are_refused(tmp_path: Path):
    with pytest.raises(StillmeError, match=r"cannot be '\.pdf'"):
        write_sheet(synthetic.portraits(), tmp_path / "sheet.pdf")
