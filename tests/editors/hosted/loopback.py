"""Servers on this machine that speak the providers' protocols, well or badly as told."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from email.parser import BytesParser
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


@dataclass(frozen=True, kw_only=True)
class Asked:
    """One request as it reached the server."""

    method: str
    path: str
    headers: Mapping[str, str]
    content: bytes
    header_list: tuple[tuple[str, str], ...] = ()
    """Also those that come twice."""
    connection: int = 0
    """The client's port."""

    @property
    def json(self) -> Any:
        return json.loads(self.content)

    @property
    def form(self) -> dict[str, list[bytes]]:
        """The parts of an upload form, by name."""
        message = BytesParser().parsebytes(
            b"Content-Type: " + self.headers["content-type"].encode() + b"\r\n\r\n" + self.content
        )
        parts: dict[str, list[bytes]] = {}
        for part in message.get_payload():
            name = part.get_param("name", header="content-disposition")
            parts.setdefault(name, []).append(part.get_payload(decode=True))
        return parts


@dataclass(frozen=True, kw_only=True)
class Says:
    """What the server answers."""

    body: Any = b""
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)
    truncated: bool = False
    """Promise the whole body, send half, hang up."""
    hangs: bool = False
    """Take the request and say nothing."""
    trickles: bool = False
    """Send the body a few bytes at a time, without end."""
    head_trickles: bool = False
    """Send one header after the other, without end."""
    hangs_up: bool = False
    """Take the request and end the connection."""


@dataclass
class Loopback:
    """A running server, what it was asked, and faults to answer with before it behaves."""

    url: str
    asked: list[Asked] = field(default_factory=list)
    faults: list[tuple[str, Says]] = field(default_factory=list)
    delay: float = 0.0
    """Seconds before every answer."""

    def breaks(self, says: Says, *, at: str = "", times: int = 1) -> None:
        """Answer the next requests whose path contains `at` like this."""
        self.faults.extend([(at, says)] * times)

    def calls(self, method: str = "POST") -> list[Asked]:
        return [asked for asked in self.asked if asked.method == method]


class _Listener(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128  # a busy machine answers late; five would be turned away


@contextmanager
def serving(behave: Callable[[Loopback, Asked], Says]) -> Iterator[Loopback]:
    """Run a server for the length of the block."""
    stopped = threading.Event()
    lock = threading.Lock()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        timeout = 60
        disable_nagle_algorithm = True  # head and body are two packets, and the second would wait 40 ms for an answer

        def answer(self) -> None:
            size = int(self.headers.get("content-length") or 0)
            headers = {name.lower(): value for name, value in self.headers.items()}
            asked = Asked(
                method=self.command,
                path=self.path,
                headers=headers,
                content=self.rfile.read(size),
                header_list=tuple((name.lower(), value) for name, value in self.headers.items()),
                connection=self.client_address[1],
            )
            with lock:
                server.asked.append(asked)
                fault = next((entry for entry in server.faults if entry[0] in asked.path), None)
                if fault:
                    server.faults.remove(fault)
            self.say(fault[1] if fault else behave(server, asked))

        def say(self, says: Says) -> None:
            if says.hangs or says.hangs_up:
                stopped.wait(120 if says.hangs else 0)  # longer than any test allows
                self.close_connection = True
                return
            stopped.wait(server.delay)
            plain = says.body if isinstance(says.body, bytes) else json.dumps(says.body).encode()
            kind = "application/octet-stream" if isinstance(says.body, bytes) else "application/json"
            self.send_response(says.status)
            if says.head_trickles:
                self.flush_headers()
                self.trickle(b"X-Wait: 1\r\n")
                return
            for name, value in {"Content-Type": kind, "Content-Length": str(len(plain)), **says.headers}.items():
                self.send_header(name, value)
            self.end_headers()
            if says.trickles:
                self.trickle(b" ")
                return
            if self.command != "HEAD":
                self.wfile.write(plain[: len(plain) // 2] if says.truncated else plain)
            self.close_connection = self.close_connection or says.truncated

        def trickle(self, part: bytes) -> None:
            self.close_connection = True
            with suppress(OSError):
                while not stopped.wait(0.02):
                    self.wfile.write(part)

        def log_message(self, *_: object) -> None:
            pass

    for method in ("GET", "HEAD", "POST", "PUT", "DELETE"):
        setattr(Handler, f"do_{method}", Handler.answer)
    listener = _Listener(("127.0.0.1", 0), Handler)
    server = Loopback(url=f"http://127.0.0.1:{listener.server_address[1]}")
    thread = threading.Thread(target=listener.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    try:
        yield server
    finally:
        stopped.set()
        listener.shutdown()
        listener.server_close()
        thread.join()
