"""The pages in Chromium: by keyboard alone, reloaded after each click, offline, in two tabs, and without barriers."""

from __future__ import annotations

import itertools
import json
import math
import re
import shutil
import sqlite3
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, BrowserContext, Page, Route, expect

from stillme.runs.store import Store
from stillme.study.app import build
from stillme.study.closing import close_study
from stillme.study.entry import invite
from stillme.study.opening import open_study
from stillme.web.serving import WebServer
from tests import role_runs
from tests.pages import has_no_barriers, wait_until
from tests.study.annotators import READY, page_data, serving
from tests.study.conftest import Served
from tests.study.studies import RIGHT, change, draw_study, write_study

pytestmark = [pytest.mark.browser, pytest.mark.xdist_group("study-browser")]

expect.set_options(timeout=20_000)  # the machine may be busy with other tests

QUESTIONS = 5
OURS = ("blob:", "https://app.prolific.com/submissions/complete?cc=DONE1")
"""Addresses that the pages may ask for besides their own server."""
_names = itertools.count()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("browser") / "study"
    write_study(made, tasks=1, per_task=3, raters=40, checks=False, side=96)
    return made


@pytest.fixture(scope="module")
def address(folder: Path) -> Iterator[str]:
    with serving(folder) as server:
        yield f"http://127.0.0.1:{server.port}"


@pytest.fixture
def open_page(browser: Browser, address: str) -> Iterator[Callable[..., Page]]:
    """A page in a context of its own; nothing may have gone wrong in it when the test ends."""
    contexts: list[BrowserContext] = []
    wrong: list[str] = []

    def make(**options: object) -> Page:
        settings = {"viewport": {"width": 1366, "height": 768}, **options}
        contexts.append(browser.new_context(base_url=address, **settings))  # type: ignore[arg-type]
        page = contexts[-1].new_page()
        page.set_default_timeout(20_000)
        page.on("pageerror", lambda error: wrong.append(str(error)))
        page.on("console", lambda said: wrong.append(said.text) if "Content Security" in said.text else None)
        page.on("request", lambda asked: None if asked.url.startswith((*OURS, address)) else wrong.append(asked.url))
        return page

    yield make
    for context in contexts:
        context.close()
    assert wrong == []


@pytest.fixture
def page(open_page: Callable[..., Page]) -> Page:
    """The rating page of a new participant."""
    opened = open_page()
    to_rating(opened)
    return opened


def stored(folder: Path, query: str) -> list[tuple[Any, ...]]:
    """What the study's database answers."""
    with closing(sqlite3.connect(folder / "study.sqlite")) as base:
        return base.execute(query).fetchall()


@pytest.fixture(scope="module")
def looking(browser: Browser, address: str) -> Iterator[Page]:
    """The rating page of one participant, for tests that answer nothing."""
    context = browser.new_context(base_url=address, viewport={"width": 1366, "height": 768})
    page = context.new_page()
    page.set_default_timeout(20_000)
    to_rating(page)
    yield page
    context.close()


def enter(page: Page) -> None:
    page.goto(f"/enter?PROLIFIC_PID=p{next(_names)}&STUDY_ID=study1&SESSION_ID=s1")


def ready(page: Page) -> None:
    """Say that the screen is as it should be."""
    page.get_by_label("Yes", exact=True).check()
    page.get_by_label("Yes, they are off").check()


def hand_in(page: Page) -> None:
    page.get_by_role("button", name="Review and finish").click()
    page.get_by_role("button", name="Finish and hand in").click()


def to_rating(page: Page) -> None:
    """Agree and practise without showing those pages, in the page's own session."""
    address = f"/enter?PROLIFIC_PID=p{next(_names)}&STUDY_ID=study1&SESSION_ID=s1"
    shown = page.request.get(address).text()
    origin = {"Origin": re.sub(r"(?<=\d)/.*", "", page.request.get("/study").url)}
    for path, more in (("consent", {"decision": "agree", "version": "1"}), ("device", READY), ("guide", {})):
        csrf = re.search(r'name="csrf" value="(\w+)"', shown)
        assert csrf
        shown = page.request.post(f"/study/{path}", form={"csrf": csrf[1], **more}, headers=origin).text()
    data, token = page_data(shown)
    answers = [[list(RIGHT) for _ in item["pictures"][1:]] for item in data["items"]]
    said = page.request.post("/api/training", data={"answers": answers}, headers={**origin, "X-CSRF": token})
    assert said.json()["finished"], said.text()
    page.goto("/study")
    page.wait_for_selector("body[data-ready]")


