"""How far a run has come, counted from its rows; a second look reads only the rows that came since the first."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stillme.design import ExtractorRecord, JudgeRecord, assessment_key
from stillme.mitigation import NEEDS_FEATURES, extraction_key
from stillme.results.run import Run
from stillme.store import Store
from stillme.store.summaries import AddedAssessment, AddedEdit, Sums
from stillme.types import IN_WORDS, Failed

_CHUNK = 20_000
"""Rows that are read at a time, so that memory does not grow with what was added."""
_WORDS = ("", "edited", "refused", "answered in words", "to retry")
"""What became of a request, by its code in the columns below; nothing, where it was never tried."""
_EDITED, _REFUSED, _IN_WORDS, _TO_RETRY = range(1, len(_WORDS))
_DONE = (_EDITED, _REFUSED)

Keys = NDArray[np.bytes_]
Places = NDArray[np.intp]


@dataclass(frozen=True, slots=True, kw_only=True)
class Counts:
    """How far a run has come, by extractor, by editor and by judge."""

    extractors: Mapping[str, Mapping[str, int]]
    editors: Mapping[str, Mapping[str, int]]
    judges: Mapping[str, Mapping[str, int]]
    imported: frozenset[str] = frozenset()
    """Judges whose scores are imported: what they left out is not missing."""

    @property
    def complete(self) -> bool:
        """Whether every description, edit and judgement is there."""
        asked = (counts for name, counts in self.judges.items() if name not in self.imported)
        counted = (*self.extractors.values(), *self.editors.values(), *asked)
        return all(counts["done"] == counts["total"] for counts in counted)

    def as_json(self) -> dict[str, Any]:
        """For `--json`."""
        return {
            "extractors": [{"name": name, **counts} for name, counts in self.extractors.items()],
            "editors": [{"name": name, **counts} for name, counts in self.editors.items()],
            "judges": [{"name": name, **counts} for name, counts in self.judges.items()],
        }


class Counting:
    """The counts of one run, kept between looks: rows are only ever added, so each is read once."""

    def __init__(self) -> None:
        self._about: _About | None = None
        self._grid: _Grid | None = None
        self._features: tuple[_Descriptions, ...] = ()
        self._sums = Sums()

    def of(self, run: Run) -> Counts:
        """Count the run, without disturbing a process that is writing to it.

        The run may have been opened anew since the last look, and may by now ask something else.
        """
        with run.store.snapshot():
            about = _About.of(run)
            if self._grid is None or about != self._about or not self._grid.is_before(run.store):
                self._about, self._grid, self._sums = about, _Grid(run), Sums()
                self._features = tuple(_Descriptions(run, extractor) for extractor in run.design.extractors)
            run.store.sums = self._sums
            # A look that breaks has read some rows and not others: the next one begins again.
            grid, self._grid = self._grid, None
            grid.read(run.store)
            counts = Counts(
                extractors={described.name: described.counts(run.store) for described in self._features},
                editors=grid.editors(),
                judges=grid.judges(),
                imported=frozenset(judge.name for judge in run.judges if judge.capabilities.given),
            )
            self._grid = grid
            return counts


@dataclass(frozen=True, slots=True)
class _About:
    """What the counts are about: if any of it changes, everything is counted again."""

    ledger: tuple[int, int]
    plan: int | None
    editors: tuple[str, ...]
    judges: tuple[tuple[str, str, int], ...]
    extractors: tuple[ExtractorRecord, ...]

    @classmethod
    def of(cls, run: Run) -> _About:
        return cls(
            run.store.file_id,
            run.plan,
            tuple(editor.name for editor in run.design.editors),
            tuple((judge.name, judge.spec.key, judge.asked) for judge in run.judges),
            run.design.extractors,
        )


class _Grid:
    """What became of each request, as columns: there may be millions.

    Columns are by key, in the order of the keys; several requests may have one.
    """

    def __init__(self, run: Run) -> None:
        self._names = tuple(editor.name for editor in run.design.editors)
        keys, self._editor, counts = _requests(run, self._names)
        self._keys, self._place = np.unique(keys, return_inverse=True)
        self._totals = np.bincount(self._editor[counts], minlength=len(self._names))
        self._shared = np.bincount(self._place, minlength=len(self._keys))
        """How many requests have the key."""
        self._state = np.zeros(len(self._keys), np.int8)
        self._final = np.zeros(len(self._keys), np.bool_)
        """Whether the row that counts is marked as final: none that is not can replace it."""
        self._image: Keys = np.zeros(len(self._keys), "S64")
        self._pictured = np.zeros(len(self._keys), np.bool_)
        self._judges = run.judges
        self._columns = _by_specification(run.judges)
        self._done = np.zeros((len(self._keys), len(run.judges)), np.uint16)
        self._astray = set[int]()
        """Requests with a judgement of another picture than theirs: it counts if that picture becomes theirs."""
        self._last_edit = self._last_assessment = 0

    def is_before(self, store: Store) -> bool:
        """Whether the ledger holds at least the rows that were counted; one that was put back may not."""
        edit, assessment = store.newest()
        return edit >= self._last_edit and assessment >= self._last_assessment

    def read(self, store: Store) -> None:
        """Count the rows that were added."""
        if not len(self._keys):
            return
        other_picture = set[int]()
        edits = store.edits_after(self._last_edit)
        while rows := list(itertools.islice(edits, _CHUNK)):
            other_picture |= self._add_edits(rows)
        assessments = store.assessments_after(self._last_assessment)
        while answers := list(itertools.islice(assessments, _CHUNK)):
            self._add_assessments(answers)
        for place in other_picture:
            self._count_again(place, store)

    def editors(self) -> dict[str, Mapping[str, int]]:
        """The counts of each editor."""
        codes = self._editor * len(_WORDS) + self._state[self._place]
        table = np.bincount(codes, minlength=len(self._names) * len(_WORDS)).reshape(-1, len(_WORDS))
        counts: dict[str, Mapping[str, int]] = {}
        for name, total, states in zip(self._names, self._totals.tolist(), table.tolist(), strict=True):
            words = {word: count for word, count in zip(_WORDS, states, strict=True) if word and count}
            counts[name] = {"total": total, "done": sum(states[code] for code in _DONE), **words}
        return counts

    def judges(self) -> dict[str, dict[str, int]]:
        """The counts of each judge."""
        pictures = int(self._shared @ self._pictured)
        done: list[int] = (self._shared @ self._done).tolist()
        return {
            judge.name: {"total": pictures * judge.asked, "done": count}
            for judge, count in zip(self._judges, done, strict=True)
        }

    def _add_edits(self, rows: Sequence[AddedEdit]) -> set[int]:
        """Take rows into account; gives the requests whose judgements must be counted again."""
        numbers, keys, finals, outcomes, images, statuses = zip(*rows, strict=True)
        self._last_edit = numbers[-1]
        places, known = self._find(keys)
        final = np.array(finals, np.bool_)
        state = np.array([_code(*outcome) for outcome in zip(outcomes, statuses, strict=True)], np.int8)
        image = np.array([image or "" for image in images], "S64")
        touched = np.unique(places[known])
        before = self._image[touched]
        for marked in (False, True):
            # Failures first: a final row replaces them, the latest of each kind counts.
            counts = known & (final == marked)
            if not marked:
                counts[known] &= ~self._final[places[known]]
            self._state[places[counts]] = state[counts]
            self._image[places[counts]] = image[counts]
            self._final[places[counts]] = marked
        self._pictured[touched] = self._image[touched] != b""
        changed = self._image[touched] != before
        remade = touched[changed & (before != b"")].tolist()
        return {*remade, *(self._astray.intersection(touched[changed].tolist()) if self._astray else ())}

    def _add_assessments(self, rows: Sequence[AddedAssessment]) -> None:
        numbers, keys, edits, judges, epochs = zip(*rows, strict=True)
        self._last_assessment = numbers[-1]
        places, known = self._find(edits)
        asked = known & np.array([judge in self._columns for judge in judges])
        images: list[bytes] = self._image[places].tolist()
        right = np.array(
            [
                bool(image) and assessment_key(edit, image.decode(), judge, epoch) == key
                for key, edit, judge, epoch, image in zip(keys, edits, judges, epochs, images, strict=True)
            ]
        )
        self._astray.update(places[asked & ~right].tolist())
        epoch = np.array(epochs)
        for spec, columns in self._columns.items():
            answers = asked & right & np.array([judge == spec for judge in judges])
            for column in columns:
                np.add.at(self._done[:, column], places[answers & (epoch < self._judges[column].asked)], 1)

    def _count_again(self, place: int, store: Store) -> None:
        """The judgements of a request that has another picture than before: those of that picture."""
        request, image = self._keys[place].hex().ljust(32, "0"), self._image[place].decode()
        for column, judge in enumerate(self._judges):
            keys = [key for key, _ in judge.assessments(request, image)] if image else []
            self._done[place, column] = len(store.finished_assessments(keys))
        self._astray.add(place)

    def _find(self, keys: Sequence[str]) -> tuple[Places, NDArray[np.bool_]]:
        """Where the columns of these keys are, and which of them have any."""
        packed = _packed(keys)
        places = np.minimum(np.searchsorted(self._keys, packed), len(self._keys) - 1)
        return places, self._keys[places] == packed


class _Descriptions:
    """An extractor's portraits; those that need no more work are not asked about again."""

    def __init__(self, run: Run, extractor: ExtractorRecord) -> None:
        self.name = extractor.name
        readers = {editor.name for editor in run.design.editors if editor.capabilities.reads_instruction}
        ids = run.portraits_of(readers, NEEDS_FEATURES)
        portraits = (portrait for portrait in run.design.portraits if portrait.id in ids)
        self._open = {extraction_key(portrait.image, extractor.spec) for portrait in portraits}
        self._total = len(self._open)
        self._done = Counter[str]()

    def counts(self, store: Store) -> Mapping[str, int]:
        """How many of them it has described."""
        waiting = 0
        for key, extraction in store.features(sorted(self._open)).items():
            if isinstance(extraction, Failed):
                waiting += 1
            else:
                self._open.remove(key)
                self._done[type(extraction).__name__.lower()] += 1
        counts = {"total": self._total, "done": self._done.total(), **self._done}
        return counts | {"to retry": waiting} if waiting else counts


