from __future__ import annotations

from pathlib import Path

import numpy as np
from PIL import Image

from stillme.api.demo import shrink_into
from stillme.api.pipeline import run_stages
from stillme.portraits import folder as portrait_folder
from stillme.portraits import portraits


def test_copies_are_smaller_and_everything_else_is_kept(tmp_path: Path) -> None:
    originals = portraits()[:3]
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
    copies = portrait_folder.load(shrink_into(tmp_path / "same", portraits()[:1], longest=5000))
    with Image.open(copies[0].image.path) as copy, Image.open(portraits()[0].image.path) as original:
        assert copy.size == original.size


def test_copies_that_edits_were_made_of_are_not_written_again(tmp_path: Path) -> None:
    folder = shrink_into(tmp_path / "small", portraits()[:1], longest=96)
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    shrink_into(folder, portraits()[:2], longest=64)
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before


def test_a_run_on_copies_of_rendered_people_says_that_they_are_rendered(tmp_path: Path) -> None:
    shrink_into(tmp_path / "portraits", portraits()[:2], longest=64)
    (tmp_path / "audit.toml").write_text(
        '[portraits]\nsource = "./portraits"\n[prompts]\nonly = ["O-01"]\n[[editors]]\nuse = "noop"\n'
        '[[judges]]\nuse = "scripted"\n[estimates]\nfactors = ["preset"]\n'
    )
    summary = run_stages(tmp_path, ("edit", "judge", "estimate", "report"))
    assert summary.report
    assert "The portraits are rendered." in summary.report.read_text("utf-8")
