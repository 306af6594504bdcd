"""The page of `stillme check --html`, in a browser."""

from __future__ import annotations

import base64
import re
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
from axe_playwright_python.sync_playwright import Axe
from PIL import Image
from playwright.sync_api import Page

from tests.command_lines import ran
from tests.instruments.known_changes import lighter, portrait
from tests.pages import wait_until

pytestmark = pytest.mark.browser

Look = Callable[..., Page]

HOSTILE = "</script><script>document.title='owned'</script><img src=x onerror=\"document.title='owned'\">"


@pytest.fixture(scope="module")
def page_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("secret-name")
    exif = Image.Exif()
    exif[0x010E] = "taken at home"
    Image.fromarray(portrait("G_f_23")).resize((2400, 2400)).save(folder / "source.jpg", exif=exif)
    Image.fromarray(lighter(portrait("G_f_23"), 9)).resize((600, 640)).save(folder / "edited.jpg", exif=exif)
    file = folder / "check.html"
    command = ["check", str(folder / "edited.jpg"), "--source", str(folder / "source.jpg"), "--html", str(file)]
    shown = ran(*command, "--prompt", HOSTILE)
    assert f"Open in a browser: {file}" in shown.stderr
    return file


@pytest.fixture
def look(visit: Look, page_file: Path) -> Look:
    """Open the page, which may fetch nothing but itself."""
    return partial(visit, page_file.as_uri(), page_file.as_uri())


def seam(page: Page) -> str:
    return page.evaluate("getComputedStyle(document.querySelector('.after')).clipPath")


def test_the_sentences_and_pictures_are_there_without_a_request_or_a_complaint(look: Look):
    page = look(viewport={"width": 1440, "height": 900})
    sentences = page.locator(".statements li").all_inner_texts()
    assert sentences[0].startswith("Your skin came back much lighter (+9 L*, about 2 foundation shades).")
    assert sentences[1].startswith("You still look like the same person.")
    assert re.match(r"1\d % of the picture changed\.", sentences[-1])
    assert page.locator("img").count() == 4
    wait_until(page, "[...document.images].every((image) => image.complete && image.naturalWidth > 0)")
    assert page.title() == "What this edit changed"
    assert HOSTILE in page.locator("main").inner_text()


def test_the_slider_moves_by_keyboard_and_by_pointer(look: Look):
    page = look(viewport={"width": 1000, "height": 1600})
    assert seam(page) == "inset(0px 0px 0px 50%)"
    slider = page.get_by_role("slider")
    slider.focus()
    for _ in range(5):
        page.keyboard.press("ArrowRight")
    assert seam(page) == "inset(0px 0px 0px 55%)"
    assert slider.get_attribute("aria-valuetext") == "55 % before, 45 % after"
    page.keyboard.press("Home")
    assert seam(page) in ("inset(0px 0px 0px 0%)", "inset(0px)")
    box = page.locator(".compare").bounding_box()
    page.mouse.move(box["x"] + box["width"] * 0.2, box["y"] + 50)
    page.mouse.down()
    page.mouse.move(box["x"] + box["width"] * 0.75, box["y"] + 60)
    page.mouse.up()
    page.mouse.move(box["x"] + 5, box["y"] + 60)
    assert slider.input_value() == "75"


def test_without_a_script_both_pictures_stand_side_by_side(look: Look):
    page = look(java_script_enabled=False, viewport={"width": 390, "height": 844})
    before, after = (page.locator(f".{name} img").bounding_box() for name in ("before", "after"))
    assert before["x"] + before["width"] <= after["x"]
    assert before["width"] > 150
    assert not page.locator(".slide").is_visible()


def test_a_telephone_shows_the_whole_width(look: Look):
    page = look(viewport={"width": 390, "height": 844}, has_touch=True)
    assert page.evaluate("document.documentElement.scrollWidth") == 390
    target = page.get_by_role("slider").bounding_box()
    assert target["height"] >= 44


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_page_is_accessible(look: Look, scheme: str):
    page = look(color_scheme=scheme, bypass_csp=True)
    found = Axe().run(page)
    assert found.violations_count == 0, found.generate_report()


def test_pictures_are_shrunk_and_carry_neither_metadata_nor_names(look: Look, page_file: Path):
    text = page_file.read_text("utf-8")
    assert len(text) < 1_500_000
    assert "secret-name" not in text
    assert "edited.jpg" not in text
    page = look()
    wait_until(page, "[...document.images].every((image) => image.complete)")
    assert page.evaluate("document.querySelector('.before img').naturalWidth") == 1024
    assert page.evaluate("document.querySelector('.after img').naturalHeight") == 640
    for data in re.findall(r"data:image/webp;base64,([^\"]+)", text):
        raw = base64.b64decode(data)
        assert b"EXIF" not in raw
        assert b"taken at home" not in raw
