from __future__ import annotations

import html
import re
from collections.abc import Callable
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import numpy as np

from stillme import __version__
from stillme.estimates import Disparity, RatingState
from stillme.report import ReportData, render, write
from stillme.report.findings import find
from stillme.report.gallery import worst
from tests.report.planted import again

Make = Callable[..., ReportData]

VOID = {"meta", "img", "input", "rect", "line", "circle", "path", "br", "link"}


class Tree(HTMLParser):
    """Checks that every tag is closed in order, and keeps what a page could fetch or run."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.seen: list[tuple[str, dict[str, str | None]]] = []
        self.feed(page)
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if tag not in VOID:
            assert self.open.pop() == tag


def text_of(page: str) -> str:
    return re.sub(r"\s+", " ", re.sub(r"<[^>]+>", " ", page).replace("&nbsp;", " "))


def test_the_page_is_well_formed_and_fetches_nothing(make_data: Make) -> None:
    page = render(make_data(planted=True))
    tree = Tree(page)
    for _, attributes in tree.seen:
        for name in ("src", "href", "data", "action", "srcset"):
            target = attributes.get(name) or "#"
            assert target.startswith(("#", "data:image/webp;base64,")), target
        assert not any(name.startswith("on") or name == "style" for name in attributes)
    policy = next(a["content"] for t, a in tree.seen if t == "meta" and a.get("http-equiv"))
    assert policy.startswith("default-src 'none'")
    assert "unsafe" not in policy


def test_the_same_rows_give_the_same_bytes(data: ReportData, tmp_path: Path) -> None:
    first = write(tmp_path / "a", data).read_bytes()
    assert write(tmp_path / "b", data).read_bytes() == first
    assert sorted(path.name for path in (tmp_path / "a").iterdir()) == ["report.html"]


def test_the_first_screen_names_the_editor_and_the_group_it_treats_worst(data: ReportData) -> None:
    findings = find(data)
    assert {(gap.disparity.editor, gap.is_erasure) for gap in findings.worst} == {("harsh", True), ("harsh", False)}
    by_quantity = {gap.disparity.quantity: gap for gap in findings.gaps if gap.is_significant}
    assert by_quantity["skin_lightened"].worst.group == "A"
    assert by_quantity["soft_erasure"].worst.group == "B"
    # Little success is the bad end, although it is the low one.
    assert by_quantity["success"].worst.group == "B"
    assert [answer.verdict for answer in findings.answers] == ["no", "no"]
    assert all("harsh" in answer.sentences[0] for answer in findings.answers)


def test_without_a_gap_the_page_says_so_and_how_large_one_could_hide(make_data: Make) -> None:
    page = text_of(render(make_data(gap=0.0)))
    assert "could be missed" in page
    assert "the data allow a true gap of up to" in page


def test_what_was_left_out_is_counted(data: ReportData) -> None:
    left_out = {(whose, why): count for whose, why, count, _ in find(data).left_out}
    assert left_out["gentle", "refused"] == int((data.edits.state[data.edits.editor == 0] == 2).sum())
    assert left_out["watcher (2 axes alike)", "abstained"] > 0
    page = text_of(render(data))
    assert "None of these became a score." in page


def test_uneven_silence_is_shown_by_group_and_decides_only_what_it_cannot_explain(data: ReportData) -> None:
    """Of one editor's edits, two thirds of group A's have no answer: nothing is known of A, but B against C stands."""
    silent = (data.edits.portrait < 9) & (data.edits.prompt < 2) & (data.edits.editor == 1)
    scores = tuple(
        replace(
            score,
            value=np.where(silent, np.nan, score.value),
            state=np.where(silent, RatingState.ABSTAINED, score.state).astype(np.int32),
        )
        for score in data.scores
    )
    quiet = again(data, scores=scores)
    text = text_of(render(quiet))
    assert "Where judges gave no answer" in text
    assert "No headline quantity is uneven" not in text
    by_quantity, before = (
        {gap.disparity.quantity: gap for gap in find(one).gaps if gap.matters and gap.disparity.factor == "race"}
        for one in (quiet, data)
    )
    assert "skin_lightened" in before
    assert "skin_lightened" not in by_quantity
    assert set(by_quantity["soft_erasure"].finding.groups) == {"B", "C"}
    assert by_quantity["soft_erasure"].worst.group == "B"


def test_the_first_screen_can_go_by_one_judge(data: ReportData) -> None:
    doubled = again(data, scores=(*data.scores, *(replace(score, judge="second") for score in data.scores)))
    assert len(find(doubled).gaps) > len(find(data).gaps)
    assert find(replace(doubled, headline_judges=("watcher",))).gaps == find(data).gaps


def test_planted_data_is_marked_and_shown_beside_what_was_found(make_data: Make) -> None:
    page = render(make_data(planted=True))
    assert '<span class="badge">injected effects</span>' in page
    assert "misses it" in page
    assert page.count("misses it") == 1
    assert "it says nothing about any real editor" in page
    assert "injected effects" not in render(make_data())


def test_a_run_that_has_not_begun_still_makes_a_page(empty: ReportData) -> None:
    page = render(empty)
    Tree(page)
    assert "No edit has been made yet" in page
    assert "The run is not finished." in page


def test_an_audit_without_factors_still_makes_a_page(data: ReportData) -> None:
    page = render(again(data, settings=replace(data.settings, factors=())))
    Tree(page)
    assert "There are no groups to compare." in page


def test_a_missing_picture_is_named(data: ReportData) -> None:
    page = render(replace(data, image_path=lambda _: None))
    assert "edit not found" in page
    assert "source not found" not in page


def test_the_worst_come_in_turns_and_no_more_than_asked(data: ReportData) -> None:
    chosen = worst(data, 10)
    assert len(chosen) == len({row for row, _ in chosen}) == 10
    assert {data.edits.editors[data.edits.editor[row]] for row, _ in chosen} == {"gentle", "harsh"}
    assert {score.axis for _, score in chosen} == {"edit_success", "skin_tone"}
    assert worst(data, 0) == []
    # More than there are: everything that has a fault, once.
    assert len(worst(data, 10_000)) < len(data.edits)


def test_figures_draw_the_chance_band_and_speak_their_numbers(data: ReportData) -> None:
    page = render(data)
    assert page.count('class="forest"') >= 6
    assert page.count('class="chance"') >= 6
    spoken = re.findall(r'role="group" aria-label="([^"]+)"', page)
    assert any("Largest gap" in words and "chance alone up to" in words for words in spoken)
    assert all(float(number) >= 0 for number in re.findall(r'(?:width|height|cx|x1)="([-\d.]+)"', page))


def test_numbers_that_look_precise_have_their_interval_beside_them(data: ReportData) -> None:
    disparity = next(e for e in data.estimates if isinstance(e, Disparity) and e.quantity == "skin_lightened")
    shown = f"{100 * disparity.outcome.value:.1f} % ({100 * disparity.outcome.low:.1f} % to"
    assert shown in render(data)


def test_more_than_two_editors_get_a_table_of_all_editors_and_rates(paper: ReportData, data: ReportData) -> None:
    page = render(paper)
    (table,) = re.findall(r'<table class="overview">.*?</table>', page, re.DOTALL)
    assert [name for name in paper.edits.editors if f'<span class="editor">{name}</span>' not in table] == []
    assert "Skin lightened" in table
    assert re.search(r"by race: gap [\d.]+ points, p", table)
    assert '<table class="overview">' not in render(data), "two editors stand side by side anyway"


def test_quantities_that_are_equal_edit_by_edit_are_shown_once(data: ReportData) -> None:
    success = [score for score in data.scores if score.axis == "edit_success"]
    scores = tuple(
        replace(score, axis=axis, value=np.where(score.value <= 2, erased, 3 - erased))
        for axis, erased in (("visible_change", 1.0), ("skip", 2.0))
        for score in success
    )
    rows = find(again(data, scores=scores)).edits_made.rows
    assert [(title, same) for title, _, _, same in rows if title in ("Skipped", "No visible change")] == [
        ("Skipped", ("No visible change",))
    ]


def test_a_report_says_how_to_cite_it_as_the_readme_does(data: ReportData) -> None:
    page = html.unescape(render(replace(data, title="A & B {100 %}")))
    assert "title        = {{A \\& B 100 \\%}}" in page
    readme = (Path(__file__).parents[2] / "README.md").read_text()
    (block,) = re.findall(r"```bibtex\n(.*?)```", readme, re.DOTALL)
    assert block.strip().replace(__version__, data.version) in page
