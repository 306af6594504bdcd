"""The documentation site: every page is there, reads as on GitHub, and needs no network."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from collections import Counter
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote

import pytest
from markdown_it import MarkdownIt
from playwright.sync_api import Browser, Page, expect

from stillme import __version__
from tests.processes import installed

ROOT = Path(__file__).parent.parent

pytestmark = pytest.mark.xdist_group("site")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory, demo: tuple[Path, str]) -> Path:
    """Built once, strictly: an issue that the builder finds is an error. In a process without the tests' plugins."""
    out = tmp_path_factory.mktemp("documentation") / "site"
    command = [sys.executable, "tools/documentation.py", "--out", out, "--demo", demo[0]]
    subprocess.run(command, cwd=ROOT, env=installed(), check=True)
    return out


class Seen(HTMLParser):
    """What a page's article holds, where it leads, and what it loads."""

    def __init__(self, page: Path) -> None:
        super().__init__()
        self.links: list[str] = []
        self.loads: list[str] = []
        self.ids: set[str] = set()
        self.blocks: Counter[str] = Counter()
        self._inside = False
        self.feed(page.read_text("utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = {name: value or "" for name, value in attrs}
        self.ids.add(values.get("id", ""))
        self._inside = self._inside or tag == "article"
        if tag == "a" and "href" in values:
            self.links.append(values["href"])
        if "src" in values:
            self.loads.append(values["src"])
        if tag == "link" and values.get("rel") in ("stylesheet", "icon", "preconnect", "preload", "manifest"):
            self.loads.append(values["href"])
        if self._inside and tag in ("li", "table", "pre", "h2", "h3", "img"):
            self.blocks[tag] += 1

    def handle_endtag(self, tag: str) -> None:
        if tag == "article":
            self._inside = False


def pages(site: Path) -> list[Path]:
    return sorted(page for page in site.rglob("*.html") if page.name != "404.html")


def test_no_page_loads_anything_from_the_network(site: Path):
    assert len(pages(site)) > 70
    for page in site.rglob("*.html"):
        away = [address for address in Seen(page).loads if re.match(r"(https?:)?//", address)]
        assert not away, f"{page.name} loads {away}"
    for sheet in site.rglob("*.css"):
        assert not re.search(r"(url\(|@import )[\"']?(https?:)?//", sheet.read_text("utf-8")), sheet.name


def test_every_link_of_the_site_leads_to_a_page_and_a_place_on_it(site: Path):
    seen = {page: Seen(page) for page in pages(site)}
    for page, content in seen.items():
        for link in content.links:
            address, _, anchor = unquote(link).partition("#")
            if re.match(r"[a-z]+:", address):
                continue
            target = (page.parent / address).resolve() if address else page
            assert target.exists(), f"{page.name} links to {link}"
            anchor = anchor.partition("?")[0]  # a report's filters are part of its address
            if anchor and target in seen:
                assert anchor in seen[target].ids, f"{page.name} links to {link}"


def test_every_page_is_in_the_navigation(site: Path):
    def listed(entry: object) -> Iterator[str]:
        match entry:
            case str():
                yield entry.removesuffix(".md")
            case dict():
                for each in entry.values():
                    yield from listed(each)
            case list():
                for each in entry:
                    yield from listed(each)
            case _:
                raise AssertionError(entry)

    nav = set(listed(tomllib.loads((ROOT / "zensical.toml").read_text())["project"]["nav"]))
    built = {page.relative_to(site).with_suffix("").as_posix() for page in pages(site)}
    reached_by_links = {name for name in built if re.match(r"files/|decisions/\d", name)}
    assert {name.removesuffix(".html") for name in nav} == built - reached_by_links


def test_every_page_shows_the_version(site: Path):
    assert f"stillme {__version__}" in (site / "index.html").read_text("utf-8")
    assert f"stillme {__version__}" in (site / "audit.html").read_text("utf-8")


@pytest.mark.browser
def test_the_examples_are_a_report_that_works_and_a_rating_page(offline: Page, site: Path):
    wrong: list[str] = []
    offline.on("pageerror", lambda error: wrong.append(str(error)))
    offline.on("requestfailed", lambda asked: wrong.append(asked.url))
    offline.goto((site / "example" / "report.html").as_uri())
    expect(offline.locator("html[data-ready=yes]")).to_be_attached()
    expect(offline.get_by_text("biased lightened")).to_be_visible()
    offline.set_viewport_size({"width": 1366, "height": 800})
    offline.goto((site / "example" / "rating.html").as_uri())
    expect(offline.get_by_role("img", name="Image B")).to_be_visible()
    choice = offline.get_by_role("radio").first
    choice.check()
    expect(choice).to_be_checked()
    assert wrong == []


@pytest.mark.parametrize(
    "page", sorted((ROOT / "docs").rglob("*.md")), ids=lambda page: page.relative_to(ROOT / "docs").as_posix()
)
def test_a_page_has_the_same_lists_tables_and_code_as_on_github(page: Path, site: Path):
    shown = Seen(site / page.relative_to(ROOT / "docs").with_suffix(".html")).blocks
    tokens = MarkdownIt("commonmark").enable("table").parse(page.read_text("utf-8"))
    expected = Counter(
        {
            "li": sum(token.type == "list_item_open" for token in tokens),
            "table": sum(token.type == "table_open" for token in tokens),
            "pre": sum(token.type in ("fence", "code_block") for token in tokens),
        }
    )
    assert {kind: shown[kind] for kind in expected} == dict(expected)


@pytest.fixture
def offline(browser: Browser, site: Path) -> Iterator[Page]:
    context = browser.new_context(viewport={"width": 390, "height": 800}, offline=True)
    page = context.new_page()
    page.goto((site / "index.html").as_uri())
    yield page
    context.close()


@pytest.mark.browser
def test_the_search_answers_from_a_file_without_a_network(offline: Page):
    asked: list[str] = []
    offline.on("request", lambda request: asked.append(request.url))
    offline.set_viewport_size({"width": 1366, "height": 800})
    offline.reload()
    offline.get_by_role("button", name="Search").click()
    # The search lives in a shadow root, which only locators look into.
    offline.get_by_role("combobox", name="Search").fill("control pairs")
    expect(offline.get_by_text("Control pairs").first).to_be_visible(timeout=60_000)
    assert asked
    assert not [address for address in asked if address.startswith("http")]


@pytest.mark.browser
@pytest.mark.parametrize(
    "name", ["index", "audit", "commands", "experiments", "reference/parameters", "tutorials/judge"]
)
def test_no_page_is_wider_than_a_phone(offline: Page, site: Path, name: str):
    offline.goto((site / f"{name}.html").as_uri())
    assert offline.evaluate("document.documentElement.scrollWidth") <= 390
