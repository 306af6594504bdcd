"""Where work is done: in threads of this process, in processes of its own, or on a cluster.

An executor turns a spec into a worker. The loop hands batches to that worker from threads, one per call that may be
under way, and never learns where it is: a worker may be a process here or an actor on another machine.
"""

from __future__ import annotations

from typing import Protocol, TypeVar, cast

from stillme.audit.config import ExecutorSection
from stillme.work.processes import ProcessWorker
from stillme.work.workers import Inside, Placed, Worker, WorkerSpec

T = TypeVar("T")
R = TypeVar("R")


class Executor(Protocol):
    """Decides where the workers of a run live."""

    side_by_side: bool
    """Whether several editors may compute at the same time: only where they do not share one machine."""

    def worker(self, spec: WorkerSpec | None, here: Worker[T, R], *, concurrency: int, seconds: float) -> Placed[T, R]:
        """A worker that does what `here` does. Without a spec, no other process can do it.

        `concurrency` calls may be made of one worker at once, each of which may take `seconds`.
        """
        ...

    def close(self) -> None:
        """Release what all workers share."""
        ...


class Local:
    """This machine: threads, and a process of its own for whatever may take its process down."""

    side_by_side = False

    def __init__(self, *, isolate: bool = True) -> None:
        self._isolate = isolate

    def worker(self, spec: WorkerSpec | None, here: Worker[T, R], *, concurrency: int, seconds: float) -> Placed[T, R]:
        """A thread is enough for what only waits, and for stillme's own code."""
        if spec is None or not self._isolate or not spec.recipe.foreign:
            return Inside(here, concurrency)
        return cast("Placed[T, R]", ProcessWorker(spec, here.failed, concurrency=concurrency, seconds=seconds))

    def close(self) -> None:
        """Nothing is shared."""


def executor_of(section: ExecutorSection) -> Executor:
    """The executor that audit.toml asks for."""
    match section.kind:
        case "local":
            return Local(isolate=section.isolate)
        case "ray":
            from stillme.work.ray_executor import OnRay

            return OnRay(section, home=Local(isolate=section.isolate))
