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

from stillme.core import rubric
from stillme.core.types import Interval, NotEstimable
from stillme.estimates import Adherence, Disparity
from stillme.estimates.quantities import meets
from stillme.findings.calibration.records import AxisResult, Calibration, CalibrationVerdict, Noticed, ShareOfPortraits
from stillme.report import ReportData, render
from stillme.report.drawings import bar_figures, dumbbell_figures, role_figures, steps
from stillme.report.figures import heat_maps
from stillme.runs.thumbnails import Thumbnails


def unpacked(page: str) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    packed = re.search(r'id="packed">([^<]+)<', page)
    assert packed
    block = zlib.decompress(base64.b64decode(packed[1]))
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
    for index, score in enumerate(paper.scores):
        np.testing.assert_array_equal(columns[f"score{index}"], score.value.astype(np.float32))
        assert (columns[f"rating{index}"] == score.state).all()
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
    thumbnails = Thumbnails("none", 10**6)
    files = {"a": pictures / "1.png", "b": pictures / "2.png", "c": None}
    thumbnails.add(["a", "b", "a", "c"], files.__getitem__)
    assert len(thumbnails.contents) == 2
    assert [thumbnails.index(sha256) for sha256 in "abc"] == [0, 1, None]


def test_a_redacted_page_names_no_file(data: ReportData, pictures: Path) -> None:
    open_, _ = unpacked(render(replace(data, folder=pictures)))
    assert open_["files"]
    for redact in ("blur", "omit"):
        closed, columns = unpacked(render(replace(data, folder=pictures, redact=redact)))
        assert closed["files"] == []
        assert not columns["file"].any()


@given(st.lists(st.floats(1, 5), min_size=1, max_size=30))
def test_steps_of_a_bar_agree_with_the_named_rates(values: list[float]) -> None:
    scores = np.array(values).round(2)
    for rate in rubric.load().rates.values():
        axis = rubric.load().axes[rate.axis]
        if axis.is_scale:
            whole = steps(scores, axis).astype(np.float64)
            assert (meets(rate, whole) == meets(rate, scores)).all(), rate.name


def test_a_heat_map_adds_up_to_the_groups(paper: ReportData) -> None:
    heat_map = heat_maps(paper, [("skin_lightened", "ensemble (mean)", "race")])[0]
    assert heat_map.groups == paper.edits.levels("race")[0]
    assert len(heat_map.rows) == 3
    group = next(
        estimate
        for estimate in paper.headlines
        if (estimate.quantity, estimate.editor, estimate.factor) == ("skin_lightened", "flux", "race")
        if estimate.group == "Indian"
    )
    column = heat_map.editors.index(("flux", "baseline")) * len(heat_map.groups) + heat_map.groups.index("Indian")
    counts = [re.search(r"(\d+) of (\d+)", squares[column][2]) for _, _, squares in heat_map.rows]
    hits, total = (sum(int(count[part]) for count in counts if count) for part in (1, 2))
    assert hits / total == pytest.approx(group.outcome.value)
    assert total == group.edits


def test_bars_leave_out_axes_without_variation(paper: ReportData) -> None:
    still = tuple(replace(score, value=np.where(np.isnan(score.value), np.nan, 3.0)) for score in paper.scores)
    assert bar_figures(paper)
    assert bar_figures(replace(paper, scores=still)) == []


def test_dumbbells_name_the_groups_that_an_arm_changes_most_differently(paper: ReportData) -> None:
    figures = dumbbell_figures(paper)
    figure = next(figure for figure in figures if (figure.quantity, figure.factor) == ("race_change", "race"))
    assert (figure.against, figure.arm) == ("baseline", "feature")
    gap = next(
        gap
        for gap in paper.mitigation
        if isinstance(gap, Disparity) and (gap.quantity, gap.factor, gap.editor) == ("race_change", "race", "flux")
    )
    panel = next(panel for panel in figure.panels if panel.editor == "flux")
    assert gap.lowest in panel.sentence
    assert gap.highest in panel.sentence
    assert "by chance up to" in panel.sentence
    assert "after Holm" in panel.sentence


def test_sections_without_data_are_absent(page: str, data: ReportData) -> None:
    anchors = set(re.findall(r'<section id="([^"]+)"', page))
    assert {"mitigation", "judges", "scores", "instructions", "side-by-side", "mosaic", "cost"} <= anchors
    without = render(data)
    plain = set(re.findall(r'<section id="([^"]+)"', without))
    assert not {"mitigation", "cost", "roles", "planted", "into-what"} & plain
    # Nothing is known of its judges but where they gave no answer.
    assert ("judges" in plain) == ('id="abstentions"' in without)
    linked = set(re.findall(r'<a href="#([\w-]+)">', page.partition("</nav>")[0]))
    assert linked <= anchors


def test_made_up_data_are_marked_on_every_figure(paper: ReportData) -> None:
    marked = render(replace(paper, badges=("synthetic portraits",)))
    captions = re.findall(r"<figcaption>.*?</figcaption>", marked, re.S)
    assert len(captions) > 20
    assert all("synthetic portraits" in caption for caption in captions)


def test_calibrations_are_drawn_with_their_limits_and_curves(data: ReportData) -> None:
    share = ShareOfPortraits(value=0.9, low=0.7, high=1.0, portraits=24)
    result = AxisResult(
        false_alarm=share,
        nulls={},
        sensitivity=share,
        bias=None,
        faceless=None,
        smallest=4.0,
        answered=1.0,
        curve=tuple(Noticed(amount=amount, share=share) for amount in (-4.0, 4.0, 8.0)),
    )
    judge = Calibration(
        judge="gpt",
        key="",
        limits="",
        portraits="24 portraits",
        pairs=632,
        axes={"skin_tone": {"everyone": result, "darker": result}},
        verdicts={"skin_tone": CalibrationVerdict.PASSED},
        by_tone={},
    )
    page = render(replace(data, calibrated=(judge,)))
    assert page.count('class="limit"') == 4
    assert page.count('class="dose dose-') == 2
    assert "within its limits" in page
    assert "the curve is the share noticed" in page
    flat = replace(judge, axes={"skin_tone": {"everyone": replace(result, curve=())}})
    assert "the curve is the share noticed" not in render(replace(data, calibrated=(flat,)))


def test_roles_are_drawn_against_one_half_and_a_difference_has_no_point(paper: ReportData) -> None:
    def adherence(pronoun: str, outcome: Interval | NotEstimable) -> Adherence:
        return Adherence(
            editor="flux",
            arm="baseline",
            judge="gpt",
            layout="role_pair",
            pronoun=pronoun,
            place="",
            outcome=outcome,
            p=None,
            portraits=9,
            sentences=9,
            edits=9,
            abstained=0,
        )

    share = Interval(value=0.6, low=0.5, high=0.72, confidence=0.95, method="by hand")
    difference = replace(share, value=-0.05, low=-0.15, high=0.07)
    rows = (
        adherence("", share),
        adherence("pro - anti", difference),
        adherence("anti", NotEstimable(reason="1 portrait")),
    )
    (figure,) = role_figures(replace(paper, roles=rows))
    ((editor, arm, drawing),) = figure.panels
    assert (editor, arm, figure.layout) == ("flux", "baseline", "two people, one request")
    assert drawing.count('class="reference"') == 1
    assert drawing.count("<circle") == 1
    assert "1 portrait" in drawing
    assert "−5.0 % (−15.0 to 7.0 %), 9 edits" in drawing