def saved(page: Page) -> None:
    expect(page.locator("#saved")).to_have_text("✓ Saved")


def answerable(page: Page) -> None:
    """Wait until the item's pictures are there."""
    expect(page.locator("#questions:not([inert])")).to_be_visible()


def chosen(page: Page) -> dict[str, str]:
    """What is ticked now, by group."""
    return page.evaluate(
        "Object.fromEntries([...document.querySelectorAll('#questions input:checked')].map(i => [i.name, i.value]))"
    )


def test_a_whole_session_by_keyboard_alone_without_barriers(open_page: Callable[..., Page]) -> None:
    page = open_page()
    enter(page)
    has_no_barriers(page)
    press_on(page, "I agree to take part")
    page.wait_for_selector("#go:not([disabled])")
    has_no_barriers(page)
    page.keyboard.press("Tab")  # the link that skips to the content
    for _ in range(2):
        page.keyboard.press("Tab")
        page.keyboard.press("Space")
    press_on(page, "Continue")
    expect(page.get_by_role("heading", name="What you will do")).to_be_visible()
    has_no_barriers(page)
    press_on(page, "Start the practice")
    page.wait_for_selector("body[data-ready]")
    page.keyboard.type("".join(str(value) * 2 for value in (5, *RIGHT[1:])))
    expect(page.locator("#next")).to_be_focused()
    page.keyboard.press("Enter")
    expect(page.locator(".said").first).to_contain_text("here we would answer 1")
    has_no_barriers(page)
    for side in (0, 1):
        page.locator(f"#choice-0-{side}-5").focus()
        page.keyboard.type("1")
    page.keyboard.press("n")
    expect(page.locator("#where")).to_have_text("Practice 2 of 2")
    answerable(page)
    page.keyboard.type("".join(str(value) * 2 for value in RIGHT))
    page.keyboard.press("Enter")
    page.wait_for_selector("#jump")
    page.wait_for_selector("body[data-ready]")
    has_no_barriers(page)
    for item in range(3):
        expect(page.locator("#where")).to_have_text(f"Item {item + 1} of 3")
        answerable(page)
        page.keyboard.type("1234512345")
        expect(page.locator("#finish" if item == 2 else "#next")).to_be_focused()
        page.keyboard.press("Enter")
    has_no_barriers(page)
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", name="Thank you")).to_be_visible()
    has_no_barriers(page)
    with page.expect_request("https://app.prolific.com/**") as left:
        page.route("https://app.prolific.com/**", lambda route: route.abort())
        page.get_by_role("link", name="Return to Prolific to be paid").press("Enter")
    assert left.value.url.endswith("cc=DONE1")


def press_on(page: Page, name: str) -> None:
    """Tab until the button of that name has the focus, then press it."""
    for _ in range(20):
        page.keyboard.press("Tab")
        if page.evaluate("document.activeElement.textContent.trim()") == name:
            page.keyboard.press("Enter")
            return
    raise AssertionError(f"{name!r} cannot be reached with Tab")


def test_a_reload_after_each_click_loses_nothing(page: Page, folder: Path) -> None:
    expected: dict[str, str] = {}
    for question in range(QUESTIONS):
        for side in (0, 1):
            value = 1 + (question + side) % 5
            page.check(f"#choice-{question}-{side}-{value}")
            expected[f"q{question}-{side}"] = str(value)
            # Not waiting for the acknowledgement: what is not sent yet is in the queue.
            page.reload()
            page.wait_for_selector("body[data-ready]")
            assert chosen(page) == expected
    saved(page)
    page.get_by_role("button", name="Next").click()
    expect(page.locator("#where")).to_have_text("Item 2 of 3")
    page.reload()
    page.wait_for_selector("body[data-ready]")
    expect(page.locator("#where")).to_have_text("Item 2 of 3")
    page.go_back()
    expect(page.locator("#where")).to_have_text("Item 1 of 3")
    assert chosen(page) == expected


