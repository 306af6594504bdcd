"""Waiting for a page, and looking for its barriers."""

from __future__ import annotations

from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Page

_ALL = {"runOnly": ["wcag2a", "wcag2aa", "wcag21aa", "wcag22aa", "best-practice"]}
_COLOURS = {"runOnly": {"type": "rule", "values": ["color-contrast"]}}


def has_no_barriers(page: Page) -> None:
    """By axe, in the light scheme; in the dark one only colours differ."""
    for scheme, rules in (("dark", _COLOURS), ("light", _ALL)):
        page.emulate_media(color_scheme=scheme)  # type: ignore[arg-type]
        results = Axe().run(page, options=rules)
        assert results.violations_count == 0, results.generate_report()


def wait_until(page: Page, condition: str, arg: object = None) -> None:
    """Ask again and again: Playwright's own waiting runs `eval` in the page, which its policy forbids."""
    for _ in range(1200):
        if page.evaluate(condition, arg):
            return
        page.wait_for_timeout(50)
    raise AssertionError(f"never true: {condition}")
