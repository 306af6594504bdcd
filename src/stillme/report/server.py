"""`stillme serve`: a run's report that refreshes while the run is in progress. Loopback only by default."""

from __future__ import annotations

import html
import json
import logging
import mimetypes
import re
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cache
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.resources import files
from pathlib import Path
from typing import Any

from stillme import estimates, report
from stillme.core.addresses import ANY, LOOPBACK, bracketed, is_loopback, names_host
from stillme.core.errors import PicturesUnreachable, StillmeError
from stillme.core.types import Redaction
from stillme.report.data import report_data
from stillme.runs import RecordedRun, folder_of
from stillme.runs.status import count
from stillme.runs.store import Store
from stillme.runs.store.pictures import suffix_of

log = logging.getLogger(__name__)

PORT = 8777
_REST = 4.0
"""Pauses are so many times as long as a refresh: the run needs the machine."""

_SOONEST = 2.0

_PICTURE = re.compile(r"/images/[0-9a-f]{2}/(?P<sha256>[0-9a-f]{64})\.\w+")


@dataclass(frozen=True, slots=True, kw_only=True)
class Served:
    """Which run to show, and how."""

    path: Path
    out: Path | None = None
    redact: Redaction = "none"
    host: str = "127.0.0.1"
    port: int = PORT


@dataclass(slots=True)
class LivePage:
    """What visitors see; written by the refresher, read by every request."""

    page: bytes = b""
    number: int = 0
    progress: dict[str, Any] = field(default_factory=lambda: dict[str, Any]())
    problem: str = ""


class Refresher(threading.Thread):
    """Renders the report again when there are new rows; most of the time it leaves the machine to the run."""

    def __init__(self, served: Served, live_page: LivePage) -> None:
        super().__init__(name="refresher", daemon=True)
        self._served, self._live = served, live_page
        self._stopped = threading.Event()
        self._rendered: tuple[int, ...] = ()
        self.folder = folder_of(served.path, served.out)
        """The run folder."""

    def run(self) -> None:
        """Refresh, then rest; until it is stopped."""
        while not self._stopped.is_set():
            begun = time.monotonic()
            try:
                self.refresh()
                self._live.problem = ""
            except StillmeError as error:
                self._live.problem = str(error)
            except Exception as error:
                # The page stays as it was and shows the fault; the next refresh may work.
                log.exception("the page cannot be renewed")
                self._live.problem = f"The page cannot be renewed ({type(error).__name__}: {error})."
            self._stopped.wait(max(_SOONEST, _REST * (time.monotonic() - begun)))

    def stop(self) -> None:
        """End after the page that is being rendered."""
        self._stopped.set()

    def refresh(self) -> None:
        """Count the rows, and render the report if there are more than last time."""
        with RecordedRun.open(self.folder) as run:
            counts, totals = count(run)
            by_name = counts.as_json()
            self._live.progress = {
                "editors": by_name["editors"],
                "judges": by_name["judges"],
                "cost": totals.cost,
                "complete": counts.complete,
            }
            newest = run.store.newest()
            if newest != self._rendered or not self._live.number:
                self._live.page = self._render(run).encode()
                self._live.number += 1
                self._rendered = newest

    def _render(self, run: RecordedRun) -> str:
        estimated = estimates.estimate(run.results.edits, run.results.scores, run.settings)
        data = report_data(run, estimated, redact=self._served.redact)
        if run.store.pictures.place.addresses:
            data = replace(data, link=_on_demand)
        return report.render(data, live=f"const painted = {self._live.number + 1};\n{_part('live.js')}")


def _on_demand(sha256: str) -> str:
    """What leads to a picture that is kept elsewhere: it is fetched when a reader wants to see it in full."""
    return f"images/{sha256[:2]}/{sha256}.png"


