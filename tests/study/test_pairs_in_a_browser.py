"""Two people and a scene in Chromium: by keyboard alone, without barriers, and readable on a narrow window."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect

from stillme.study.entry import invite
from stillme.study.opening import open_study
from tests import role_runs
from tests.pages import has_no_barriers
from tests.study.annotators import serving
from tests.study.studies import change, draw_study
from tests.study.test_in_a_browser import answerable, hand_in, ready

pytestmark = [pytest.mark.browser, pytest.mark.xdist_group("study-browser")]

PROMPTS = 3


@pytest.fixture(scope="module")
def page(browser: Browser, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Page]:
    """A rater at the practice."""
    folder = tmp_path_factory.mktemp("pairs")
    run = role_runs.write(folder / "run", {"one": 1}, lambda *_: 1, prompts=PROMPTS)
    study = draw_study(run, items=PROMPTS, per_task=PROMPTS, gold=1, attention=1, repeats=0).folder
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
        look(made, "guide")
        made.get_by_role("button", name="Start the practice").click()
        made.wait_for_selector("body[data-ready=yes]")
        yield made
        context.close()


def look(page: Page, name: str) -> None:
    """Keep pictures of the page where STILLME_LOOK names a folder, for people to look at."""
    if folder := os.environ.get("STILLME_LOOK"):
        for width, height in ((1440, 900), (390, 844)):
            page.set_viewport_size({"width": width, "height": height})
            page.wait_for_timeout(300)
            page.screenshot(path=str(Path(folder) / f"{name}-{width}.png"))
        page.set_viewport_size({"width": 1440, "height": 900})


def test_the_whole_task_by_keyboard(page: Page) -> None:
    expect(page.locator("figcaption")).to_have_text(["Person A", "Person B", "Scene"])
    expect(page.locator("#prompt")).to_have_text("Who of the two is drawn as the baker?")
    expect(page.locator("#hint")).to_contain_text("Keys 1–3")
    look(page, "practice")
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
    look(page, "rating")
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