def test_answers_given_offline_are_kept_through_a_crash_and_sent_later(page: Page) -> None:
    context = page.context
    # A server that cannot be reached: Chromium's own offline mode would also keep a new tab from opening.
    context.route("**/api/answers", lambda route: route.abort())
    page.keyboard.type("1234")
    expect(page.locator("#saved")).to_have_text("Offline: kept here")
    page.close(run_before_unload=False)
    again = context.new_page()
    again.goto("/study")
    again.wait_for_selector("body[data-ready]")
    assert chosen(again) == {"q0-0": "1", "q0-1": "2", "q1-0": "3", "q1-1": "4"}
    expect(again.locator("#saved")).to_have_text("Offline: kept here")
    context.unroute("**/api/answers")
    saved(again)
    data = again.evaluate("fetch('/study').then(a => a.text())")
    assert '"answers": [[' in data


def test_two_tabs_show_the_same_answers(page: Page) -> None:
    other = page.context.new_page()
    other.goto("/study")
    other.wait_for_selector("body[data-ready]")
    page.check("#choice-0-0-4")
    expect(other.locator("#choice-0-0-4")).to_be_checked()
    other.check("#choice-0-0-2")
    expect(page.locator("#choice-0-0-2")).to_be_checked()
    saved(page)
    saved(other)
    page.reload()
    page.wait_for_selector("body[data-ready]")
    assert chosen(page) == {"q0-0": "2"}


def test_undo_jump_zoom_and_unfinished_items(page: Page) -> None:
    page.keyboard.type("34")
    page.keyboard.press("u")
    assert chosen(page) == {"q0-0": "3"}
    page.get_by_role("button", name="Undo").click()
    assert chosen(page) == {}
    page.locator("#jump summary").click()
    has_no_barriers(page)
    page.get_by_role("button", name="Item 3, open").click()
    expect(page.locator("#where")).to_have_text("Item 3 of 3")
    answerable(page)
    page.keyboard.press("z")
    expect(page.locator("#zoom")).to_be_visible()
    has_no_barriers(page)
    page.keyboard.press("Escape")
    expect(page.locator("#finish")).to_be_hidden()
    page.get_by_role("button", name="To the first open item").click()
    expect(page.locator("#where")).to_have_text("Item 1 of 3")
    assert "open questions" in (page.locator("#announce").text_content() or "")
    answerable(page)
    page.uncheck("#keys")
    page.keyboard.type("5")
    assert chosen(page) == {}


SCREENS = ((1366, 768), (1920, 1080), (1180, 820), (820, 1180), (760, 1024), (1366, 480), (1280, 480), (1024, 480))


def boxes(page: Page, selector: str) -> list[dict[str, float]]:
    return page.evaluate(
        "(s) => [...document.querySelectorAll(s)].map((e) => e.getBoundingClientRect().toJSON())", selector
    )


def test_pictures_are_large_and_in_view_while_every_question_is_answered(looking: Page) -> None:
    page = looking
    for width, height in SCREENS:
        page.set_viewport_size({"width": width, "height": height})
        for question in range(QUESTIONS):
            page.locator(f"#choice-{question}-1-3").focus()
            page.locator(f"#choice-{question}-1-3").scroll_into_view_if_needed()
            pictures, answers = boxes(page, ".picture img"), boxes(page, f"#question-{question} .choice")
            for box in (*pictures, answers[5]):
                assert 0 <= box["left"] <= box["right"] <= width
                assert 0 <= box["top"] <= box["bottom"] <= height
            assert len(pictures) == 3
        side = pictures[0]["width"]
        assert side == pytest.approx(pictures[0]["height"], abs=1)
        assert side >= (580 if width == 1920 else 320)
        one, other = answers[0], answers[1]
        assert other["left"] - one["left"] < 120, "the answers for A and B stand side by side"
        assert page.evaluate("document.documentElement.scrollWidth") == width
        (panel,) = boxes(page, "#questions")
        assert panel["height"] >= 120, "a question is more than one line"
        expect(page.get_by_role("link", name="Withdraw")).to_be_in_viewport()
        expect(page.get_by_text("ask@study.example")).to_be_in_viewport()
        expect(page.get_by_role("button", name="Next")).to_be_in_viewport()


