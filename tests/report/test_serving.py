from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.client import HTTPConnection
from pathlib import Path

import pytest
from playwright.sync_api import Browser

from stillme.api.pipeline import run_stages
from stillme.core.errors import StillmeError
from stillme.report.data import Redaction
from stillme.report.server import LivePage, Refresher, Served, Server, serve
from tests.pages import wait_until


@contextmanager
def serving(folder: Path, redact: Redaction = "none") -> Iterator[tuple[Refresher, Server]]:
    """A refresher that paints when told to, and a server on a free port."""
    live_page = LivePage()
    served = Served(path=folder, redact=redact, port=0)
    refresher = Refresher(served, live_page)
    with Server(served, live_page, refresher.folder) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield refresher, server
        server.shutdown()
        thread.join()


def ask(server: Server, path: str, host: str = "localhost", method: str = "GET") -> tuple[int, bytes, dict[str, str]]:
    connection = HTTPConnection("127.0.0.1", server.server_address[1], timeout=20)
    connection.request(method, path, headers={"Host": host})
    answer = connection.getresponse()
    body = answer.read()
    connection.close()
    return answer.status, body, dict(answer.getheaders())


@pytest.fixture
def run(write_audit: Callable[..., Path]) -> Path:
    folder = write_audit()
    run_stages(folder, ("edit",))
    return folder


def test_the_page_follows_the_run(run: Path) -> None:
    with serving(run) as (refresher, server):
        assert b"being computed" in ask(server, "/")[1]
        refresher.refresh()
        first = ask(server, "/")[1]
        assert b"<h1>A test</h1>" in first
        before = json.loads(ask(server, "/progress")[1])
        assert before["page"] == 1
        assert not before["complete"]
        refresher.refresh()
        assert json.loads(ask(server, "/progress")[1])["page"] == 1, "nothing new, nothing to paint"
        run_stages(run, ("judge",))
        refresher.refresh()
        after = json.loads(ask(server, "/progress")[1])
        assert after["complete"]
        assert after["page"] == 2
        assert after["judges"][0]["done"] == 12
        assert ask(server, "/")[1] != first


def problem_of(server: Server, wanted: Callable[[str], bool]) -> None:
    """Wait until the page would show such a problem."""
    end = time.monotonic() + 60
    while not wanted(json.loads(ask(server, "/progress")[1])["problem"]):
        assert time.monotonic() < end
        time.sleep(0.1)


def test_a_damaged_ledger_is_shown_and_the_page_stays_until_it_is_whole_again(run: Path) -> None:
    ledger = run / "stillme.sqlite"
    with serving(run) as (refresher, server):
        refresher.refresh()
        page, whole = ask(server, "/")[1], ledger.read_bytes()
        ledger.write_bytes(whole[:4096] + b"\xff" * len(whole))
        refresher.start()
        problem_of(server, lambda said: "damaged" in said)
        assert ask(server, "/")[1] == page
        ledger.write_bytes(whole)
        problem_of(server, lambda said: not said)
        refresher.stop()
        refresher.join()


def test_pictures_come_from_the_run_as_they_were_and_nothing_else_does(run: Path) -> None:
    picture, another, *_ = (run / "images").rglob("*.png")
    path = f"/images/{picture.parent.name}/{picture.name}"
    with serving(run) as (_, server):
        status, body, headers = ask(server, path)
        assert (status, body) == (200, picture.read_bytes())
        assert headers["X-Content-Type-Options"] == "nosniff"
        assert ask(server, "/", method="HEAD")[1] == b""
        for elsewhere in ("/stillme.sqlite", "/images/../audit.toml", "/images/%2e%2e/audit.toml", "/audit.toml"):
            assert ask(server, elsewhere)[0] == 404, elsewhere
        assert ask(server, "/", method="POST")[0] == 501
        hosts = ("evil.example", "127.0.0.1:8777", "[::1]:80")
        assert [ask(server, "/", host=host)[0] for host in hosts] == [421, 200, 200], "another site's name for it"
        with pytest.raises(StillmeError, match="--port 0"):
            Server(Served(path=run, port=server.server_address[1]), LivePage(), run)
        picture.write_bytes(another.read_bytes())
        assert ask(server, path)[0] == 404, "it is not what it was"
    with serving(run, redact="blur") as (_, server):
        assert ask(server, f"/images/{another.parent.name}/{another.name}")[0] == 404


def test_a_run_that_never_began_is_named(write_audit: Callable[..., Path]) -> None:
    with pytest.raises(StillmeError, match="has no run yet"):
        serve(Served(path=write_audit(), port=0), lambda _: None)


@pytest.mark.browser
def test_a_reader_is_offered_the_newer_numbers(browser: Browser, run: Path) -> None:
    with serving(run) as (refresher, server):
        refresher.refresh()
        page = browser.new_page()
        wrong: list[str] = []
        page.on("pageerror", lambda error: wrong.append(str(error)))
        page.goto(server.address)
        wait_until(page, "document.querySelector('#live p').textContent.includes('going on')")
        assert not page.get_by_role("button", name="Show the newer numbers").is_visible()
        run_stages(run, ("judge",))
        refresher.refresh()
        page.get_by_role("button", name="Show the newer numbers").click(timeout=15_000)
        wait_until(page, "document.querySelector('#live p')?.textContent.includes('complete')")
        assert wrong == []
        page.close()
