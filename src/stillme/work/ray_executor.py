"""Work on a Ray cluster: each editor and local judge has actors on its machines, one model load each.

Only this process writes the ledger. Actors answer with rows and put pictures into the run folder, which every machine
must see, or into the object store that audit.toml names. An actor that dies is started again by Ray, on another machine
if need be; what was under way in it is asked again here, because only here it is known which request was alone when its
actor died.
"""

from __future__ import annotations

import contextlib
import logging
import os
import queue
import secrets
import socket
import sys
import threading
import time
from collections.abc import Callable, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar, cast

from stillme.audit.config import ExecutorSection
from stillme.core.errors import PicturesUnreachable, StillmeError
from stillme.core.types import Failed
from stillme.runs.store.buckets import pictures_at
from stillme.runs.store.pictures import UNFINISHED, PicturePlace
from stillme.work.processes import DEATHS, Isolation, WorkerDied, out_of_time
from stillme.work.ray_cluster import Cluster, HeadLost, places_for, short
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


class OnRay:
    """Editors and judges that compute work on the cluster; those that only wait work here."""

    side_by_side = True

    def __init__(self, section: ExecutorSection, home: Any) -> None:
        self._actors, self._home = section.actors, home
        self._tokens: dict[Path, Path] = {}

    @cached_property
    def _cluster(self) -> Cluster:
        return Cluster()

    def worker(self, spec: WorkerSpec | None, here: Worker[T, R], *, concurrency: int, seconds: float) -> Placed[T, R]:
        """What asks a hosted model stays in this process, under one budget and one rate limit."""
        if spec is None or spec.is_hosted:
            return self._home.worker(spec, here, concurrency=concurrency, seconds=seconds)
        lost = self._cluster.head_lost  # then each call says so, and no further question to Ray would be answered
        actors = 1 if lost else self._actors or places_for(self._cluster.ray.nodes(), spec.gpus)
        if not actors:
            wanted = f"{spec.gpus} GPU{'s' if spec.gpus > 1 else ''} and a CPU" if spec.gpus else "a CPU"
            raise StillmeError(
                f"No machine of the Ray cluster has {wanted} for {spec.recipe.kind} {spec.recipe.use!r}. "
                "`ray status` shows what there is; if the cluster grows on demand, write `actors = N` in [executor]."
            )
        token = self._token(spec.pictures)
        worker = RayWorker(self._cluster, spec, token, here.failed, actors=actors, seconds=seconds)
        return cast("Placed[T, R]", worker)

    def close(self) -> None:
        """Leave the cluster, if it was needed."""
        if "_cluster" in self.__dict__:
            self._cluster.close()
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
        self._worker.close()


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


class NoLiveActor(Exception):
    """No actor is alive, and none has been for long."""