@pytest.mark.parametrize(
    ("window", "mobile"), [((844, 390), True), ((932, 430), True), ((390, 844), True), ((1366, 470), False)]
)
def test_a_window_too_small_for_the_pictures_is_turned_away_kindly_with_a_code(
    open_page: Callable[..., Page], window: tuple[int, int], mobile: bool
) -> None:
    width, height = window
    page = open_page(viewport={"width": width, "height": height}, is_mobile=mobile, has_touch=mobile)
    enter(page)
    page.locator("[value=agree]").click()
    ready(page)
    expect(page.locator("#check-size")).to_have_class("no")
    expect(page.locator("#size-now")).to_have_text(f"{width} × {height}")
    expect(page.locator("#go")).to_be_disabled()
    page.get_by_role("button", name="Leave").click()
    expect(page.get_by_text("The pictures need a larger window than yours")).to_be_visible()
    expect(page.locator("#completion-code")).to_have_text("DEVICE1")


def test_a_laptop_at_200_percent_passes_and_sees_the_pictures_at_every_question(
    browser: Browser, address: str, tmp_path: Path
) -> None:
    """Chromium's own zoom: the page has half the pixels, and pictures of 160 of them are as large as 320."""
    (tmp_path / "Default").mkdir()
    level = math.log(2) / math.log(1.2)
    (tmp_path / "Default" / "Preferences").write_text(json.dumps({"partition": {"default_zoom_level": {"x": level}}}))
    arguments = ["--no-sandbox", "--headless=new", "--window-size=1366,900"]
    context = browser.browser_type.launch_persistent_context(
        str(tmp_path),
        executable_path=shutil.which("chromium"),
        args=arguments,
        no_viewport=True,
        headless=False,
        base_url=address,
    )
    page = context.new_page()
    page.set_default_timeout(20_000)
    to_rating(page)
    width, height = page.evaluate("[window.innerWidth, window.innerHeight]")
    assert width == 683, "else nothing is zoomed"
    for question in range(QUESTIONS):
        page.locator(f"#choice-{question}-1-3").focus()
        page.locator(f"#choice-{question}-1-3").scroll_into_view_if_needed()
        for box in (*boxes(page, ".picture img"), boxes(page, f"#choice-{question}-1-3")[0]):
            assert 0 <= box["left"] <= box["right"] <= width
            assert 0 <= box["top"] <= box["bottom"] <= height
            assert box["width"] >= 160 or box["width"] < 40
    context.close()


def test_answers_are_reviewed_before_finishing_and_both_are_kept_of_a_correction(page: Page, folder: Path) -> None:
    for item in range(3):
        for question, side in itertools.product(range(QUESTIONS), range(2)):
            page.locator(f"#choice-{question}-{side}-3").check()
        if item < 2:
            page.locator("#next").click()
    page.get_by_role("button", name="Review and finish").click()
    review = page.get_by_role("dialog", name="Your answers")
    expect(review.locator("#reviewed > li")).to_have_count(3)
    expect(review.locator("#reviewed > li").first.locator("img")).to_have_count(3)
    expect(review.get_by_text("3, ")).to_have_count(3 * QUESTIONS * 2)
    has_no_barriers(page)
    review.get_by_role("button", name="Change item 2").click()
    page.locator("#choice-1-0-5").check()
    page.reload()  # what was corrected stays a correction
    page.locator("#items button").nth(1).dispatch_event("click")
    page.locator("#choice-2-0-4").check()
    page.locator("#choice-2-0-1").check()
    page.get_by_role("button", name="Review and finish").click()
    page.get_by_role("button", name="Finish and hand in").click()
    expect(page.get_by_role("heading", name="Thank you")).to_be_visible()
    kept = stored(folder, "SELECT question, first, value FROM answer WHERE first IS NOT NULL ORDER BY question")
    assert kept == [(1, 3, 5), (2, 3, 1)]


def test_a_whole_question_fits_below_the_pictures_on_a_laptop(looking: Page) -> None:
    looking.set_viewport_size({"width": 1366, "height": 768})
    looking.locator("#choice-0-0-1").scroll_into_view_if_needed()
    (question,), (steps,) = boxes(looking, "#question-0"), boxes(looking, ".steps")
    assert question["bottom"] <= steps["top"] + 1


