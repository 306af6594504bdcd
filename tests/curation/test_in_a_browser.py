"""The whole way, as people go it: two curators, a refresh, a killed server, a finished set."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, Route, expect

from stillme import portraits as room
from stillme.curation.decisions import CurationTally, Log
from stillme.curation.pools import Pools
from tests.pages import has_no_barriers
from tests.processes import Started, ran

pytestmark = pytest.mark.browser

expect.set_options(timeout=20_000)  # a busy machine is no fault of the page


class WebServer:
    """`stillme portraits curate` in a process of its own."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.address = ""
        self.start(0)

    def start(self, port: int) -> None:
        words = ("portraits", "curate", self._folder, "--no-browser", "--port", port, "--name", "Ada", "--name", "Bo")
        self._process = Started(*words)
        self._process.wait_until(lambda: "Ctrl-C" in self._process.said())
        self.links = dict(re.findall(r"(\w+): (http://\S+)", self._process.said()))
        self.address = self.links["Ada"].partition("?")[0]

    @property
    def port(self) -> int:
        return int(re.findall(r":(\d+)", self.address)[0])

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()


@pytest.fixture
def server(pools: Pools) -> Iterator[WebServer]:
    running = WebServer(pools.folder)
    yield running
    running.kill()


def enter(browser: Browser, server: WebServer, name: str, **options: object) -> tuple[Page, list[str]]:
    page = browser.new_context(**options).new_page()
    wrong: list[str] = []
    page.on("console", lambda message: wrong.append(message.text))
    page.on("pageerror", lambda error: wrong.append(str(error)))
    page.goto(server.links[name])
    expect(page.get_by_role("heading", name="4 cells")).to_be_visible()
    return page, wrong


def tally(pools: Pools) -> CurationTally:
    log = Log(pools)
    try:
        return CurationTally(pools, log.actions())
    finally:
        log.close()


def press(page: Page, keys: str) -> None:
    for key in keys.split():
        page.keyboard.press(key)


def card(page: Page, number: int):
    """A candidate, shown large."""
    page.locator(".thumb").nth(number - 1).click()
    return page.get_by_role("article", name=f"Candidate {number}")


def thumb(page: Page, number: int):
    return page.locator(".thumb").nth(number - 1)


def choose(page: Page, candidate: str) -> None:
    page.locator(f"[data-show='{candidate}']").click()
    press(page, "a c")
    expect(page.get_by_role("status")).to_have_text("Decided.")


