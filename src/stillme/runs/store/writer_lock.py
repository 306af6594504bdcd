"""One writer at a time; an error names the process that holds the lock."""

from __future__ import annotations

import json
import os
import socket
import sys
from collections.abc import Generator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

from stillme.core.errors import StoreBusy


@contextmanager
def writer_lock(folder: Path, *, wait: float) -> Generator[None]:
    """Hold the folder's write lock, waiting up to `wait` seconds for it.

    The operating system frees the lock when its holder dies, however it dies.
    """
    from filelock import FileLock, Timeout

    lock = FileLock(folder / ".writer.lock", timeout=wait)
    holder = folder / ".writer.json"
    try:
        lock.acquire()
    except Timeout:
        raise StoreBusy(
            f"{folder} is being written by {_who(holder)}. Wait for it to finish, stop it, or give `--wait SECONDS`."
        ) from None
    try:
        holder.write_text(json.dumps(_me()), "utf-8")
        yield
    finally:
        holder.unlink(missing_ok=True)
        lock.release()


def _me() -> dict[str, object]:
    command = " ".join([Path(sys.argv[0]).name, *sys.argv[1:]])
    now = datetime.now(UTC).isoformat(timespec="seconds")
    return {"pid": os.getpid(), "host": socket.gethostname(), "command": command, "since": now}


def _who(holder: Path) -> str:
    try:
        me = json.loads(holder.read_text("utf-8"))
        return f"process {me['pid']} on {me['host']} (`{me['command']}`, since {me['since']})"
    except (OSError, ValueError, KeyError):
        return "another process"