def test_nothing_of_a_low_window_has_barriers(looking: Page) -> None:
    looking.set_viewport_size({"width": 1024, "height": 480})
    looking.locator("#jump summary").click()
    expect(looking.get_by_role("button", name="Item 3, open")).to_be_in_viewport()
    has_no_barriers(looking)
    looking.locator("#jump summary").click()


def places(page: Page) -> set[tuple[int, int, int]]:
    """Where each enlarged picture stands in its window, and how large it is."""
    shown = zip(boxes(page, ".pane img"), boxes(page, ".pane"), strict=True)
    return {(round(i["left"] - p["left"]), round(i["top"] - p["top"]), round(i["width"])) for i, p in shown}


def test_enlarged_is_larger_and_all_pictures_move_in_step(looking: Page) -> None:
    page = looking
    for width, height in SCREENS:
        page.set_viewport_size({"width": width, "height": height})
        inline = boxes(page, ".picture img")[0]["width"]
        page.locator(".picture button").nth(1).click(position={"x": inline * 0.8, "y": inline * 0.3})
        panes, enlarged = boxes(page, ".pane"), boxes(page, ".pane img")
        assert all(box["width"] >= 1.5 * inline for box in enlarged)
        assert all(pane["width"] * pane["height"] >= inline**2 for pane in panes), "no window is smaller than inline"
        assert page.locator("#large figcaption").all_inner_texts() == ["Original", "Image A", "Image B"]

        (before,) = places(page)
        page.keyboard.press("+")
        page.keyboard.press("ArrowLeft")
        (after,) = places(page)
        assert after != before
        page.keyboard.press("z")
        expect(page.locator("#zoom")).to_be_hidden()


def test_the_surround_is_neutral_grey_whatever_the_theme(looking: Page) -> None:
    style = "(s) => { const c = getComputedStyle(document.querySelector(s)); return [c.backgroundColor, c.color]; }"
    for scheme, size in itertools.product(("light", "dark"), ((1366, 768), (1024, 480))):
        looking.emulate_media(color_scheme=scheme)  # type: ignore[arg-type]
        looking.set_viewport_size({"width": size[0], "height": size[1]})
        for selector in ("html", "body"):
            assert looking.evaluate(style, selector)[0] == "rgb(128, 128, 128)"
        for selector in (".bar", ".question", ".questions", ".steps"):
            for colour in looking.evaluate(style, selector):
                channels = re.findall(r"\d+", colour)[:3]
                assert len(set(channels)) == 1, (selector, colour)


def test_an_item_whose_pictures_are_missing_cannot_be_answered(open_page: Callable[..., Page], folder: Path) -> None:
    page = open_page()
    page.context.route("**/img/*", lambda route: route.abort() if blocked else route.continue_())
    blocked = False
    to_rating(page)
    wait_until(page, "document.body.dataset.fetched === '9'")
    # The whole task was fetched: without a connection the next items are shown and answered.
    blocked = True
    page.get_by_role("button", name="Next").click()
    answerable(page)
    page.keyboard.type("1")
    saved(page)
    # After a reload nothing can be fetched: items wait for their pictures.
    page.reload()
    expect(page.locator("#loading")).to_contain_text("cannot be answered yet")
    has_no_barriers(page)
    before = chosen(page)
    page.keyboard.type("55")
    page.locator("#choice-1-0-3").dispatch_event("change")
    assert chosen(page) == before
    blocked = False
    answerable(page)
    page.keyboard.type("5")
    saved(page)
    rows = stored(folder, "SELECT pictures, decoded, shown FROM answer")
    assert {row[:2] for row in rows} == {(3, 96)}
    assert all(row[2] > 100 for row in rows)


