"""The connection to a Ray cluster: made without Ray's own words and signals, and watched, as its head may end."""

from __future__ import annotations

import importlib
import logging
import os
import signal
import socket
import threading
import time
from collections.abc import Sequence
from typing import Any

from stillme.core.errors import MissingExtra, StillmeError

_HEAD_SECONDS = 20.0
"""How long the head may not answer before it counts as gone. Ray itself would end this process after 60 s."""
_WATCH_SECONDS = 1.0
_CONNECT_SECONDS = 10.0
_REASON = 240
"""Characters of what Ray says that a reason includes."""


class HeadLost(Exception):
    """The cluster has no head any more."""


class Cluster:
    """The cluster of RAY_ADDRESS; without it, one that is started on this machine for the run."""

    def __init__(self) -> None:
        try:
            self.ray: Any = importlib.import_module("ray")
        except ImportError:
            raise MissingExtra(
                'executor.kind = "ray" needs ray, which is not installed: run `pip install "stillme[ray]"` '
                "on every machine of the cluster."
            ) from None
        self._started = not self.ray.is_initialized()
        if self._started:
            _initialise(self.ray)
        # Through Ray's client, the head is seen at the client's address only.
        client = os.environ.get("RAY_ADDRESS", "").partition("://")[2]
        self.head: str = client or self.ray.get_runtime_context().gcs_address
        self.head_lost = False
        self._closed = threading.Event()
        threading.Thread(target=self._watch, daemon=True).start()

    def head_answers(self) -> bool:
        """Whether something listens where the head was."""
        try:
            _require_listening(self.head)
        except OSError:
            return False
        return True

    def close(self) -> None:
        """Leave the cluster; end it if it was started for this run."""
        self._closed.set()
        if self._started:
            self.ray.shutdown()

    def _watch(self) -> None:
        answered_at = time.monotonic()
        while not self.head_lost and not self._closed.wait(_WATCH_SECONDS):
            if self.head_answers():
                answered_at = time.monotonic()
            self.head_lost = time.monotonic() - answered_at > _HEAD_SECONDS


def _initialise(ray: Any) -> None:
    """Connect, or start a cluster here; signals stay with the run, and nothing is reported to Ray's makers."""
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    main = threading.current_thread() is threading.main_thread()
    before = signal.getsignal(signal.SIGTERM)
    quietly: dict[str, Any] = {"logging_level": logging.ERROR, "log_to_driver": False}
    address = os.environ.get("RAY_ADDRESS")
    try:
        if not address:
            ray.init(address="local", include_dashboard=False, **quietly)
            return
        _require_listening(address)
        ray.init(address=address, **quietly)
    except OSError as error:
        raise StillmeError(
            f"The Ray cluster at RAY_ADDRESS={address} does not answer ({short(error)}). Start it, or unset "
            "RAY_ADDRESS to have one started on this machine."
        ) from None
    finally:
        if main:
            signal.signal(signal.SIGTERM, before)


def _require_listening(address: str) -> None:
    """Ray itself would try for minutes."""
    host, _, port = address.rpartition(":")
    if host and port.isdigit() and "/" not in host:
        socket.create_connection((host.strip("[]"), int(port)), timeout=_CONNECT_SECONDS).close()


def places_for(nodes: Sequence[dict[str, Any]], gpus: int) -> int:
    """How many actors that take one CPU and so many GPUs have a place."""
    resources = [node["Resources"] for node in nodes if node["Alive"]]
    cpus_and_gpus = [(int(has.get("CPU", 0)), int(has.get("GPU", 0))) for has in resources]
    return sum(min(cpus, devices // gpus) if gpus else cpus for cpus, devices in cpus_and_gpus)


def short(error: BaseException) -> str:
    """What Ray says, cut off."""
    words = " ".join(str(error).split())
    return words if len(words) <= _REASON else f"{words[:_REASON]}…"
