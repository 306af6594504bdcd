"""Threads that perform batches, so that the one thread that saves never waits for an editor or a judge."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

T = TypeVar("T")
R = TypeVar("R")
D = TypeVar("D")


@dataclass(slots=True, eq=False)
class Order(Generic[T, D]):
    """A batch on its way through a thread."""

    tasks: Sequence[T]
    reserved: float = 0.0
    """Dollars."""
    earlier: D | None = None
    """The failed attempt that this one repeats."""
    began: float = 0.0
    """On the clock of `time.monotonic`; 0 while it waits for a thread."""
    ended: float = 0.0
    given_up: bool = False
    """Whether the run waits for it no longer."""


class Pool(Generic[T, R, D]):
    """Daemon threads, so that a second Ctrl-C need not wait for an edit that takes a minute."""

    def __init__(self, perform: Callable[[Sequence[T]], Sequence[R]], threads: int, wake: threading.Event) -> None:
        self._perform, self._threads, self._wake = perform, threads, wake
        self._orders: queue.SimpleQueue[Order[T, D] | None] = queue.SimpleQueue()
        self.results: queue.SimpleQueue[tuple[Order[T, D], Sequence[R] | BaseException]] = queue.SimpleQueue()

    def __enter__(self) -> Pool[T, R, D]:
        for _ in range(self._threads):
            self._start_thread()
        return self

    def __exit__(self, *_: object) -> None:
        for _thread in range(self._threads):
            self._orders.put(None)

    def give(self, order: Order[T, D]) -> None:
        """Have it performed by the next free thread."""
        self._orders.put(order)

    def give_up(self, order: Order[T, D]) -> None:
        """Put another thread in the place of the one that waits for this; its results still come, if late."""
        order.given_up = True
        self._start_thread()

    def take_back(self) -> Iterator[Order[T, D]]:
        """The orders that no thread has begun."""
        while True:
            try:
                order = self._orders.get_nowait()
            except queue.Empty:
                return
            if order is not None:
                yield order

    def _start_thread(self) -> None:
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        while (order := self._orders.get()) is not None:
            order.began = time.monotonic()
            try:
                results = self._perform(order.tasks)
            except BaseException as error:
                results = error
            order.ended = time.monotonic()
            self.results.put((order, results))
            self._wake.set()
            if order.given_up:
                return