def test_next_never_hands_in_and_a_comment_is_kept(page: Page, folder: Path) -> None:
    page.get_by_text("Comment on this item").click()
    page.get_by_label("Anything odd about these pictures?").fill("The hat is cut off.")
    for item in range(3):
        answerable(page)
        page.locator("#prompt").click()
        page.keyboard.type("1234512345")
        expect(page.locator("#finish" if item == 2 else "#next")).to_be_focused()
        page.keyboard.press("n")
    expect(page.locator("#where")).to_have_text("Item 3 of 3")
    expect(page.locator("#next")).to_be_hidden()
    page.locator("#back").click()
    answerable(page)
    page.locator("#back").click()
    answerable(page)
    expect(page.get_by_label("Anything odd about these pictures?")).to_have_value("The hat is cut off.")
    expect(page.locator("#next")).to_have_text("Next")
    page.locator("#next").dblclick()
    expect(page.locator("#where")).to_have_text("Item 3 of 3")
    hand_in(page)
    page.get_by_label("Is there anything you want to tell us?").fill("Nice pictures.")
    page.get_by_role("button", name="Send the comment").dblclick()
    expect(page.get_by_text("Your comment is saved")).to_be_visible()
    assert set(stored(folder, "SELECT text FROM comment")) >= {("The hat is cut off.",), ("Nice pictures.",)}


def test_withdrawing_is_one_link_and_one_button_away(page: Page, folder: Path) -> None:
    page.keyboard.type("12")
    saved(page)
    page.get_by_role("link", name="Withdraw").click()
    has_no_barriers(page)
    page.get_by_role("button", name="Withdraw and delete my answers").click()
    expect(page.get_by_role("heading", name="You have withdrawn")).to_be_visible()
    assert stored(folder, "SELECT withdrawn FROM study")[0][0] >= 1


def test_no_page_at_which_a_participation_ends_has_barriers(
    browser: Browser, serve: Callable[..., Served], tmp_path: Path
) -> None:
    served = serve(tasks=1, raters=2)
    with Store.writing(tmp_path / "run"):
        pass
    full, late, declined, narrow = (served.browser().enter(name) for name in ("full", "late", "declined", "narrow"))
    declined.form("/study/consent", decision="decline", version="1")
    narrow.agree()
    narrow.form("/study/device", width="390")
    careless = served.browser().guess("careless", comments=[{"seq": 900, "item": 0, "text": "Odd."}])
    careless.form("/study/comment", comment="Thank you")
    rating = served.browser().enter("rating").to_rating()
    full.agree()
    admin = served.admin()
    pages = [
        *(person.ask("GET", "/study") for person in (full, declined, narrow, careless)),
        *(served.browser().ask("GET", path) for path in ("/", "/study", "/i/guess", "/nowhere", "/admin")),
        served.browser().ask("POST", "/admin/login", data={"password": "wrong"}),
        *(admin.ask("GET", path) for path in ("/admin", "/admin/submissions", "/admin/log")),
        rating.ask("GET", "/withdraw"),
    ]
    close_study(served.study, tmp_path / "run", flagged="include")
    pages += [person.ask("GET", "/study") for person in (rating, late.agree())]
    pages.append(careless.ask("GET", "/withdraw"))
    texts = [page.text for page in pages]
    for title in ("All places are taken", "You did not agree", "does not fit", "The study has ended", "too late"):
        assert any(title in text for text in texts), title
    context = browser.new_context()
    shown = context.new_page()
    styles = served.browser()
    # One page of each heading: pages that differ in a sentence have the same barriers.
    for page in {re.findall(r"<h1.*?</h1>", text)[0]: page for page, text in zip(pages, texts, strict=True)}.values():
        shown.route("http://study.test/", partial(_fulfil, page))
        shown.route("http://study.test/static/*", lambda route: _fulfil(styles.ask("GET", _path(route)), route))
        shown.goto("http://study.test/")
        has_no_barriers(shown)
        shown.unroute_all()
    context.close()


def _path(route: Route) -> str:
    return route.request.url.removeprefix("http://study.test")


def _fulfil(answer: Any, route: Route) -> None:
    route.fulfill(status=200, body=answer.content, content_type=answer.headers["content-type"])


@contextmanager
def served_at(served: Served) -> Iterator[str]:
    import uvicorn

    server = WebServer.choose(port=0)
    running = uvicorn.Server(uvicorn.Config(build(served.study), log_level="warning"))
    thread = threading.Thread(target=running.run, kwargs={"sockets": [server.listening]})
    thread.start()
    try:
        yield server.address
    finally:
        running.should_exit = True
        thread.join()


