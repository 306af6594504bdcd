"""Prolific's public keys, which sign entries: kept in a file, renewed daily and when a key is not known."""

from __future__ import annotations

import json
import threading
import time
from pathlib import Path
from typing import Any, cast

import jwt

from stillme.errors import StillmeError
from stillme.files import write_whole
from stillme.study.prolific.api import ProlificApi

_DAY = 24 * 3600.0
_PAUSE = 60.0
"""Seconds between two attempts, however many unknown keys arrive."""
_attempts: dict[Path, float] = {}
_lock = threading.Lock()


def key_named(file: Path, name: str, api: ProlificApi | None) -> jwt.PyJWK | None:
    """The key of that id. Without `api` only the file is used; with it the file may be missing or old."""
    known = _read(file) if api is None or file.is_file() else {}
    if api is not None and (name not in known or _age(file) > _DAY) and _renew(file, api):
        known = _read(file)
    return known.get(name)


def _renew(file: Path, api: ProlificApi) -> bool:
    with _lock:
        now = time.monotonic()
        if now - _attempts.get(file, -_PAUSE) < _PAUSE:
            return False
        _attempts[file] = now
    try:
        fetched = api.signing_keys()
        _parsed(fetched)
        write_whole(file, json.dumps(fetched, indent=1) + "\n")
    except (StillmeError, OSError, ValueError, KeyError, TypeError, jwt.PyJWTError):
        # The keys at hand stay good; a token signed by an unknown one is refused as before.
        return False
    return True


def _read(file: Path) -> dict[str, jwt.PyJWK]:
    try:
        return _parsed(json.loads(file.read_text("utf-8")))
    except (OSError, ValueError, KeyError, TypeError, jwt.PyJWTError) as error:
        raise StillmeError(f"{file} is not a set of public keys ({error}). Download Prolific's keys again.") from None


def _parsed(listed: Any) -> dict[str, jwt.PyJWK]:
    entries = cast("list[dict[str, Any]]", listed["keys"])
    return {str(entry["kid"]): jwt.PyJWK(entry) for entry in entries}


def _age(file: Path) -> float:
    try:
        return time.time() - file.stat().st_mtime
    except OSError:
        return float("inf")
