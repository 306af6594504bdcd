"""The assessments that a judge still has to make, generated and never all in memory."""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from stillme.audit import Audit, NamedJudge
from stillme.core.types import ImageFile, Pair, Request
from stillme.runs.store import Store
from stillme.work.stage import Session, missing_in
from stillme.work.tally import Tally

_LOOK_AHEAD = 500
_MOST_FRESH = 5_000
"""Edits that wait for a judge in memory."""


@dataclass(frozen=True, slots=True)
class _Question:
    """An assessment that the audit wants, whether or not it exists."""

    key: str
    request: Request
    image: str
    epoch: int


@dataclass(slots=True, kw_only=True, eq=False)
class Task:
    """A pair that a judge has to rate, and the key of the assessment."""

    key: str
    pair: Pair
    sent: bool = False


class Fresh:
    """Edits that were just saved, on their way to a judge. Bounded: the rest is found in the ledger later."""

    def __init__(self, *, open_: bool, most: int = _MOST_FRESH) -> None:
        self.is_open = open_
        self.overflowed = False
        self._requests: deque[Request] = deque()
        self._most = most

    def put(self, request: Request) -> None:
        """An edit has a picture."""
        if not self.is_open:
            return
        if len(self._requests) < self._most:
            self._requests.append(request)
        else:
            self.overflowed = True

    def take(self) -> list[Request]:
        """All that came since the last time."""
        requests = list(self._requests)
        self._requests.clear()
        return requests

    def __bool__(self) -> bool:
        return bool(self._requests)


def tasks_of(
    named: NamedJudge,
    audit: Audit,
    store: Store,
    session: Session,
    tally: Tally,
    requests: Iterable[Request] | None = None,
    *,
    up_to: int | None = None,
) -> Iterator[Task]:
    """Every assessment of these requests, by default of all, that has no final row yet.

    `up_to` is the number of the last edit that counts.
    """
    questions = _questions(named, audit, store, requests, up_to)
    for asked in missing_in(store, "assessment", questions, session, tally):
        yield Task(key=asked.key, pair=_pair(named, audit, store, asked))


def example_of(named: NamedJudge, audit: Audit, store: Store) -> Pair | None:
    """A pair of this audit that shows one person, whether or not it was judged; None if there is none yet."""
    questions = _questions(named, audit, store)
    alone = (asked for asked in questions if len(asked.request.portraits) == 1)
    return next((_pair(named, audit, store, asked) for asked in alone), None)


def _questions(
    named: NamedJudge,
    audit: Audit,
    store: Store,
    requests: Iterable[Request] | None = None,
    up_to: int | None = None,
) -> Iterator[_Question]:
    """One question per epoch for every edit that has a picture."""
    record = named.record()
    stream = audit.requests_by_portrait() if requests is None else iter(requests)
    while chunk := list(itertools.islice(stream, _LOOK_AHEAD)):
        edits = store.edits([request.key for request in chunk])
        for request in chunk:
            stored = edits.get(request.key)
            if stored and stored.image and (up_to is None or stored.id <= up_to):
                for key, epoch in record.assessments(request.key, stored.image):
                    yield _Question(key, request, stored.image, epoch)


def _pair(named: NamedJudge, audit: Audit, store: Store, asked: _Question) -> Pair:
    # Whether it is there and what it was is seen by the worker, before the judge is asked.
    edited = ImageFile(path=store.pictures.where(asked.image), sha256=asked.image)
    return audit.pair(named, asked.request, edited, asked.epoch)