def test_the_code_is_readable_and_copied_and_every_last_page_passes_axe(
    browser: Browser, serve: Callable[..., Served]
) -> None:
    served = serve()
    with served_at(served) as address:
        context = browser.new_context(viewport={"width": 1366, "height": 768})
        context.grant_permissions(["clipboard-read", "clipboard-write"], origin=address)
        page = context.new_page()
        page.goto(f"{address}/enter?PROLIFIC_PID=one&STUDY_ID=study1&SESSION_ID=s1")
        page.get_by_role("button", name="do not agree").or_(page.locator("[value=decline]")).first.click()
        expect(page.locator("#completion-code")).to_have_text("NOCON1")
        page.wait_for_load_state()  # the button works from then on
        page.get_by_role("button", name="Copy").click()
        # A browser without focus does not let a page copy; the code is selected then.
        expect(page.get_by_role("status")).to_have_text(re.compile("Copied|Selected"))
        assert page.evaluate("String(getSelection())") == "NOCON1"
        has_no_barriers(page)

        # Somebody else's id without their link, and a place that the admin releases after being asked.
        page.context.clear_cookies()
        page.goto(f"{address}/enter?PROLIFIC_PID=one&STUDY_ID=study1&SESSION_ID=guess")
        expect(page.get_by_text("already been used here")).to_be_visible()
        has_no_barriers(page)
        rater = served.browser().enter("two").to_rating()
        rater.save(rater.answers()[:5])
        page.goto(f"{address}/admin")
        page.get_by_label("Password").fill(served.password)
        page.keyboard.press("Enter")
        page.get_by_label("Because it was").select_option("released")
        page.get_by_role("button", name="Release …").click()
        expect(page.get_by_text("5 answers will no longer count")).to_be_visible()
        has_no_barriers(page)
        page.get_by_role("button", name="Release").click()
        expect(page.get_by_role("heading", name="Progress")).to_be_visible()
        assert "Your place was released" in rater.page()
        context.close()


@pytest.fixture(scope="module")
def pair_page(browser: Browser, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Page]:
    """A rater at the practice."""
    folder = tmp_path_factory.mktemp("pairs")
    run = role_runs.write(folder / "run", {"one": 1}, lambda *_: 1, prompts=3)
    study = draw_study(run, items=3, per_task=3, gold=1, attention=1, repeats=0).folder
    change(study, 'contact = ""', 'contact = "ask@study.example"')
    with open_study(study) as opened:
        (code,) = invite(opened, 1)
    with serving(study) as server:
        context = browser.new_context(viewport={"width": 1440, "height": 900})
        made = context.new_page()
        made.set_default_timeout(20_000)
        made.goto(f"http://127.0.0.1:{server.port}/i/{code}")
        made.get_by_role("button", name="agree", exact=False).first.click()
        ready(made)
        made.get_by_role("button", name="Continue").click()
        made.get_by_role("button", name="Start the practice").click()
        made.wait_for_selector("body[data-ready=yes]")
        yield made
        context.close()


def test_two_people_and_a_scene_are_rated_by_keyboard(pair_page: Page) -> None:
    page = pair_page
    expect(page.locator("figcaption")).to_have_text(["Person A", "Person B", "Scene"])
    expect(page.locator("#prompt")).to_have_text("Who of the two is drawn as the baker?")
    expect(page.locator("#hint")).to_contain_text("Keys 1–3")
    page.keyboard.press("5")
    expect(page.locator("#questions input:checked")).to_have_count(0)
    page.keyboard.press("2")
    page.keyboard.press("n")
    expect(page.locator(".said")).to_contain_text("here we would answer 1 (Person A)")
    page.keyboard.press("1")
    page.keyboard.press("n")
    expect(page.locator("#where")).to_have_text("Practice 2 of 2")
    answerable(page)
    page.keyboard.press("2")
    page.keyboard.press("n")
    expect(page.locator("#where")).to_have_text("Item 1 of 5")
    page.wait_for_selector("body[data-ready=yes]")
    has_no_barriers(page)
    for item in range(5):
        expect(page.locator("#where")).to_have_text(f"Item {item + 1} of 5")
        answerable(page)
        is_check = "attention check" in (page.locator("#prompt").text_content() or "")
        page.keyboard.press("3" if is_check else "1")
        expect(page.locator("#saved")).to_have_text("✓ Saved")
        if item < 4:
            page.keyboard.press("n")
    hand_in(page)
    expect(page.get_by_role("heading", level=1)).to_contain_text("Thank")
