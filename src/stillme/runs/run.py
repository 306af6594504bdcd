"""A run as it was recorded: all that a reader needs."""

from __future__ import annotations

import itertools
import weakref
from collections.abc import Generator, Iterator
from collections.abc import Set as AbstractSet
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from stillme.audit.design import FILE, CountedRequest, Design, JudgeRecord, RecordedRequest, design_from
from stillme.core.errors import StillImporting, StillmeError, StillRecording
from stillme.core.types import Arm, Genders, Settings
from stillme.runs.store import Store, StoredEdit, Totals

if TYPE_CHECKING:  # estimates need numpy, and counting does not need estimates
    from stillme.runs.gathering import Results
    from stillme.runs.readings import Readings

CHUNK = 500


@dataclass(frozen=True, slots=True)
class Row:
    """One request with its edit; None where there is none yet."""

    request: RecordedRequest
    edit: StoredEdit | None

    @property
    def image(self) -> str:
        """The hash of the edited picture; empty where there is none."""
        return (self.edit.image or "") if self.edit else ""


class RecordedRun:
    """A folder with a ledger. Opened without plugins, keys, inputs or audit.toml, wherever it was moved to."""

    def __init__(self, store: Store) -> None:
        self.store = store
        recorded = store.designs.latest()
        if recorded is None:
            raise _unrecorded(store)
        self.plan = recorded.plan
        """The id of the recorded requests."""
        self.request_count = recorded.requests
        """How many requests there are, including impossible ones."""
        self.design: Design = design_from(recorded.document, store.pictures.where)
        self.opened_from: Path = store.folder
        """What the user named: the folder, or the bundle that was unpacked into it."""

    @classmethod
    def open(cls, folder: Path) -> RecordedRun:
        """The run in a folder."""
        if not Store.exists(folder):
            raise StillmeError(f"{folder} has no run yet. Start it with `stillme run {folder}`.")
        store = Store.opened(folder)
        try:
            run = cls(store)
        except BaseException:
            store.close()
            raise
        # A run that is garbage-collected closes the ledger that it opened.
        weakref.finalize(run, store.close)
        return run

    def close(self) -> None:
        """Close the ledger."""
        self.store.close()

    def __enter__(self) -> RecordedRun:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def folder(self) -> Path:
        """Where the run is."""
        return self.store.folder

    @property
    def title(self) -> str:
        """The audit's title."""
        return self.design.title

    def __repr__(self) -> str:
        return f"<Run {self.title!r} in {self.folder}>"

    def requests(self, editor: str | None = None) -> Iterator[RecordedRequest]:
        """Every request in its recorded order, of one editor or of all; impossible ones come last."""
        return self.store.designs.requests(self.plan, editor)

    def request_at(self, position: int) -> RecordedRequest:
        """One request by its place in the recorded order, counted from 0."""
        return self.store.designs.request(self.plan, position)

    def asked(self) -> Iterator[CountedRequest]:
        """The same requests, as much of them as counting needs."""
        return self.store.designs.asked(self.plan)

    def portraits_of(self, editors: AbstractSet[str], arms: AbstractSet[Arm]) -> set[str]:
        """The portraits that these editors are given in these arms."""
        return self.store.designs.portraits(self.plan, editors, arms)

    def rows(self, editor: str | None = None) -> Iterator[Row]:
        """Every request with its edit."""
        requests = self.requests(editor)
        while chunk := list(itertools.islice(requests, CHUNK)):
            edits = self.store.edits([request.key for request in chunk])
            yield from (Row(request, edits.get(request.key)) for request in chunk)

    @cached_property
    def results(self) -> Results:
        """The rows as columns, read once."""
        from stillme.runs.gathering import gather

        return gather(self)

    @cached_property
    def readings(self) -> Readings | None:
        """What readers said of single pictures; None where the audit has no readers."""
        from stillme.runs.readings import readings_of

        return readings_of(self)

    @property
    def settings(self) -> Settings:
        """How numbers are computed from the rows."""
        return self.design.analysis

    @property
    def genders(self) -> Genders:
        """The labels of the two genders that role prompts are about."""
        roles = self.design.roles
        return Genders(factor=roles.gender, male=roles.male, female=roles.female) if roles else Genders()

    @property
    def judges(self) -> tuple[JudgeRecord, ...]:
        """The judges, as recorded."""
        return self.design.judges

    def totals(self) -> Totals:
        """Counts, seconds and dollars."""
        return self.store.totals()

    def picture(self, sha256: str) -> Path:
        """The file of an edited or source picture."""
        path = self.store.pictures.intact(sha256)
        if path is None:
            damaged = any(lost.how == "damaged" for lost in self.store.pictures.lost([sha256]))
            how = "damaged in" if damaged else "missing from"
            raise StillmeError(
                f"The picture {sha256} is {how} {self.store.pictures}. Put it back from a copy; "
                f"`stillme doctor {self.folder}` lists all such pictures."
            )
        return path


def _unrecorded(store: Store) -> StillmeError:
    """Why a ledger has no design: it is written after the last request, or the last imported row."""
    latest = store.latest_audit()
    if latest is not None and "rows" in latest.resolved:
        return StillImporting(
            f"The rows are not all in {store.folder} yet. If no import is at work there, it was interrupted: run the "
            "same `stillme import rows` again to finish it."
        )
    return StillRecording(
        f"{store.folder} has none of its requests recorded yet. If a run is at work there, look again in a moment; "
        f"if not, `stillme run {store.folder}` starts it."
    )


@contextmanager
def opened(path: Path, out: Path | None = None) -> Generator[RecordedRun]:
    """The run that a command line names: its folder, or the folder of its audit.toml."""
    with RecordedRun.open(folder_of(path, out)) as run:
        yield run


def folder_of(path: Path, out: Path | None = None) -> Path:
    """The run folder that `path` (a run folder, an audit's folder, or its file) and `--out` mean."""
    if out is not None:
        return out
    if not path.exists():
        raise StillmeError(f"{path} does not exist. Start an audit there with `stillme new {path}`.")
    folder = path if path.is_dir() else path.parent
    if not Store.exists(folder) and not (path / FILE if path.is_dir() else path).is_file():
        raise StillmeError(f"{path} has no {FILE} and no run. Write one with `stillme new {path}`.")
    return folder
