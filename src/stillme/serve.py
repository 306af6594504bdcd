"""`stillme serve`: the report of a run, painted anew while the run goes on. Loopback only unless told otherwise."""

from __future__ import annotations

import json
import mimetypes
import re
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.resources import files
from pathlib import Path
from typing import Any

from stillme import estimates, report
from stillme.errors import StillmeError
from stillme.report.contents import report_data
from stillme.report.data import Redaction
from stillme.results import Run, folder_of
from stillme.results.status import status_of
from stillme.store import Store
from stillme.store.pictures import Pictures
from stillme.web.hosts import ANY, LOOPBACK, bracketed, is_loopback, names_host

PORT = 8777
_REST = 4.0
"""A page may take a fifth of the time, counting takes another: the run itself needs the machine."""

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
class Board:
    """What visitors are shown; written by the painter, read by every request."""

    page: bytes = b""
    number: int = 0
    progress: dict[str, Any] = field(default_factory=lambda: dict[str, Any]())
    trouble: str = ""


class Painter(threading.Thread):
    """Counts and paints whenever the ledger has grown, leaving the machine to the run most of the time."""

    def __init__(self, served: Served, board: Board) -> None:
        super().__init__(name="painter", daemon=True)
        self._served, self._board = served, board
        self._folder = folder_of(served.path, served.out)
        self._stopped = threading.Event()
        self._seen: tuple[int, ...] = ()

    @property
    def folder(self) -> Path:
        """The run folder."""
        return self._folder

    def run(self) -> None:
        """Look, paint, rest."""
        while not self._stopped.is_set():
            begun = time.monotonic()
            try:
                self.look()
                self._board.trouble = ""
            except StillmeError as error:
                self._board.trouble = str(error)
            self._stopped.wait(max(_SOONEST, _REST * (time.monotonic() - begun)))

    def stop(self) -> None:
        """End after what is being painted."""
        self._stopped.set()

    def look(self) -> None:
        """Count the rows, and paint if there are more than last time."""
        with Run.open(self._folder) as run:
            counts = status_of(run).as_json()
            parts = [*counts["editors"], *counts["judges"]]
            self._board.progress = {
                "editors": counts["editors"],
                "judges": counts["judges"],
                "cost": counts["cost"],
                "complete": all(part["done"] == part["total"] for part in parts),
            }
            seen = run.store.newest()
            if seen != self._seen or not self._board.number:
                self._board.page = self._paint(run).encode()
                self._board.number += 1
                self._seen = seen

    def _paint(self, run: Run) -> str:
        estimated = estimates.estimate(run.results.edits, run.results.scores, run.settings)
        data = report_data(run, estimated, redact=self._served.redact)
        return report.render(data, live=f"const painted = {self._board.number + 1};\n{_part('live.js')}")


class Server(ThreadingHTTPServer):
    """Answers with the board, the progress, and the run's own pictures; nothing else, and nothing is changed."""

    daemon_threads = True

    def __init__(self, served: Served, board: Board, folder: Path) -> None:
        self.board = board
        self.pictures = Pictures(folder / "images") if served.redact == "none" else None
        # Beyond loopback the names of this machine cannot be known.
        self.hosts = (*LOOPBACK, bracketed(served.host)) if is_loopback(served.host) else (ANY,)
        try:
            super().__init__((served.host, served.port), _Handler)
        except OSError as error:
            raise StillmeError(
                f"Cannot listen on {served.host} port {served.port} ({error.strerror}). `--port 0` takes any free one."
            ) from None

    @property
    def address(self) -> str:
        """What to open."""
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
        """Say nothing: who looks at a page is nobody's business."""

    def _answer(self, *, with_body: bool) -> None:
        if not names_host(self.headers.get("Host", ""), self._ours.hosts):
            self._send(HTTPStatus.MISDIRECTED_REQUEST, "text/plain", b"Ask for localhost.", with_body=with_body)
            return
        path = self.path.partition("?")[0]
        found = {"/": self._page, "/progress": self._progress}.get(path, lambda: self._picture(path))()
        if found is None:
            self._send(HTTPStatus.NOT_FOUND, "text/plain", b"There is nothing here.", with_body=with_body)
        else:
            self._send(HTTPStatus.OK, *found, with_body=with_body)

    def _page(self) -> tuple[str, bytes]:
        return "text/html; charset=utf-8", self._ours.board.page or _part("waiting.html").encode()

    def _progress(self) -> tuple[str, bytes]:
        board = self._ours.board
        nothing: dict[str, Any] = {"editors": [], "judges": [], "cost": 0.0, "complete": False}
        told = {**nothing, **board.progress, "page": board.number, "trouble": board.trouble}
        return "application/json", json.dumps(told).encode()

    def _picture(self, path: str) -> tuple[str, bytes] | None:
        asked = _PICTURE.fullmatch(path)
        known = self._ours.pictures.find(asked["sha256"]) if asked and self._ours.pictures else None
        if known is None:
            return None
        return mimetypes.guess_type(known.name)[0] or "application/octet-stream", known.read_bytes()

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
    """Serve until interrupted; `ready` is told the address once visitors can come."""
    board = Board()
    painter = Painter(served, board)
    if not Store.exists(painter.folder):
        raise StillmeError(f"{painter.folder} has no run yet. `stillme run {served.path}` starts it.")
    with Server(served, board, painter.folder) as server:
        painter.start()
        ready(server.address)
        try:
            server.serve_forever()
        except KeyboardInterrupt:
            pass
        finally:
            painter.stop()


@cache
def _part(name: str) -> str:
    return files("stillme.report").joinpath("page", "live", name).read_text("utf-8")
