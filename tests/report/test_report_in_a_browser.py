from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, sync_playwright

from stillme.report import ReportData, write

pytestmark = pytest.mark.browser


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    chromium = shutil.which("chromium")
    if chromium is None:
        pytest.skip("no Chromium on this machine")
    with sync_playwright() as playwright:
        running = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        yield running
        running.close()


@pytest.fixture(scope="module")
def address(make_data: Callable[..., ReportData], tmp_path_factory: pytest.TempPathFactory) -> str:
    path: Path = write(tmp_path_factory.mktemp("report"), make_data(planted=True))
    return path.as_uri()


def visit(browser: Browser, address: str, **options: object) -> tuple[Page, list[str]]:
    """Open the page; the list fills with anything it complains about or tries to fetch."""
    page = browser.new_page(**options)
    wrong: list[str] = []
    page.on("console", lambda message: wrong.append(message.text))
    page.on("pageerror", lambda error: wrong.append(str(error)))
    page.on("request", lambda r: None if r.url.startswith(("data:", "file:")) else wrong.append(r.url))
    page.goto(address)
    return page, wrong


def test_the_page_opens_without_a_request_or_a_complaint(browser: Browser, address: str) -> None:
    page, wrong = visit(browser, address)
    assert page.locator("h1").inner_text() == "Two editors"
    assert page.evaluate("[...document.images].every((image) => image.complete && image.naturalWidth > 0)")
    assert wrong == []
    page.close()


def test_sorting_works_by_keyboard(browser: Browser, address: str) -> None:
    page, wrong = visit(browser, address)
    page.get_by_role("button", name="Estimate").focus()
    page.keyboard.press("Enter")
    head = page.locator("th", has=page.get_by_role("button", name="Estimate"))
    assert head.get_attribute("aria-sort") == "ascending"
    values = page.eval_on_selector_all(
        ".sortable tbody td[data-sort]", "cells => cells.map(cell => cell.dataset.sort).filter(Boolean).map(Number)"
    )
    assert values == sorted(values)
    page.keyboard.press("Enter")
    assert head.get_attribute("aria-sort") == "descending"
    assert wrong == []
    page.close()


def test_the_filter_keeps_rows_with_every_word(browser: Browser, address: str) -> None:
    page, _ = visit(browser, address)
    page.get_by_label("Show only rows with").fill("harsh skin lightened contrast")
    rows = page.locator(".sortable tbody tr:visible").all_inner_texts()
    assert rows
    assert all("harsh" in row and "Skin lightened" in row and "contrast" in row for row in rows)
    assert page.locator("#count").inner_text().startswith(f"{len(rows)} of ")
    page.close()


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [360, 768, 1280])
def test_nothing_is_wider_than_the_screen(browser: Browser, address: str, width: int, scheme: str) -> None:
    page, _ = visit(browser, address, viewport={"width": width, "height": 800}, color_scheme=scheme)
    assert page.evaluate("document.documentElement.scrollWidth") == width
    page.close()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_stands_out_from_its_background(browser: Browser, address: str, scheme: str) -> None:
    page, _ = visit(browser, address, color_scheme=scheme)
    contrast = page.evaluate(
        """() => {
          const canvas = document.createElement("canvas").getContext("2d");
          const light = (name) => {
            canvas.fillStyle = getComputedStyle(document.documentElement).getPropertyValue(name);
            const hex = canvas.fillStyle;
            const parts = [1, 3, 5].map((at) => parseInt(hex.slice(at, at + 2), 16) / 255);
            const [r, g, b] = parts.map((v) => (v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4));
            return 0.2126 * r + 0.7152 * g + 0.0722 * b;
          };
          const ratio = (a, b) => (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
          const inks = ["--ink", "--soft", "--found", ...[0, 1, 2, 3, 4, 5].map((n) => `--ink-${n}`)];
          return inks.flatMap((ink) => ["--paper", "--card"].map((on) => ratio(light(ink), light(on))));
        }"""
    )
    assert min(contrast) >= 4.5
    page.close()


def test_without_script_the_page_is_still_whole(browser: Browser, address: str) -> None:
    context = browser.new_context(java_script_enabled=False)
    page = context.new_page()
    page.goto(address)
    assert page.locator(".sortable tbody tr").count() > 50
    assert page.get_by_role("heading", name="For whom is it worst?").is_visible()
    context.close()


def test_it_prints(browser: Browser, address: str) -> None:
    page, wrong = visit(browser, address)
    assert page.pdf().startswith(b"%PDF")
    assert wrong == []
    page.close()
