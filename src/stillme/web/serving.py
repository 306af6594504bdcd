"""Start a server on a port that is free, on loopback unless told otherwise."""

from __future__ import annotations

import errno
import multiprocessing
import multiprocessing.connection
import os
import signal
import socket
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from urllib.parse import urlsplit

import uvicorn
from fastapi import FastAPI

from stillme.errors import StillmeError
from stillme.web.guard import LOOPBACK

FIRST_PORT = 8470
_TRIED = 30


@dataclass(frozen=True, kw_only=True)
class Server:
    """A bound socket, and the address under which people reach it."""

    listening: socket.socket
    address: str
    """`http://127.0.0.1:8470`, or the public address in front of it."""
    public: bool
    """Whether other machines can reach the socket."""

    @classmethod
    def choose(cls, *, host: str = "127.0.0.1", port: int | None = None, public_url: str = "") -> Server:
        """Bind `port`, or without one the first free port from 8470 on.

        `public_url` is the address that people use when a proxy stands in front.
        """
        listening = _bound(host, port)
        number = int(listening.getsockname()[1])
        name = f"[{host}]" if ":" in host else host
        shown = {"0.0.0.0": "127.0.0.1", "[::]": "[::1]"}.get(name, name)
        return cls(
            listening=listening,
            address=public_url.rstrip("/") or f"http://{shown}:{number}",
            public=name not in LOOPBACK,
        )

    @property
    def secure(self) -> bool:
        """Whether people reach it over https."""
        return self.address.startswith("https://")

    @property
    def hosts(self) -> tuple[str, ...]:
        """The names that requests may use."""
        name = urlsplit(self.address).netloc
        host = name.partition("]")[0] + "]" if name.startswith("[") else name.partition(":")[0]
        # A server that listens on every interface without a public address has names we cannot know.
        return ("*",) if self.public and host in LOOPBACK else tuple(dict.fromkeys((*LOOPBACK, host)))

    def run(self, app: FastAPI, *, trusted_proxies: Sequence[str] = ()) -> None:
        """Serve until interrupted or terminated. Only `trusted_proxies` may say who the client is."""
        config = uvicorn.Config(
            app,
            log_level="warning",
            access_log=False,
            server_header=False,
            proxy_headers=bool(trusted_proxies),
            forwarded_allow_ips=list(trusted_proxies) or None,
            timeout_graceful_shutdown=5,
        )
        with suppress(KeyboardInterrupt):
            uvicorn.Server(config).run(sockets=[self.listening])

    def run_many(self, work: Callable[[], None], workers: int) -> None:
        """Serve with several processes on the one socket: each does `work`, and one that dies is replaced."""
        if not hasattr(os, "fork"):
            raise StillmeError("Several workers need Linux or macOS. Leave out `--workers`.")
        # Forked, as a bound socket is handed down; `work` opens its own connections.
        context = multiprocessing.get_context("fork")
        running = [context.Process(target=work) for _ in range(workers)]
        signal.signal(signal.SIGTERM, _interrupt)
        try:
            for process in running:
                process.start()
            while True:
                multiprocessing.connection.wait([process.sentinel for process in running])
                # Not at once, or a worker that cannot start would be started without end.
                time.sleep(1)
                for place, process in enumerate(running):
                    if not process.is_alive():
                        running[place] = context.Process(target=work)
                        running[place].start()
        except KeyboardInterrupt:
            for process in running:
                process.terminate()
            for process in running:
                process.join()


def _interrupt(*_: object) -> None:
    raise KeyboardInterrupt


def _bound(host: str, port: int | None) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    ports = range(FIRST_PORT, FIRST_PORT + _TRIED) if port is None else (port,)
    for number in ports:
        made = socket.socket(family, socket.SOCK_STREAM)
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            made.bind((host, number))
            made.listen(2048)
        except (OSError, OverflowError) as error:
            made.close()
            if port is None and isinstance(error, OSError) and error.errno == errno.EADDRINUSE:
                continue
            raise StillmeError(_why(host, number, error)) from None
        return made
    raise StillmeError(f"Ports {ports[0]} to {ports[-1]} on {host} are all taken. Give a free one with `--port`.")


def _why(host: str, port: int, error: Exception) -> str:
    match getattr(error, "errno", None):
        case errno.EADDRINUSE:
            return f"Port {port} on {host} is taken. Give another with `--port`, or none to have one chosen."
        case errno.EACCES:
            return f"Port {port} needs administrator rights. Give one above 1023 with `--port`."
        case errno.EADDRNOTAVAIL:
            return f"This machine has no address {host}. Use 127.0.0.1, or 0.0.0.0 for every interface."
        case _:
            return f"Cannot listen on {host} port {port} ({error}). Give another with `--host` and `--port`."
