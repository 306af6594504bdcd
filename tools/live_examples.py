"""Make what the site and the README show of stillme at work: a report, a rating page, and a picture of the report."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from playwright.sync_api import Browser, Page, sync_playwright

from stillme import report
from stillme.estimates import estimate
from stillme.report.data import report_data
from stillme.runs import RecordedRun

STILLME = [sys.executable, "-m", "stillme"]
PRACTICE = (1, 3, 1, 1, 3)
"""Answers to begin the practice with; its hints say what to correct."""
DEVICE = {"width": "1280", "height": "800", "ratio": "150", "storage": "yes", "brightness": "yes", "filters": "yes"}
STILL = """() => {
  for (const image of [...document.images].filter((each) => each.naturalWidth)) {
    const canvas = document.createElement("canvas");
    [canvas.width, canvas.height] = [image.naturalWidth, image.naturalHeight];
    canvas.getContext("2d").drawImage(image, 0, 0);
    image.src = canvas.toDataURL("image/webp", 0.8);
  }
  for (const link of document.querySelectorAll("a[href]")) link.removeAttribute("href");
  for (const part of document.body.querySelectorAll("script, noscript, dialog")) part.remove();
  const styles = [...document.styleSheets].map((sheet) => [...sheet.cssRules].map((rule) => rule.cssText).join("\\n"));
  return [styles.join("\\n"), document.body.className, document.body.innerHTML];
}"""


def make(folder: Path, scratch: Path, picture: Path | None = None, demo: Path | None = None) -> None:
    """Write `report.html` and `rating.html` into `folder`, and a picture of the report's first screen."""
    if demo is None:
        demo = scratch / "demo"
        subprocess.run([*STILLME, "demo", "--out", demo], check=True, capture_output=True)
    folder.mkdir(parents=True, exist_ok=True)
    with RecordedRun.open(demo) as run:
        data = report_data(run, estimate(run.results.edits, run.results.scores, run.settings))
        # Without the run's folder there are no full pictures to lead to.
        (folder / "report.html").write_text(report.render(replace(data, folder=None)), "utf-8")
    few = ("--items", "20", "--per-task", "10")
    subprocess.run([*STILLME, "study", "new", demo, "--out", scratch / "study", *few], check=True, capture_output=True)
    with _browser() as browser:
        rating = _rating_page(browser, scratch / "study") if browser else "<p>Built without Chromium.</p>"
        (folder / "rating.html").write_text(rating, "utf-8")
        if browser and picture:
            page = browser.new_page(viewport={"width": 1440, "height": 900})
            page.goto((folder / "report.html").as_uri())
            page.wait_for_selector("html[data-ready=yes]")
            page.screenshot(path=picture)


@contextmanager
def _browser() -> Iterator[Browser | None]:
    """Debian's Chromium; None where it is not installed."""
    chromium = shutil.which("chromium")
    if chromium is None:
        print("No Chromium here: the picture stays as it is, and the example of a rating page says so.")
        yield None
        return
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        yield browser
        browser.close()


def _rating_page(browser: Browser, study: Path) -> str:
    """The first item as a rater sees it, as one file without scripts."""
    command = [*STILLME, "study", "preview", study]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as server:
        try:
            assert server.stdout is not None
            address = next(found[1] for line in server.stdout if (found := re.search(r"(http\S+/i/\S+)", line)))
            page = browser.new_page(viewport={"width": 1366, "height": 768})
            _reach_rating(page, address)
            style, kind, body = page.evaluate(STILL)
        finally:
            server.terminate()
    note = "An example: no answer is saved. <code>stillme study preview</code> shows the whole study."
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>Example: rating page</title>'
        f'<meta name="viewport" content="width=device-width, initial-scale=1"><style>{style}</style></head>'
        f'<body class="{kind}"><p style="margin: 0; padding: .3rem 1rem">{note}</p>{body}</body></html>\n'
    )


def _reach_rating(page: Page, address: str) -> None:
    """Consent, device check, guide and practice, in the page's own session."""
    home = address.partition("/i/")[0]
    origin = {"Origin": home}
    shown = page.request.get(address).text()
    for path, more in (("consent", {"decision": "agree", "version": "1"}), ("device", DEVICE), ("guide", {})):
        form = {"csrf": _found(r'name="csrf" (?:content|value)="(\w+)"', shown), **more}
        shown = page.request.post(f"{home}/study/{path}", form=form, headers=origin).text()
    page.goto(f"{home}/study")
    token = page.locator("meta[name=csrf]").get_attribute("content") or ""
    items = json.loads(page.locator("#data").text_content() or "")["items"]
    answers = [[list(PRACTICE) for _ in item["pictures"][item["sources"] :]] for item in items]
    said = {"finished": False}
    while not said["finished"]:
        body, headers = {"answers": answers}, {**origin, "X-CSRF": token}
        said = page.request.post(f"{home}/api/training", data=body, headers=headers).json()
        for place, side, question, hint in _hints(said["feedback"]):
            answers[place][side][question] = int(_found(r"would answer (\d)", hint))
    page.goto(f"{home}/study")
    page.locator("#questions:not([inert]) .question").first.wait_for()


def _hints(feedback: list[list[list[str]]]) -> Iterator[tuple[int, int, int, str]]:
    for place, sides in enumerate(feedback):
        for side, hints in enumerate(sides):
            yield from ((place, side, question, hint) for question, hint in enumerate(hints) if hint)


def _found(pattern: str, text: str) -> str:
    match = re.search(pattern, text)
    assert match, text[:500]
    return match[1]
