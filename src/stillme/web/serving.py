"""Start a server on a port that is free, on loopback by default."""

from __future__ import annotations

import asyncio
import errno
import socket
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import uvicorn
from fastapi import FastAPI

from stillme.core.addresses import ANY, LOOPBACK, bracketed, host_name, is_loopback
from stillme.core.errors import StillmeError

if TYPE_CHECKING:
    # Both of uvicorn's protocols have what is used here.
    from uvicorn.protocols.http.h11_impl import H11Protocol as Protocol
else:
    from uvicorn.protocols.http.auto import AutoHTTPProtocol as Protocol

REQUEST_SECONDS = 15.0
"""From the first byte of a request, or the connection, until all of it has arrived. Ours are at most 64 kB."""
_FILES = 65_536


class RequestDeadlineProtocol(Protocol):
    """uvicorn's own protocol with a deadline for each request; idle connections between requests are uvicorn's."""

    _deadline: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:
        """Begin to wait for the first request."""
        super().connection_made(transport)
        self._wait()

    def data_received(self, data: bytes) -> None:
        """Wait on while a request is incomplete."""
        super().data_received(data)
        cycle = self.cycle
        if cycle is not None and not cycle.response_complete and not cycle.more_body:
            self._stop_waiting()
        else:
            self._wait()

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop waiting."""
        self._stop_waiting()
        super().connection_lost(exc)

    def _wait(self) -> None:
        # Not renewed by further bytes: one byte now and then is how such connections are kept.
        if self._deadline is None:
            self._deadline = self.loop.call_later(REQUEST_SECONDS, self._give_up)

    def _stop_waiting(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _give_up(self) -> None:
        self._deadline = None
        if not self.transport.is_closing():
            self.transport.abort()


def allow_many_files() -> None:
    """Let this process hold as many connections as the system permits; usual limits are meant for other programs."""
    with suppress(ImportError, OSError, ValueError):  # not on Windows
        import resource

        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        wanted = _FILES if hard == resource.RLIM_INFINITY else min(hard, _FILES)
        if soft != resource.RLIM_INFINITY and soft < wanted:
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


FIRST_PORT = 8470
_PORTS_TRIED = 30


@dataclass(frozen=True, kw_only=True)
class WebServer:
    """A bound socket, and the address under which people reach it."""

    listening: socket.socket
    address: str
    """`http://127.0.0.1:8470`, or the public address in front of it."""
    public: bool
    """Whether other machines can reach the socket."""

    @classmethod
    def choose(cls, *, host: str = "127.0.0.1", port: int | None = None, public_url: str = "") -> WebServer:
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
            http=RequestDeadlineProtocol,
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
            why = getattr(error, "strerror", None) or error
            raise StillmeError(
                f"Cannot listen on {host} port {number} ({why}). Choose another with `--host` and `--port`."
            ) from None
        return listening
    raise StillmeError(f"Ports {ports[0]} to {ports[-1]} on {host} are all in use. Choose a free one with `--port`.")
