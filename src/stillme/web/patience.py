"""Close connections that never finish a request: half-open ones would otherwise use up the server's files."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    # Both of uvicorn's protocols have what is used here.
    from uvicorn.protocols.http.h11_impl import H11Protocol as Protocol
else:
    from uvicorn.protocols.http.auto import AutoHTTPProtocol as Protocol

REQUEST_SECONDS = 15.0
"""From the first byte of a request, or the connection, until all of it has arrived. Ours are at most 64 kB."""
_FILES = 65_536


class PatientProtocol(Protocol):
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
