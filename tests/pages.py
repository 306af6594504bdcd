"""Waiting for a page."""

from __future__ import annotations

from playwright.sync_api import Page


def wait_until(page: Page, condition: str, arg: object = None) -> None:
    """Ask again and again: Playwright's own waiting runs `eval` in the page, which its policy forbids."""
    for _ in range(1200):
        if page.evaluate(condition, arg):
            return
        page.wait_for_timeout(50)
    raise AssertionError(f"never true: {condition}")
