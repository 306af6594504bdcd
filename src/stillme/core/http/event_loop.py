"""One event loop for all calls, in its own thread, so that every caller shares the connections."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine
from functools import cache
from typing import Any, TypeVar

T = TypeVar("T")

_THREAD = "stillme-http"
_STARTING = threading.Lock()


def run(coroutine: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine on the shared loop and wait for its result."""
    if threading.current_thread().name == _THREAD:
        coroutine.close()
        raise RuntimeError("the event loop cannot wait for itself")
    with _STARTING:  # a cache lets several threads in at first, and each would have its own loop
        loop = _loop()
    return asyncio.run_coroutine_threadsafe(coroutine, loop).result()


@cache
def _loop() -> asyncio.AbstractEventLoop:
    loop = asyncio.new_event_loop()
    threading.Thread(target=loop.run_forever, name=_THREAD, daemon=True).start()
    return loop
