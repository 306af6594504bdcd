"""Work on a Ray cluster: each editor and local judge has actors on its machines, one model load each.

Only this process writes the ledger. Actors answer with rows and put pictures into the run folder, which every machine
must see, or into the object store that audit.toml names. An actor that dies is started again by Ray, on another machine
if need be; what was under way in it is asked again here, because only here it is known which request was alone when its
actor died.
"""

from __future__ import annotations

import importlib
import logging
import os
import secrets
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar, cast

from stillme.audit.config import ExecutorSection
from stillme.core.errors import MissingExtra, PicturesUnreachable, StillmeError
from stillme.core.types import Failed
from stillme.runs.store.buckets import pictures_at
from stillme.runs.store.pictures import UNFINISHED
from stillme.runs.store.places import PicturePlace
from stillme.work.processes import DEATHS, Isolation, WorkerDied, out_of_time
from stillme.work.workers import Placed, Worker, WorkerSpec

T = TypeVar("T")
R = TypeVar("R")

log = logging.getLogger(__name__)

_NOBODY_SECONDS = 300.0
"""How long all actors may be gone before calls fail, from when on the stage counts an outage."""
_PING_SECONDS = 60.0
_CLOSE_SECONDS = 5.0
_GRACE_SECONDS = 30.0
"""In which an editor that ends its calls itself has done so: the rest of its actor goes on."""
_POLL_SECONDS = 0.5
_CONNECT_SECONDS = 10.0
_REASON = 240
"""Characters of what Ray says that a reason includes."""


class OnRay:
    """The cluster of RAY_ADDRESS; without it, one that is started on this machine for the run."""

    side_by_side = True

    def __init__(self, section: ExecutorSection, home: Any) -> None:
        self._actors, self._home = section.actors, home
        self._ray: Any = None
        self._started = False
        self._tokens: dict[Path, Path] = {}
        self._connecting = threading.Lock()

    def worker(self, spec: WorkerSpec | None, here: Worker[T, R], *, concurrency: int, seconds: float) -> Placed[T, R]:
        """What asks somebody else's computer stays in this process, under one budget and one rate limit."""
        if spec is None or spec.is_hosted:
            return self._home.worker(spec, here, concurrency=concurrency, seconds=seconds)
        ray = self._connected()
        actors = self._actors or capacity(ray.nodes(), spec.gpus)
        if not actors:
            wanted = f"{spec.gpus} GPU{'s' if spec.gpus > 1 else ''} and a CPU" if spec.gpus else "a CPU"
            raise StillmeError(
                f"No machine of the Ray cluster has {wanted} for {spec.recipe.kind} {spec.recipe.use!r}. "
                "`ray status` shows what there is; if the cluster grows on demand, write `actors = N` in [executor]."
            )
        worker = RayWorker(ray, spec, self._token(spec.pictures), here.failed, actors=actors, seconds=seconds)
        return cast("Placed[T, R]", worker)

    def close(self) -> None:
        """Leave the cluster; end it if it was started for this run."""
        if self._started:
            self._ray.shutdown()
            self._started = False
        for token in self._tokens.values():
            token.unlink(missing_ok=True)
        self._home.close()

    def _token(self, place: PicturePlace) -> str:
        """A file that only this run can have left, by which an actor knows that it sees the same folder.

        A place elsewhere is known by its own mark.
        """
        if place.is_elsewhere:
            return ""
        pictures = place.folder
        if pictures not in self._tokens:
            token = pictures / UNFINISHED / f"shared-{secrets.token_hex(8)}"
            token.parent.mkdir(parents=True, exist_ok=True)
            token.touch()
            self._tokens[pictures] = token
        return self._tokens[pictures].name

    def _connected(self) -> Any:
        with self._connecting:
            if self._ray is None:
                try:
                    self._ray = importlib.import_module("ray")
                except ImportError:
                    raise MissingExtra(
                        'executor.kind = "ray" needs ray, which is not installed: run `pip install "stillme[ray]"` '
                        "on every machine of the cluster."
                    ) from None
                if not self._ray.is_initialized():
                    _initialise(self._ray)
                    self._started = True
            return self._ray


