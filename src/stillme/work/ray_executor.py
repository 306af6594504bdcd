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
from stillme.work.workers import Placed, Worker, WorkerSpec

T = TypeVar("T")
R = TypeVar("R")

log = logging.getLogger(__name__)

_DEATHS = 2
"""How often a call may end its actor when it is the only one there, before it is given up in this run."""
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
    calls: int = 0
    reserved: bool = False
    """Whether a suspect is to be alone there."""
    freed: float = 0.0
    """When its last call ended, on the clock of `time.monotonic`."""


class _ActorDied(Exception):
    """The actor ended while it was asked."""


class NoLiveActor(Exception):
    """No actor is alive, and none has been for long."""


class RayWorker:
    """Performs batches in actors; each has one call more than it can do at once, so that it never waits for the next.

    When an actor dies, everything under way in it is suspect. Suspects are tried again one at a time, each alone in an
    actor: the innocent succeed, and the guilty are known.
    """

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
        deaths: int = _DEATHS,
    ) -> None:
        self._ray, self._worker_spec, self._failed = ray, spec, failed
        self._seconds, self._deaths = seconds, deaths
        self._patience = seconds + (_GRACE_SECONDS if spec.ends_calls_after is not None else 0.0)
        # One at a time on a CPU: Ray has placed an actor on each.
        concurrency = max(1, spec.gpus)
        self._at_once = concurrency + 1
        self.calls = actors * self._at_once
        self._changed = threading.Condition()
        self._closed = False
        self._problem = ""
        self._alive_at = time.monotonic()
        placed = ray.remote(WorkerActor).options(
            num_cpus=1,
            num_gpus=spec.gpus,
            max_concurrency=concurrency,
            max_restarts=-1,
            # Not Ray's retries: they would kill the actor again and again with whatever waits beside the guilty.
            max_task_retries=0,
            scheduling_strategy="SPREAD",
            runtime_env={"env_vars": {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}},
        )
        self._seats = [_ActorSlot(placed.remote(spec, token)) for _ in range(actors)]
        for seat in self._seats:
            self._await(seat)

    @property
    def ready(self) -> bool:
        """Whether an actor is alive, or it is known that none can work."""
        return bool(self._problem) or any(seat.alive for seat in self._seats)

    def perform(self, tasks: Sequence[Any]) -> list[Any]:
        """One result per task; a task that always ends its actor has failed."""
        try:
            try:
                return self._asked(tasks, alone=False)
            except _ActorDied as died:
                log.info("an actor of %s ended: %s", self._worker_spec.recipe.use, died)
            return [self._perform_alone(task) for task in tasks]
        except NoLiveActor:
            failure = Failed(
                error=f"no actor has been alive for {_NOBODY_SECONDS:.0f} s; `ray status` shows what the cluster lacks",
                retryable=True,
                status="no worker",
            )
            return [self._failed(failure)] * len(tasks)

    def failed(self, failure: Failed) -> Any:
        """As the worker inside says it."""
        return self._failed(failure)

    def close(self) -> None:
        """End the actors."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        closing = [seat.actor.close.remote() for seat in self._seats if seat.alive and not seat.calls]
        if closing:
            self._ray.wait(closing, num_returns=len(closing), timeout=_CLOSE_SECONDS)
        for seat in self._seats:
            self._ray.kill(seat.actor)

    # -- asking -----------------------------------------------------------------------------------------------------

    def _perform_alone(self, task: Any) -> Any:
        deaths, reason = 0, "its actor ended"
        while deaths < self._deaths:
            try:
                return self._asked([task], alone=True)[0]
            except _ActorDied as died:
                deaths, reason = deaths + 1, str(died)
        error = f"this request ends its worker: {reason} ({deaths} times)"
        return self._failed(Failed(error=error, retryable=False, status="worker ended"))

    def _asked(self, tasks: Sequence[Any], *, alone: bool) -> list[Any]:
        seat = self._take(alone)
        exceptions = self._ray.exceptions
        try:
            answer = seat.actor.perform.remote(list(tasks))
            return self._answer(seat, answer, time.monotonic(), len(tasks))
        except exceptions.RayTaskError as error:
            # A worker survives what its plugin raises, so this is a fault of ours, or a result that cannot be pickled.
            failure = Failed(error=_short(error.cause or error), retryable=True)
            return [self._failed(failure)] * len(tasks)
        except exceptions.RayError as error:
            self._lose(seat)
            raise _ActorDied(_short(error)) from None
        finally:
            with self._changed:
                seat.calls -= 1
                seat.reserved = seat.reserved and not alone
                seat.freed = time.monotonic()
                self._changed.notify_all()

    def _answer(self, seat: _ActorSlot, answer: Any, sent: float, tasks: int) -> list[Any]:
        """Its time runs from when the actor could begin: it may have waited for the call before."""
        while True:
            left = max(sent, min(seat.freed, time.monotonic())) + self._patience - time.monotonic()
            try:
                return list(self._ray.get(answer, timeout=max(0.0, left)))
            except self._ray.exceptions.GetTimeoutError:
                if max(sent, seat.freed) + self._patience > time.monotonic():
                    continue
            self._ray.kill(seat.actor, no_restart=False)
            self._lose(seat)
            failure = Failed(
                error=f"no answer within {self._seconds:g} s, its time limit", retryable=True, status="time limit"
            )
            return [self._failed(failure)] * tasks

    # -- actors -----------------------------------------------------------------------------------------------------

    def _take(self, alone: bool) -> _ActorSlot:
        while True:
            seat = self._reserve() if alone else self._share()
            if not alone or self._answers(seat):
                return seat
            # It died before it was asked: no fault of the task.
            with self._changed:
                seat.calls, seat.reserved = seat.calls - 1, False

    def _share(self) -> _ActorSlot:
        with self._changed:
            while True:
                open_ = [seat for seat in self._living() if seat.calls < self._at_once and not seat.reserved]
                if open_:
                    seat = min(open_, key=lambda seat: seat.calls)
                    seat.calls += 1
                    return seat
                self._changed.wait(_POLL_SECONDS)

    def _reserve(self) -> _ActorSlot:
        with self._changed:
            chosen: _ActorSlot | None = None
            while True:
                living = self._living()
                if chosen is not None and not chosen.alive:
                    chosen.reserved, chosen = False, None
                if chosen is None:
                    chosen = min((seat for seat in living if not seat.reserved), key=lambda s: s.calls, default=None)
                if chosen is not None:
                    chosen.reserved = True
                    if not chosen.calls:
                        chosen.calls += 1
                        return chosen
                self._changed.wait(_POLL_SECONDS)

    def _living(self) -> list[_ActorSlot]:
        if self._closed:
            raise StillmeError("The run has ended.")
        if self._problem:
            raise StillmeError(self._problem)
        living = [seat for seat in self._seats if seat.alive]
        if living:
            self._alive_at = time.monotonic()
        elif time.monotonic() - self._alive_at > _NOBODY_SECONDS:
            raise NoLiveActor
        return living

    def _answers(self, seat: _ActorSlot) -> bool:
        try:
            self._ray.get(seat.actor.problem.remote(), timeout=_PING_SECONDS)
        except self._ray.exceptions.RayError:
            self._lose(seat)
            return False
        return True

    def _lose(self, seat: _ActorSlot) -> None:
        """Its actor is gone; Ray starts it again."""
        with self._changed:
            was_alive, seat.alive = seat.alive, False
        if was_alive:
            self._await(seat)

    def _await(self, seat: _ActorSlot) -> None:
        """Notice in the background when the actor is there, or why it cannot work."""

        def wait() -> None:
            while not self._closed:
                try:
                    problem = self._ray.get(seat.actor.problem.options(max_task_retries=-1).remote())
                except self._ray.exceptions.RayError:
                    time.sleep(_POLL_SECONDS)
                    continue
                with self._changed:
                    seat.alive = not problem
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