def test_two_curators_choose_disagree_settle_and_finalize(
    browser: Browser, server: WebServer, pools: Pools, tmp_path: Path
):
    ada, wrong = enter(browser, server, "Ada")
    ada.get_by_role("link", name="Open the first of 4").click()
    expect(ada.get_by_role("article")).to_be_visible()
    expect(ada.locator("input[type=checkbox]:checked:visible")).to_have_count(0)

    # By keyboard alone: six criteria, choose; the next one is rejected with a reason.
    press(ada, "1 f o l i e p c")
    expect(thumb(ada, 1)).to_contain_text("✓ chosen")
    expect(ada.get_by_role("status")).to_have_text("Decided.")
    press(ada, "ArrowRight x 2 Enter")
    expect(thumb(ada, 2)).to_contain_text("✗ rejected")
    expect(card(ada, 2)).to_contain_text("Not: clear focus")
    press(ada, "3 z")
    expect(ada.get_by_alt_text("Candidate 3, enlarged")).to_be_visible()
    has_no_barriers(ada)
    press(ada, "s ArrowLeft")
    expect(ada.get_by_alt_text("Candidate 2, enlarged")).to_be_visible()
    press(ada, "Escape")
    expect(ada.locator("#zoom")).to_be_hidden()

    # A refresh loses nothing.
    settle_down(ada)
    ada.reload()
    expect(thumb(ada, 1)).to_contain_text("✓ chosen")
    expect(thumb(ada, 2)).to_contain_text("✗ rejected")
    assert card(ada, 1).locator("input:checked").count() == 6

    # Undo goes back one by one.
    press(ada, "u")
    expect(thumb(ada, 2)).not_to_contain_text("✗ rejected")
    press(ada, "u")
    expect(thumb(ada, 1)).not_to_contain_text("✓ chosen")

    # Choosing with criteria unticked is asked about; the next cells are decided alike by both.
    press(ada, "2 c")
    expect(ada.get_by_text("Choose although not everything is ticked?")).to_be_visible()
    press(ada, "Enter")
    expect(thumb(ada, 2)).to_contain_text("✓ chosen")
    ada_chose = ada.locator(".candidate.chosen").get_attribute("data-id")
    for number in (2, 3, 4):
        press(ada, "n")
        ada.wait_for_url(f"**/cell/{number}")
        expect(ada.get_by_role("status")).to_have_text("")
        choose(ada, first_of_cell(ada, pools))
    settle_down(ada)
    assert wrong == []

    bo, wrong = enter(browser, server, "Bo")
    # Who else curates, and how far they are, is not shown before the own decision.
    expect(bo.get_by_text("Ada")).to_have_count(0)
    expect(bo.locator(".tile sup")).to_have_count(0)
    for number in range(1, 5):
        bo.goto(f"{server.address}cell/{number}")
        expect(bo.locator(".candidate.chosen")).to_have_count(0)
        chosen = first_of_cell(bo, pools)
        if number == 1:
            chosen = next(candidate.id for candidate in pools.cells[pools.design.cells[0]] if candidate.id != ada_chose)
        choose(bo, chosen)
        settle_down(bo)
        if number in (1, 3):  # killed between two choices
            server.kill()
            server.start(server.port)
    bo.goto(f"{server.address}settle/1")
    expect(bo.get_by_text("Decide this cell yourself, then compare")).to_be_visible()
    bo.get_by_role("link", name="Grid").click()
    expect(bo.get_by_role("heading", name="To be settled")).to_be_visible()
    expect(bo.get_by_role("row", name=re.compile("Ada and Bo"))).to_have_count(0)
    bo.get_by_role("button", name="Compare 4 cells").click()
    expect(bo.get_by_role("row", name=re.compile("Ada and Bo"))).to_contain_text("75 %")
    has_no_barriers(bo)
    bo.goto(f"{server.address}cell/1")
    expect(bo.get_by_text("your choice is final")).to_be_visible()
    expect(bo.get_by_role("button", name="Take back")).to_be_disabled()
    has_no_barriers(bo)
    bo.get_by_role("link", name="settle it").click()
    bo.wait_for_url("**/settle/1")
    # By keyboard: look at it large, take it, settle.
    order = bo.locator(".candidate").evaluate_all("cards => cards.map(card => card.dataset.id)")
    press(bo, f"{order.index(ada_chose) + 1} z")
    expect(bo.locator("#zoom-image")).to_be_visible()
    press(bo, "z c")
    expect(bo.locator(".candidate.chosen")).to_have_attribute("data-id", str(ada_chose))
    press(bo, "Enter")
    expect(bo.get_by_role("heading", name="4 cells")).to_be_visible()
    expect(bo.get_by_role("heading", name="To be settled")).to_be_hidden()
    # The one page that was refused is an error to the browser's console.
    assert [text for text in wrong if "403" not in text] == []

    assert Counter(outcome.state for outcome in tally(pools).outcomes.values()) == {"agreed": 3, "settled": 1}
    ran("portraits", "finalize", pools.folder, tmp_path / "set")
    assert len(room.load(tmp_path / "set" / "v1")) == 4
    ran("portraits", "verify", tmp_path / "set")
    # Every action that was shown as saved is in the log, once.
    log = Log(pools)
    chosen_by = Counter(action.curator for action in log.actions() if action.kind == "choose")
    log.close()
    assert chosen_by == {"Ada": 5, "Bo": 4}
    for page in (ada, bo):
        page.context.close()


def test_four_keys_decide_a_cell_and_all_that_is_needed_is_on_a_laptops_screen(
    browser: Browser, server: WebServer, pools: Pools
):
    page, wrong = enter(browser, server, "Ada", viewport={"width": 1366, "height": 768})
    page.goto(f"{server.address}cell/1")
    for number in range(1, 5):
        page.wait_for_url(f"**/cell/{number}")
        expect(page.get_by_role("status")).to_have_text("")
        picture, button = page.locator(".current .picture"), page.get_by_role("button", name="Choose c")
        shown, pressed = picture.bounding_box(), button.bounding_box()
        assert shown
        assert pressed
        assert min(shown["width"], shown["height"]) >= 500
        assert max(shown["y"] + shown["height"], pressed["y"] + pressed["height"]) <= 768
        last = page.locator(".thumb").last.bounding_box()
        assert last
        assert last["y"] + last["height"] <= 768
        press(page, "2 a c n")
        page.wait_for_url(f"**/cell/{number % 4 + 1}")
    settle_down(page)
    assert all(tally(pools).opinion("Ada", cell).decided(1) for cell in pools.design.cells)
    assert wrong == []
    page.context.close()