class Server(ThreadingHTTPServer):
    """Serves the report, the progress and the run's own pictures, read-only."""

    daemon_threads = True

    def __init__(self, served: Served, live_page: LivePage, folder: Path) -> None:
        self.live_page = live_page
        with Store.reading(folder) as store:
            self.pictures = store.pictures if served.redact == "none" else None
        # Beyond loopback the names of this machine cannot be known.
        self.hosts = (*LOOPBACK, bracketed(served.host)) if is_loopback(served.host) else (ANY,)
        try:
            super().__init__((served.host, served.port), _Handler)
        except OSError as error:
            raise StillmeError(
                f"Cannot listen on {served.host} port {served.port} ({error.strerror}). `--port 0` takes any free port."
            ) from None

    @property
    def address(self) -> str:
        """The address to open."""
        host, port = self.server_address[:2]
        return f"http://{host!s}:{port}/"


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    @property
    def _ours(self) -> Server:
        assert isinstance(self.server, Server)
        return self.server

    def do_GET(self) -> None:
        self._answer(with_body=True)

    def do_HEAD(self) -> None:
        self._answer(with_body=False)

    def log_request(self, code: int | str = "-", size: int | str = "-") -> None:
        """Log nothing: visits are private."""

    def _answer(self, *, with_body: bool) -> None:
        if not names_host(self.headers.get("Host", ""), self._ours.hosts):
            self._send(HTTPStatus.MISDIRECTED_REQUEST, "text/plain", b"Use localhost.", with_body=with_body)
            return
        path = self.path.partition("?")[0]
        answer = {"/": self._page, "/progress": self._progress}.get(path, lambda: self._picture(path))()
        if answer is None:
            self._send(HTTPStatus.NOT_FOUND, "text/plain", b"Not found.", with_body=with_body)
        else:
            self._send(HTTPStatus.OK, *answer, with_body=with_body)

    def _page(self) -> tuple[str, bytes]:
        live_page = self._ours.live_page
        if live_page.page:
            return "text/html; charset=utf-8", live_page.page
        state = live_page.problem or "The first numbers are being computed."
        return "text/html; charset=utf-8", _part("waiting.html").replace("{state}", html.escape(state)).encode()

    def _progress(self) -> tuple[str, bytes]:
        live_page = self._ours.live_page
        empty: dict[str, Any] = {"editors": [], "judges": [], "cost": 0.0, "complete": False}
        progress = {**empty, **live_page.progress, "page": live_page.number, "problem": live_page.problem}
        return "application/json", json.dumps(progress).encode()

    def _picture(self, path: str) -> tuple[str, bytes] | None:
        asked = _PICTURE.fullmatch(path)
        if not asked or not self._ours.pictures:
            return None
        try:
            known = self._ours.pictures.intact(asked["sha256"])
        except PicturesUnreachable as error:
            log.warning("%s", error)
            return None
        if known is None:
            return None
        data = known.read_bytes()
        return mimetypes.types_map.get(suffix_of(data), "application/octet-stream"), data

    def _send(self, status: HTTPStatus, kind: str, body: bytes, *, with_body: bool) -> None:
        self.send_response(status)
        for name, value in (
            ("Content-Type", kind),
            ("Content-Length", str(len(body))),
            ("Cache-Control", "no-store"),
            ("X-Content-Type-Options", "nosniff"),
            ("Referrer-Policy", "no-referrer"),
            ("Cross-Origin-Resource-Policy", "same-origin"),
            ("Content-Security-Policy", "frame-ancestors 'none'"),
        ):
            self.send_header(name, value)
        self.end_headers()
        if with_body:
            self.wfile.write(body)


def serve(served: Served, ready: Callable[[str], None]) -> None:
    """Serve until interrupted; `ready` gets the address once the server listens."""
    live_page = LivePage()
    refresher = Refresher(served, live_page)
    if not Store.exists(refresher.folder):
        raise StillmeError(f"{refresher.folder} has no run yet. `stillme run {served.path}` starts it.")
    with Server(served, live_page, refresher.folder) as server:
        refresher.start()
        ready(server.address)
        try:
            server.serve_forever()
        except KeyboardInterrupt:
            pass
        finally:
            refresher.stop()


@cache
def _part(name: str) -> str:
    return files("stillme.report").joinpath("page", "live", name).read_text("utf-8")
