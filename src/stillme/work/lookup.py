"""Which tasks have no row yet, and in which batches they are done."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Any, TypeVar

from stillme.runs.store import Store
from stillme.runs.store.rows import Table
from stillme.work.stage import Session
from stillme.work.tally import Tally

T = TypeVar("T")

_LOOK_AHEAD = 500
"""Tasks whose keys are looked up together: one query each, and memory stays flat."""


def missing(
    tasks: Iterable[T],
    key: Callable[[T], str],
    finished: Callable[[Sequence[str]], set[str]],
    tally: Tally,
    *,
    failed: Callable[[Sequence[str]], set[str]] | None = None,
    only_failed: bool = False,
) -> Iterator[T]:
    """The tasks that have no final row, looked up a chunk at a time so that no grid is ever held whole.

    Those that `failed` before come last: what fails always must not keep a rerun from the rest.
    """
    stream = iter(tasks)
    again: list[T] = []
    while chunk := list(itertools.islice(stream, _LOOK_AHEAD)):
        keys = [key(task) for task in chunk]
        done = finished(keys)
        tally.already += len(done)
        tried = failed(keys) if failed else set[str]()
        for task, name in zip(chunk, keys, strict=True):
            if name in done:
                continue
            if name in tried:
                again.append(task)
            elif not only_failed:
                yield task
    yield from again


def missing_in(
    store: Store,
    table: Table,
    tasks: Iterable[T],
    session: Session,
    tally: Tally,
    *,
    finished: Callable[[Sequence[str]], set[str]] | None = None,
) -> Iterator[T]:
    """Those that have no final row in a table of the ledger."""
    finished = finished or partial(store.finished, table)
    failed, only_failed = partial(store.failed, table), session.options.only_failed
    return missing(tasks, _key_of, finished, tally, failed=failed, only_failed=only_failed)


def _key_of(task: Any) -> str:
    return task.key


def grouped(tasks: Iterable[T], size: int, together: Callable[[T], object] | None = None) -> Iterator[list[T]]:
    """Neighbouring tasks in batches of up to `size`, which share `together` where it is given."""
    runs = itertools.groupby(tasks, together) if together else [(None, iter(tasks))]
    for _, neighbours in runs:
        while batch := list(itertools.islice(neighbours, size)):
            yield batch
