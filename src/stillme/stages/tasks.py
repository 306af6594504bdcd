"""The assessments that a judge still has to make, generated and never all in memory."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass

from stillme.audit import Audit, NamedJudge
from stillme.errors import StillmeError
from stillme.stages.loop import Tally, missing
from stillme.store import Store
from stillme.types import ImageFile, Pair, Request

_LOOK_AHEAD = 500


@dataclass(frozen=True, slots=True)
class _Question:
    """An assessment that the audit wants, whether or not it exists."""

    key: str
    request: Request
    image: str
    epoch: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """A pair that a judge has to rate, and the key of the assessment."""

    key: str
    pair: Pair


def tasks_of(named: NamedJudge, audit: Audit, store: Store, tally: Tally) -> Iterator[Task]:
    """Every assessment that has no final row yet."""
    wanted = _questions(audit, store, named)
    questions = missing(wanted, lambda question: question.key, store.finished_assessments, tally)
    for asked in questions:
        yield Task(key=asked.key, pair=_pair(named, audit, store, asked))


def _questions(audit: Audit, store: Store, named: NamedJudge) -> Iterator[_Question]:
    """One question per epoch for every edit of the audit that has a picture."""
    record = named.record()
    requests = (request for editor in audit.editors for request in audit.requests(editor))
    while chunk := list(itertools.islice(requests, _LOOK_AHEAD)):
        edits = store.edits([request.key for request in chunk])
        for request in chunk:
            stored = edits.get(request.key)
            if stored and stored.image:
                for key, epoch in record.assessments(request.key, stored.image):
                    yield _Question(key, request, stored.image, epoch)


def _pair(named: NamedJudge, audit: Audit, store: Store, asked: _Question) -> Pair:
    path = store.pictures.find(asked.image)
    if path is None:
        raise StillmeError(
            f"The picture {asked.image} of {asked.request.portraits[0].id} × {asked.request.prompt.id} is missing from "
            f"{store.pictures.folder}. Put it back, or start the run again in another folder."
        )
    return audit.pair(named, asked.request, ImageFile(path=path, sha256=asked.image), asked.epoch)