class WorkerActor:
    """The actor: a worker on some machine of the cluster."""

    def __init__(self, spec: WorkerSpec, token: str) -> None:
        self._problem = ""
        try:
            _require_shared(spec.pictures, token)
            self._worker = spec.worker()
        except (Exception, SystemExit) as error:
            # Kept, not raised: Ray would start the actor again for ever.
            self._problem = f"{type(error).__name__}: {error}"

    def problem(self) -> str:
        """Why it cannot work; empty if it can."""
        return self._problem

    def perform(self, tasks: Sequence[Any]) -> list[Any]:
        """One result per task."""
        return cast("Any", self._worker).perform(tasks)

    def close(self) -> None:
        """Release what the plugin holds."""
        if not self._problem:
            self._worker.close()


@dataclass(slots=True, eq=False)
class _ActorSlot:
    """An actor, as seen from here."""

    actor: Any
    alive: bool = False
    busy: bool = False


class NoLiveActor(Exception):
    """No actor is alive, and none has been for long."""


class RayWorker:
    """Performs batches in actors, one call an actor: so what was under way in one that dies is known."""

    ends_calls = True

    def __init__(
        self,
        ray: Any,
        spec: WorkerSpec,
        token: str,
        failed: Callable[[Failed], Any],
        *,
        actors: int,
        seconds: float,
        deaths: int = DEATHS,
    ) -> None:
        self._ray, self._worker_spec, self.failed, self._seconds = ray, spec, failed, seconds
        self._patience = seconds + (_GRACE_SECONDS if spec.ends_calls_after is not None else 0.0)
        # An actor may have died before it was asked, so the first death is held against no task.
        self._isolation = Isolation(self._ask, failed, calls=actors + 1, deaths=deaths)
        self.calls = actors
        self._changed = threading.Condition()
        self._closed = False
        self._problem = ""
        self._alive_at = time.monotonic()
        placed = ray.remote(WorkerActor).options(
            num_cpus=1,
            num_gpus=spec.gpus,
            max_restarts=-1,
            # Not Ray's retries: they would kill the actor again and again with the guilty task.
            max_task_retries=0,
            scheduling_strategy="SPREAD",
            runtime_env={"env_vars": {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}},
        )
        self._slots = [_ActorSlot(placed.remote(spec, token)) for _ in range(actors)]
        for slot in self._slots:
            self._await(slot)

    @property
    def ready(self) -> bool:
        """Whether an actor is alive, or it is known that none can work."""
        return bool(self._problem) or any(slot.alive for slot in self._slots)

    def perform(self, tasks: Sequence[Any]) -> list[Any]:
        """One result per task; a task that always ends its actor has failed."""
        try:
            return self._isolation.perform(tasks)
        except NoLiveActor:
            failure = Failed(
                error=f"no actor has been alive for {_NOBODY_SECONDS:.0f} s; `ray status` shows what the cluster lacks",
                retryable=True,
                status="no worker",
            )
            return [self.failed(failure)] * len(tasks)

    def close(self) -> None:
        """End the actors."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        closing = [slot.actor.close.remote() for slot in self._slots if slot.alive and not slot.busy]
        if closing:
            self._ray.wait(closing, num_returns=len(closing), timeout=_CLOSE_SECONDS)
        for slot in self._slots:
            self._ray.kill(slot.actor)

    def _ask(self, tasks: Sequence[Any], *, alone: bool) -> list[Any]:
        slot = self._take(alone)
        exceptions = self._ray.exceptions
        try:
            return list(self._ray.get(slot.actor.perform.remote(list(tasks)), timeout=self._patience))
        except exceptions.GetTimeoutError:
            self._ray.kill(slot.actor, no_restart=False)
            self._lose(slot)
            return [self.failed(out_of_time(self._seconds))] * len(tasks)
        except exceptions.RayTaskError as error:
            # A worker survives what its plugin raises, so this is a fault of ours, or a result that cannot be pickled.
            return [self.failed(Failed(error=_short(error.cause or error), retryable=True))] * len(tasks)
        except exceptions.RayError as error:
            log.info("an actor of %s ended: %s", self._worker_spec.recipe.use, _short(error))
            self._lose(slot)
            raise WorkerDied(_short(error)) from None
        finally:
            self._free(slot)

    def _take(self, alone: bool) -> _ActorSlot:
        """A living actor that is not asked by others; one that a suspect gets has just answered."""
        while True:
            with self._changed:
                while (slot := next((slot for slot in self._living() if not slot.busy), None)) is None:
                    self._changed.wait(_POLL_SECONDS)
                slot.busy = True
            if not alone or self._answers(slot):
                return slot
            self._free(slot)

    def _free(self, slot: _ActorSlot) -> None:
        with self._changed:
            slot.busy = False
            self._changed.notify_all()

    def _living(self) -> list[_ActorSlot]:
        if self._closed:
            raise StillmeError("The run has ended.")
        if self._problem:
            raise StillmeError(self._problem)
        living = [slot for slot in self._slots if slot.alive]
        if living:
            self._alive_at = time.monotonic()
        elif time.monotonic() - self._alive_at > _NOBODY_SECONDS:
            raise NoLiveActor
        return living

    def _answers(self, slot: _ActorSlot) -> bool:
        try:
            self._ray.get(slot.actor.problem.remote(), timeout=_PING_SECONDS)
        except self._ray.exceptions.RayError:
            self._lose(slot)
            return False
        return True

    def _lose(self, slot: _ActorSlot) -> None:
        """Its actor is gone; Ray starts it again."""
        with self._changed:
            was_alive, slot.alive = slot.alive, False
        if was_alive:
            self._await(slot)

    def _await(self, slot: _ActorSlot) -> None:
        """Notice in the background when the actor is there, or why it cannot work."""

        def wait() -> None:
            while not self._closed:
                try:
                    problem = self._ray.get(slot.actor.problem.options(max_task_retries=-1).remote())
                except self._ray.exceptions.RayError:
                    time.sleep(_POLL_SECONDS)
                    continue
                with self._changed:
                    slot.alive = not problem
                    self._problem = self._problem or (problem and self._cannot(problem))
                    self._changed.notify_all()
                return

        threading.Thread(target=wait, daemon=True).start()

    def _cannot(self, problem: str) -> str:
        recipe = self._worker_spec.recipe
        return f"{recipe.kind} {recipe.use!r} cannot work on the Ray cluster: {problem}"


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
            f"The Ray cluster at RAY_ADDRESS={address} does not answer ({_short(error)}). Start it, or unset "
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


def capacity(nodes: Sequence[dict[str, Any]], gpus: int) -> int:
    """How many actors that take one CPU and so many GPUs have a place."""
    resources = [node["Resources"] for node in nodes if node["Alive"]]
    return sum(
        min(int(has.get("CPU", 0)), int(has.get("GPU", 0)) // gpus if gpus else sys.maxsize) for has in resources
    )


def _require_shared(place: PicturePlace, token: str) -> None:
    if place.is_elsewhere:
        try:
            pictures_at(place).require()
        except PicturesUnreachable as error:
            raise StillmeError(f"on {socket.gethostname()}, {error}") from None
    elif not (place.folder / UNFINISHED / token).exists():
        raise StillmeError(
            f"{socket.gethostname()} does not see {place.folder}. Put the run folder on a file system that every "
            "machine of the cluster mounts under the same path, or keep pictures in an object store ([pictures])"
        )


def _short(error: BaseException) -> str:
    words = " ".join(str(error).split())
    return words if len(words) <= _REASON else f"{words[:_REASON]}…"
