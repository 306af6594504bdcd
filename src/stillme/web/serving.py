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
from stillme.web.hosts import ANY, LOOPBACK, bracketed, host_name, is_loopback
from stillme.web.patience import PatientProtocol, allow_many_files

FIRST_PORT = 8470
_PORTS_TRIED = 30


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
        listening = _bound_socket(host, port)
        number = int(listening.getsockname()[1])
        shown = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)
        return cls(
            listening=listening,
            address=public_url.rstrip("/") or f"http://{bracketed(shown)}:{number}",
            public=not is_loopback(host),
        )

    @property
    def secure(self) -> bool:
        """Whether people reach it over https."""
        return self.address.startswith("https://")

    @property
    def hosts(self) -> tuple[str, ...]:
        """The host names that requests may use."""
        host = host_name(urlsplit(self.address).netloc)
        # A server that listens on every interface without a public address has names we cannot know.
        return (ANY,) if self.public and host in LOOPBACK else tuple(dict.fromkeys((*LOOPBACK, host)))

    def run(self, app: FastAPI, *, trusted_proxies: Sequence[str] = ()) -> None:
        """Serve until interrupted or terminated. Only `trusted_proxies` may say who the client is."""
        allow_many_files()
        config = uvicorn.Config(
            app,
            http=PatientProtocol,
            # No page of ours uses them, and a socket that speaks another protocol has no deadline.
            ws="none",
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
        # SIGTERM ends a server as Ctrl-C does.
        signal.signal(signal.SIGTERM, signal.default_int_handler)
        try:
            for process in running:
                process.start()
            while True:
                multiprocessing.connection.wait([process.sentinel for process in running])
                # Not at once, or a worker that cannot start would be restarted in a tight loop.
                time.sleep(1)
                for index, process in enumerate(running):
                    if not process.is_alive():
                        running[index] = context.Process(target=work)
                        running[index].start()
        except KeyboardInterrupt:
            for process in running:
                process.terminate()
            for process in running:
                process.join()


def _bound_socket(host: str, port: int | None) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    ports = range(FIRST_PORT, FIRST_PORT + _PORTS_TRIED) if port is None else (port,)
    for number in ports:
        listening = socket.socket(family, socket.SOCK_STREAM)
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listening.bind((host, number))
            listening.listen(2048)
        except (OSError, OverflowError) as error:
            listening.close()
            if port is None and isinstance(error, OSError) and error.errno == errno.EADDRINUSE:
                continue
            raise StillmeError(_bind_failure(host, number, error)) from None
        return listening
    raise StillmeError(f"Ports {ports[0]} to {ports[-1]} on {host} are all in use. Choose a free one with `--port`.")


def _bind_failure(host: str, port: int, error: Exception) -> str:
    match getattr(error, "errno", None):
        case errno.EADDRINUSE:
            return f"Port {port} on {host} is in use. Choose another with `--port`, or leave `--port` out."
        case errno.EACCES:
            return f"Port {port} needs administrator rights. Choose one above 1023 with `--port`."
        case errno.EADDRNOTAVAIL:
            return f"This machine has no address {host}. Use 127.0.0.1, or 0.0.0.0 for every interface."
        case _:
            return f"Cannot listen on {host} port {port} ({error}). Choose another with `--host` and `--port`."
