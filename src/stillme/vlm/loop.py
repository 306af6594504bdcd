"""One event loop for all models, in a thread of its own: connections are shared whoever asks."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine
from functools import cache
from typing import Any, TypeVar

T = TypeVar("T")

_NAME = "stillme-vlm"


def run(work: Coroutine[Any, Any, T]) -> T:
    """Do the work on the shared loop and wait for its result."""
    if threading.current_thread().name == _NAME:
        work.close()
        raise RuntimeError("the loop cannot wait for itself")
    return asyncio.run_coroutine_threadsafe(work, _loop()).result()


@cache
def _loop() -> asyncio.AbstractEventLoop:
    loop = asyncio.new_event_loop()
    threading.Thread(target=loop.run_forever, name=_NAME, daemon=True).start()
    return loop