class RayWorker:
    """Performs batches in actors, one call an actor: so what was under way in one that dies is known."""

    ends_calls = True

    def __init__(
        self,
        cluster: Cluster,
        spec: WorkerSpec,
        token: str,
        failed: Callable[[Failed], Any],
        *,
        actors: int,
        seconds: float,
        deaths: int = DEATHS,
    ) -> None:
        self._cluster, self._ray, self._recipe = cluster, cluster.ray, spec.recipe
        self.failed, self._seconds = failed, seconds
        self._patience = seconds + (_GRACE_SECONDS if spec.ends_calls_after is not None else 0.0)
        # An actor may have died before it was asked, so the first death is held against no task.
        self._isolation = Isolation(self._ask, failed, first_death_counts=False, deaths=deaths)
        self.calls = actors
        self._closed = False
        self._problem = ""
        self._alive = set[Any]()
        self._waiting = list[threading.Thread]()
        self._alive_at = time.monotonic()
        self._idle: queue.SimpleQueue[Any] = queue.SimpleQueue()
        """Living actors that are not asked anything."""
        placed = self._ray.remote(WorkerActor).options(
            num_cpus=1,
            num_gpus=spec.gpus,
            max_restarts=-1,
            # Not Ray's retries: they would kill the actor again and again with the guilty task.
            max_task_retries=0,
            scheduling_strategy="SPREAD",
            runtime_env={"env_vars": {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}},
        )
        self._actors = [] if cluster.head_lost else [placed.remote(spec, token) for _ in range(actors)]
        for actor in self._actors:
            self._await(actor)

    @property
    def ready(self) -> bool:
        """Whether an actor is alive, or it is known that none can work."""
        return bool(self._problem or self._alive) or self._cluster.head_lost

    def perform(self, tasks: Sequence[Any]) -> list[Any]:
        """One result per task; a task that always ends its actor has failed."""
        try:
            return self._isolation.perform(tasks)
        except NoLiveActor:
            error = f"no actor has been alive for {_NOBODY_SECONDS:.0f} s; `ray status` shows what the cluster lacks"
            failure = Failed(error=error, retryable=True, status="no worker")
        except HeadLost:
            error = f"the Ray cluster has ended: its head at {self._cluster.head} does not answer. Start it again"
            failure = Failed(error=error, retryable=True, fatal=True, status="no cluster")
        return [self.failed(failure)] * len(tasks)

    def close(self) -> None:
        """End the actors; where their cluster has ended, Ray would wait for it."""
        self._closed = True
        if not self._cluster.head_answers():
            return
        closing = list[Any]()
        while not self._idle.empty():
            closing.append(self._idle.get().close.remote())
        if closing:
            self._ray.wait(closing, num_returns=len(closing), timeout=_CLOSE_SECONDS)
        for actor in self._actors:
            self._ray.kill(actor)
        for waiting in self._waiting:
            # Ray ends a process in which a thread asks it after the run has left the cluster.
            waiting.join(_CLOSE_SECONDS)

    def _ask(self, tasks: Sequence[Any], *, alone: bool) -> list[Any]:
        exceptions = self._ray.exceptions
        actor = self._take()
        try:
            # A suspect gets an actor that has just answered, or the next.
            if alone and not self._answers(actor):
                return self._ask(tasks, alone=True)
            results = list(self._get(actor.perform.remote(list(tasks)), self._patience))
        except exceptions.GetTimeoutError:
            self._await(actor, kill=True)
            return [self.failed(out_of_time(self._seconds))] * len(tasks)
        except exceptions.RayTaskError as error:
            # A worker survives what its plugin raises, so this is a fault of ours, or a result that cannot be pickled.
            results = [self.failed(Failed(error=short(error.cause or error), retryable=True))] * len(tasks)
        except exceptions.RayError as error:
            log.info("an actor of %s ended: %s", self._recipe.use, short(error))
            self._await(actor)
            raise WorkerDied(short(error)) from None
        self._idle.put(actor)
        return results

    def _take(self) -> Any:
        """A living actor that is not asked by others."""
        while True:
            if self._closed or self._problem:
                raise StillmeError(self._problem or "The run has ended.")
            if self._cluster.head_lost:
                raise HeadLost
            with contextlib.suppress(queue.Empty):
                return self._idle.get(timeout=_POLL_SECONDS)
            if self._alive:
                self._alive_at = time.monotonic()
            elif time.monotonic() - self._alive_at > _NOBODY_SECONDS:
                raise NoLiveActor

    def _answers(self, actor: Any) -> bool:
        try:
            self._get(actor.problem.remote(), _PING_SECONDS)
        except self._ray.exceptions.RayError:
            self._await(actor)
            return False
        return True

    def _get(self, answer: Any, seconds: float) -> Any:
        """An actor's answer, while its cluster has a head."""
        end = time.monotonic() + seconds
        while True:
            try:
                return self._ray.get(answer, timeout=max(0.0, min(_POLL_SECONDS, end - time.monotonic())))
            except self._ray.exceptions.GetTimeoutError:
                if self._cluster.head_lost:
                    raise HeadLost from None
                if time.monotonic() >= end:
                    raise

    def _await(self, actor: Any, *, kill: bool = False) -> None:
        """An actor is not there yet, or is gone, or has to go: Ray starts it again, which is noticed in a thread."""
        self._alive.discard(actor)

        def wait() -> None:
            if kill:
                self._ray.kill(actor, no_restart=False)
            while not self._closed:
                try:
                    problem = self._ray.get(actor.problem.options(max_task_retries=-1).remote())
                except self._ray.exceptions.RayError:
                    time.sleep(_POLL_SECONDS)
                    continue
                if problem:
                    where = f"{self._recipe.kind} {self._recipe.use!r} cannot work on the Ray cluster"
                    self._problem = f"{where}: {problem}"
                else:
                    self._alive.add(actor)
                    self._idle.put(actor)
                return

        waiting = threading.Thread(target=wait, daemon=True)
        self._waiting = [*(thread for thread in self._waiting if thread.is_alive()), waiting]
        waiting.start()