def _requests(run: Run, names: Sequence[str]) -> tuple[Keys, NDArray[np.int64], NDArray[np.bool_]]:
    """Every request's key, its editor's place among `names`, and whether an edit of it is expected."""
    places = {name: place for place, name in enumerate(names)}
    keys, editors, counts = [np.zeros(0, "S16")], [np.zeros(0, np.int64)], [np.zeros(0, np.bool_)]
    requests = run.asked()
    while chunk := list(itertools.islice(requests, _CHUNK)):
        keys.append(_packed([asked.key for asked in chunk]))
        editors.append(np.array([places[asked.editor] for asked in chunk], np.int64))
        counts.append(np.array([asked.counts for asked in chunk], np.bool_))
    return np.concatenate(keys), np.concatenate(editors), np.concatenate(counts)


def _packed(keys: Sequence[str]) -> Keys:
    """Keys in half the memory: they are 32 hexadecimal digits."""
    return np.frombuffer(bytes.fromhex("".join(keys)), "S16")


def _code(outcome: str, status: str | None) -> int:
    match outcome:
        case "edited":
            return _EDITED
        case "refused":
            return _REFUSED
        case _:
            return _IN_WORDS if status == IN_WORDS else _TO_RETRY


def _by_specification(judges: Sequence[JudgeRecord]) -> dict[str, list[int]]:
    """By the key of a specification: the places of the judges that have it."""
    columns: dict[str, list[int]] = {}
    for place, judge in enumerate(judges):
        columns.setdefault(judge.spec.key, []).append(place)
    return columns
