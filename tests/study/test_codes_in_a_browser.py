"""The last pages as people see them: the code can be read and copied, and the admin is asked before a release."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
from playwright.sync_api import Browser as Chromium
from playwright.sync_api import expect

from stillme.study.app import build
from stillme.web.serving import WebServer
from tests.pages import has_no_barriers
from tests.study.conftest import Served

pytestmark = pytest.mark.browser

expect.set_options(timeout=20_000)


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
    browser: Chromium, serve: Callable[..., Served]
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
