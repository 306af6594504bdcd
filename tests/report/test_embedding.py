from __future__ import annotations

import base64
import json
import re
import zlib
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stillme import rubric
from stillme.estimates import Disparity
from stillme.estimates.quantities import holds
from stillme.report import ReportData, render
from stillme.report.album import Album, encode
from stillme.report.data import Calibrated, CalibratedAxis, Dose, Tried
from stillme.report.heat import heat_maps
from stillme.report.likert import bars, steps
from stillme.report.mitigation import dumbbells
from stillme.types import Interval


def unpacked(page: str) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    found = re.search(r'id="packed">([^<]+)<', page)
    assert found
    block = zlib.decompress(base64.b64decode(found[1]))
    size = int.from_bytes(block[:4], "little")
    header = json.loads(block[8 : 8 + size])
    start = 8 + -(-size // 8) * 8
    kinds = {"u1": np.uint8, "u2": np.uint16, "u4": np.uint32, "f4": np.float32}
    columns = {
        name: np.frombuffer(block, dtype=kinds[kind], count=header["rows"], offset=start + offset)
        for name, kind, offset in header["columns"]
    }
    return header, columns


@pytest.fixture(scope="module")
def page(paper: ReportData) -> str:
    return render(paper)


def test_the_page_carries_every_row_and_every_score(page: str, paper: ReportData) -> None:
    header, columns = unpacked(page)
    for name in ("editor", "arm", "prompt", "portrait", "state"):
        assert (columns[name] == getattr(paper.edits, name)).all()
    for place, score in enumerate(paper.scores):
        np.testing.assert_array_equal(columns[f"score{place}"], score.value.astype(np.float32))
        assert (columns[f"rating{place}"] == score.state).all()
    assert len(header["estimates"]) == len(paper.estimates)
    assert len(set(header["keys"])) == len(paper.edits)
    assert all(full.startswith(short) for short, full in zip(header["keys"], paper.edits.keys, strict=True))


def test_thumbnails_keep_to_their_budget_and_each_is_there_once(paper: ReportData) -> None:
    small = render(replace(paper, picture_bytes=20_000))
    thumbnails = json.loads(re.search(r'id="thumbnails">([^<]+)<', small)[1])
    assert 0 < sum(map(len, thumbnails)) <= 20_000
    _, columns = unpacked(small)
    assert columns["picture"].max() <= len(thumbnails)
    assert (columns["picture"] == 0).any()


def test_the_same_picture_is_kept_once(pictures: Path) -> None:
    album = Album("none", 10**6)
    album.add([("a", pictures / "1.png"), ("b", pictures / "2.png"), ("a", pictures / "1.png"), ("c", None)])
    assert len(album.contents) == 2
    assert (album.place("a"), album.place("b"), album.place("c")) == (0, 1, None)


def test_a_blurred_portrait_is_ten_patches_wide_and_an_omitted_one_is_nothing(pictures: Path) -> None:
    from io import BytesIO

    from PIL import Image

    with Image.open(BytesIO(encode(pictures / "1.png", "blur"))) as blurred:
        assert max(blurred.size) == 10
    assert encode(pictures / "1.png", "omit") == b""


def test_a_redacted_page_names_no_file(paper: ReportData, pictures: Path) -> None:
    open_, _ = unpacked(render(replace(paper, folder=pictures)))
    assert open_["files"]
    for redact in ("blur", "omit"):
        closed, columns = unpacked(render(replace(paper, folder=pictures, redact=redact)))
        assert closed["files"] == []
        assert not columns["file"].any()


@given(st.lists(st.floats(1, 5), min_size=1, max_size=30))
def test_steps_of_a_bar_agree_with_the_named_rates(values: list[float]) -> None:
    given_ = np.array(values).round(2)
    for rate in rubric.load().rates.values():
        axis = rubric.load().axes[rate.axis]
        if axis.is_scale:
            whole = steps(given_, axis).astype(np.float64)
            assert (holds(rate, whole) == holds(rate, given_)).all(), rate.name


def test_a_map_of_shades_adds_up_to_the_groups(paper: ReportData) -> None:
    heat = heat_maps(paper, [("skin_lightened", "ensemble (mean)", "race")])[0]
    assert heat.groups == paper.edits.levels("race")[0]
    assert len(heat.rows) == 3
    group = next(
        each
        for each in paper.headlines
        if (each.quantity, each.editor, each.factor, each.group) == ("skin_lightened", "flux", "race", "Indian")
    )
    place = heat.editors.index(("flux", "baseline")) * len(heat.groups) + heat.groups.index("Indian")
    counted = [re.search(r"(\d+) of (\d+)", squares[place].said) for _, _, squares in heat.rows]
    hits, total = (sum(int(found[part]) for found in counted if found) for part in (1, 2))
    assert isinstance(group.outcome, Interval)
    assert hits / total == pytest.approx(group.outcome.value)
    assert total == group.edits


def test_bars_leave_out_what_never_moved(paper: ReportData) -> None:
    still = tuple(replace(score, value=np.where(np.isnan(score.value), np.nan, 3.0)) for score in paper.scores)
    assert bars(paper)
    assert bars(replace(paper, scores=still)) == []


def test_dumbbells_say_whom_an_arm_changes_most(paper: ReportData) -> None:
    found = next(each for each in dumbbells(paper) if (each.quantity, each.factor) == ("race_change", "race"))
    assert (found.against, found.arm) == ("baseline", "feature")
    gap = next(
        each
        for each in paper.mitigation
        if isinstance(each, Disparity) and (each.quantity, each.factor, each.editor) == ("race_change", "race", "flux")
    )
    panel = next(panel for panel in found.panels if panel.editor == "flux")
    assert gap.lowest in panel.sentence
    assert gap.highest in panel.sentence
    assert "chance alone" in panel.sentence


def test_sections_without_data_are_absent(page: str, data: ReportData) -> None:
    anchors = set(re.findall(r'<section id="([^"]+)"', page))
    assert {"mitigation", "judges", "scores", "instructions", "side-by-side", "mosaic", "cost"} <= anchors
    plain = set(re.findall(r'<section id="([^"]+)"', render(data)))
    assert not {"mitigation", "judges", "cost", "roles", "planted"} & plain
    linked = set(re.findall(r'<a href="#([\w-]+)">', page.partition("</nav>")[0]))
    assert linked <= anchors


def test_made_up_data_are_marked_on_every_figure(paper: ReportData) -> None:
    marked = render(replace(paper, badges=("synthetic portraits",)))
    captions = re.findall(r"<figcaption>.*?</figcaption>", marked, re.S)
    assert len(captions) > 20
    assert all("synthetic portraits" in caption for caption in captions)


def test_calibrations_are_drawn_with_their_limits_and_curves(paper: ReportData) -> None:
    tried = tuple(Tried(group=group, value=0.9, low=0.7, high=1.0) for group in ("everyone", "darker"))
    axis = CalibratedAxis(
        axis="skin_tone",
        verdict="passed",
        false_alarms=tried,
        noticed=tried,
        curve=tuple(Dose(amount=amount, noticed=tried) for amount in (-4.0, 4.0, 8.0)),
        most_alarms=0.05,
        least_noticed=0.8,
        smallest=4.0,
    )
    judge = Calibrated(judge="gpt", portraits="24 portraits", pairs=632, axes=(axis,))
    page = render(replace(paper, calibrated=(judge,)))
    assert page.count('class="limit"') == 4
    assert page.count('class="dose dose-') == 2
    assert "kept its limits" in page
    assert "the curve is the share noticed" in page
    flat = replace(judge, axes=(replace(axis, curve=()),))
    assert "the curve is the share noticed" not in render(replace(paper, calibrated=(flat,)))