def test_what_is_not_saved_is_said_at_once_and_leaving_is_warned_of(browser: Browser, server: WebServer):
    page, _ = enter(browser, server, "Ada")
    page.goto(f"{server.address}cell/1")
    expect(page.locator("#saved")).to_have_text("✓ All saved")
    # The server takes its time: nothing fails, and the page still says so.
    held: list[Route] = []
    page.route("**/act", lambda route: held.append(route))
    press(page, "1 a c 2 x 1 Enter")
    expect(page.locator("#saved")).to_have_text("Saving: 3")
    expect(page.locator("#saved")).to_have_text("Not saved yet: 3")
    asked: list[str] = []
    page.once("dialog", lambda dialog: (asked.append(dialog.type), dialog.dismiss()))
    page.close(run_before_unload=True)
    page.wait_for_timeout(500)
    assert asked == ["beforeunload"]
    for route in held:
        route.continue_()
    page.unroute("**/act")
    expect(page.locator("#saved")).to_have_text("✓ All saved")
    page.on("dialog", lambda dialog: (asked.append(dialog.type), dialog.accept()))
    page.reload()
    assert asked == ["beforeunload"]
    expect(thumb(page, 1)).to_contain_text("✓ chosen")
    page.context.close()


def settle_down(page: Page) -> None:
    """Wait until the server has everything."""
    expect(page.locator("html[data-saved=true]")).to_have_count(1)


def first_of_cell(page: Page, pools: Pools) -> str:
    """The same candidate for everybody, wherever it stands on the screen."""
    return sorted(page.locator(".candidate").evaluate_all("cards => cards.map(card => card.dataset.id)"))[0]


def test_a_killed_server_loses_nothing_that_was_done(browser: Browser, server: WebServer, pools: Pools):
    page, _ = enter(browser, server, "Ada")
    page.goto(f"{server.address}cell/1")
    press(page, "1 f")
    settle_down(page)
    server.kill()
    # Done while nobody listens: kept in the browser.
    press(page, "o 2 x 1 Enter")
    expect(page.get_by_text("the server does not answer")).to_be_visible()
    server.start(server.port)
    expect(page.locator("#unsaved")).to_be_hidden()
    expect(thumb(page, 2)).to_contain_text("✗ rejected")
    # Killed again, and the page is opened anew.
    server.kill()
    press(page, "3 l")
    expect(page.get_by_text("the server does not answer")).to_be_visible()
    server.start(server.port)
    page.reload()
    settle_down(page)
    expect(card(page, 3).get_by_label("Proper lighting")).to_be_checked()
    log = Log(pools)
    done = [action.kind for action in log.actions()]
    log.close()
    assert done == ["invite", "invite", "open", "tick", "tick", "reject", "tick"]
    page.context.close()


def contest(page: Page, server: WebServer, pools: Pools) -> None:
    """Have Ada and Bo choose differently in cell 1, and Ada compare."""
    first, second, _ = (candidate.id for candidate in pools.cells[pools.design.cells[0]])
    log = Log(pools)
    for name, candidate in (("Ada", first), ("Bo", second)):
        log.append(name, pools.design.cells[0], "choose", {"candidate": candidate})
    log.close()
    page.goto(server.address)
    page.get_by_role("button", name="Compare 1 cell").click()
    expect(page.locator(".contested a")).to_have_count(1)


def test_pages_fit_a_phone_and_a_small_window_and_pass_axe_in_both_schemes(
    browser: Browser, server: WebServer, pools: Pools
):
    page, wrong = enter(browser, server, "Ada", viewport={"width": 390, "height": 800})
    home = server.address
    contest(page, server, pools)
    for path in ("", "cell/1", "cell/2", "settle/1", "settle/2"):
        page.goto(home + path)
        assert page.evaluate("document.documentElement.scrollWidth") == 390, path
        has_no_barriers(page)
        page.set_viewport_size({"width": 1024, "height": 768})
        assert page.evaluate("document.documentElement.scrollWidth") == 1024, path
        page.set_viewport_size({"width": 390, "height": 800})
    page.goto(home + "cell/2")
    for button, dialog in (("Reject", "rejecting"), ("Keys", "help"), ("No candidate fits", "emptying")):
        page.get_by_role("button", name=button).first.click()
        expect(page.locator(f"#{dialog}")).to_be_visible()
        has_no_barriers(page)
        press(page, "Escape")
    assert [text for text in wrong if "403" not in text] == []  # settle/2, where there is nothing to settle
    page.context.close()
