"""Counts by the database, of all rows at once or of new ones, are the counts request by request."""

from __future__ import annotations

import shutil
import tempfile
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from stillme.audit import load
from stillme.audit.design import Design, assessment_key
from stillme.core.types import IN_WORDS, Abstained, Assessment, Edited, EditOutcome, Failed, Rated, Refused, Request
from stillme.mitigation.features import Declined, Described, Extraction, Features, extraction_key
from stillme.runs import RecordedRun, status
from stillme.runs.status import Counts, count
from stillme.runs.store import Store, Totals
from stillme.runs.store.rows import Attempt, FeatureRow
from stillme.work.recording import record
from tests.records import assessment_row, edit_row, small_audit

AUDIT: dict[str, Any] = {
    "arms": ["baseline", "feature"],
    "prompts": ["O-01"],
    "editors": [{"use": "noop"}, {"use": "planted"}],
    "judges": [
        {"use": "scripted", "epochs": 2},
        {"use": "scripted", "name": "other", "parameters": {"scores": {"skin_tone": 2}}},
    ],
    "estimates": {"factors": ["preset"]},
}
OUTCOMES: tuple[EditOutcome, ...] = (
    Edited(image=b"", effective={"weights": {"repo": "a/b", "revision": "1"}}),
    Edited(image=b"", effective={"cost": "unknown", "weights": {"repo": "a/b", "revision": "2"}}),
    Refused(message="no"),
    Failed(error="timed out", retryable=True),
    Failed(error="I would rather not", retryable=False, status=IN_WORDS),
)
RATINGS = (Rated(score=3), Abstained(reason="too dark"), Failed(error="no JSON", retryable=True))
EXTRACTIONS: tuple[Extraction, ...] = (
    Described(features=Features(dimensions={"hair": "short"}, sentence="short hair")),
    Declined(reason="no"),
    Failed(error="timed out", retryable=True),
)
PICTURES = ("a" * 64, "b" * 64)

numbers = st.sampled_from([0, 11, -1])
"""Few requests, so that much happens to each; the last is one that the run does not ask."""
dollars = st.sampled_from([0.0, 0.25])
edits = st.tuples(st.just("edit"), numbers, st.sampled_from(OUTCOMES), st.sampled_from(PICTURES), dollars)
judgements = st.tuples(
    st.just("judge"), numbers, st.integers(0, 1), st.integers(0, 2), st.sampled_from(PICTURES), st.sampled_from(RATINGS)
)
features = st.tuples(st.just("feature"), st.integers(0, 2), st.sampled_from(EXTRACTIONS))
attempts = st.tuples(st.just("attempt"), numbers, dollars)
look = st.just(("look",))
steps = st.lists(st.one_of(edits, edits, judgements, judgements, features, attempts, look, look), max_size=60)


@pytest.fixture(scope="module")
def recorded() -> Iterator[Path]:
    """A run that has recorded what it asks, and done nothing."""
    with tempfile.TemporaryDirectory() as name:
        folder = small_audit(Path(name), limit=3, **AUDIT)
        with Store.writing(folder) as store:
            record(load(folder), store)
        yield folder


def asked_of(run: RecordedRun) -> list[Request]:
    requests = [request.request(run.design) for request in run.requests()]
    assert [request.key for request in requests] == [request.key for request in run.requests()]
    return [*requests, replace(requests[0], seed=99)]


def apply(step: tuple, store: Store, design: Design, requests: list[Request]) -> None:
    match step:
        case ("edit", number, outcome, picture, cost):
            image = picture if isinstance(outcome, Edited) else None
            store.add([edit_row(requests[number], outcome, image, cost)])
        case ("judge", number, judge, epoch, picture, rating):
            edit, spec = requests[number].key, design.judges[judge].spec
            key, said = assessment_key(edit, picture, spec.key, epoch), {"skin_tone": rating}
            said = Assessment(ratings=said, effective={"model": f"m-{epoch}"})
            store.add([assessment_row(edit, said, epoch, key=key, judge=spec, cost=0.5)])
        case ("feature", number, extraction):
            image, spec = design.portraits[number].image, design.extractors[0].spec
            key = extraction_key(image, spec)
            row = FeatureRow(
                key=key, image=image, extractor=spec, extraction=extraction, attempts=1, seconds=0.5, cost=0.25
            )
            store.add([row])
        case ("attempt", number, cost):
            attempt = Attempt(stage="edit", key=requests[number].key, number=1, error="no", retryable=True, cost=cost)
            store.add_attempts([attempt])


def happen(folder: Path, *steps: tuple) -> None:
    """Have these rows written to a run."""
    with RecordedRun.open(folder) as run:
        design, requests = run.design, asked_of(run)
    for step in steps:
        with Store.writing(folder) as store:
            apply(step, store, design, requests)


def edited(*numbers: int, outcome: EditOutcome = OUTCOMES[0]) -> list[tuple]:
    """Edits of these requests, for a dollar each."""
    return [("edit", number, outcome, PICTURES[0], 1.0) for number in numbers]


def counted(folder: Path) -> tuple[Counts, Totals]:
    """What the database counts, which must be what one would."""
    with RecordedRun.open(folder) as run:
        counts, totals = count(run)
        assert counts == counted_one_by_one(run)
        assert totals == run.store.totals()
        store, origins = run.store, status._read(run)[2]
        assert dict(origins.times) == store.editing_times()
        assert [*origins.models] == store.answering_models()
        assert [*origins.weights] == store.editing_weights()
        return counts, totals


def counted_one_by_one(run: RecordedRun) -> Counts:
    """Request by request, each looked up by its key."""
    editors = {editor.name: Counter(total=0, done=0) for editor in run.design.editors}
    judges = {judge.name: Counter(total=0, done=0) for judge in run.judges}
    for asked in run.asked():
        editors[asked.editor]["total"] += asked.counts
        edit = run.store.edits([asked.key]).get(asked.key)
        if edit is None:
            continue
        waits = "answered in words" if edit.status == IN_WORDS else "to retry"
        editors[asked.editor].update(done=int(edit.final), **{edit.outcome if edit.final else waits: 1})
        for judge in run.judges if edit.image else ():
            keys = [key for key, _ in judge.assessments(asked.key, edit.image or "")]
            judges[judge.name].update(total=len(keys), done=len(run.store.finished("assessment", keys)))
    (extractor,) = run.design.extractors
    keys = [extraction_key(portrait.image, extractor.spec) for portrait in run.design.portraits]
    described = Counter(total=len(keys), done=0)
    for extraction in run.store.features(keys).values():
        failed = isinstance(extraction, Failed)
        described.update(done=int(not failed), **{"to retry" if failed else type(extraction).__name__.lower(): 1})
    # As dictionaries, because counters do not tell none from nothing counted.
    extractors, editors, judges = (
        {name: dict(counts) for name, counts in counted.items()}
        for counted in ({extractor.name: described}, editors, judges)
    )
    return Counts(extractors=extractors, editors=editors, judges=judges)


EDITED, RATED, LOOK = OUTCOMES[0], RATINGS[0], ("look",)
A, B = PICTURES
JUDGED = [("edit", 0, EDITED, A, 0.25), ("judge", 0, 0, 0, A, RATED), ("judge", 0, 0, 1, A, RATED), LOOK]
REMADE = [*JUDGED, ("edit", 0, EDITED, B, 0.25), LOOK, ("judge", 0, 0, 1, B, RATED), LOOK]
JUDGED_BEFORE = [("judge", 0, 1, 0, B, RATED), LOOK, ("edit", 0, EDITED, B, 0.25), LOOK]
TRIED_AGAIN = [("edit", 0, OUTCOMES[3], A, 0.25), LOOK, ("edit", 0, EDITED, A, 0.25), LOOK]
NOT_ASKED_SO_OFTEN = [*JUDGED, ("judge", 0, 0, 2, A, RATED), ("judge", 0, 1, 1, A, RATED)]


@given(steps=steps)
@example(steps=REMADE)
@example(steps=JUDGED_BEFORE)
@example(steps=NOT_ASKED_SO_OFTEN)
@example(steps=TRIED_AGAIN)
def test_the_database_counts_as_one_would_request_by_request(recorded: Path, steps: list[tuple]):
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        shutil.copyfile(recorded / "stillme.sqlite", folder / "stillme.sqlite")
        with RecordedRun.open(folder) as run:
            design, requests = run.design, asked_of(run)
        for step in [*steps, ("look",)]:
            if step != ("look",):
                with Store.writing(folder) as store:
                    apply(step, store, design, requests)
                continue
            counted(folder)


@pytest.fixture
def folder(recorded: Path, tmp_path: Path) -> Path:
    """A copy of the run's database."""
    return Path(shutil.copyfile(recorded / "stillme.sqlite", tmp_path / "stillme.sqlite")).parent


def test_a_run_that_did_not_change_is_counted_once(folder: Path, monkeypatch: pytest.MonkeyPatch):
    original, asked = status._counts, list[int]()
    monkeypatch.setattr(status, "_counts", lambda *given: asked.append(1) or original(*given))
    first = counted(folder)
    assert counted(folder) == first, "kept also for the next process"
    assert len(asked) == 1
    happen(folder, *edited(0))
    counts, totals = counted(folder)
    assert counts != first[0]
    assert totals.cost == 1
    assert counted(folder) == (counts, totals)
    assert len(asked) == 2


def test_only_new_rows_are_read_to_count_again(folder: Path, monkeypatch: pytest.MonkeyPatch):
    original, read = Store.progress, list[int]()
    monkeypatch.setattr(Store, "progress", lambda *given: read.append(given[-1].get("edit", 0)) or original(*given))
    for edits in range(3):
        assert counted(folder)[0].editors["noop"]["done"] == edits
        happen(folder, *edited(edits))
    assert read == [0, 0, 1], "the second began with an empty ledger"


def test_a_row_that_is_written_during_a_count_is_seen_by_the_next(folder: Path):
    with pytest.MonkeyPatch.context() as patched, RecordedRun.open(folder) as run:
        original = status._counts

        def slow(*given: Any) -> Counts:
            counts = original(*given)
            happen(folder, *edited(0))
            return counts

        patched.setattr(status, "_counts", slow)
        assert count(run)[0].editors["noop"]["done"] == 0
    assert counted(folder)[0].editors["noop"]["done"] == 1


@pytest.mark.parametrize("in_place", [False, True])
def test_a_ledger_that_was_put_back_is_counted_again(recorded: Path, folder: Path, in_place: bool):
    ledger = folder / "stillme.sqlite"
    happen(folder, *edited(0, 1))
    assert counted(folder)[1].cost == 2
    for path in folder.glob("stillme.sqlite*"):
        if path != ledger or not in_place:
            path.unlink()
    shutil.copyfile(recorded / ledger.name, ledger)
    for number in range(2, 6):
        happen(folder, *edited(number, outcome=OUTCOMES[2]))
        assert counted(folder)[1].cost == number - 1


def test_what_is_kept_may_be_damaged_or_unwritable(folder: Path, monkeypatch: pytest.MonkeyPatch):
    status._file().parent.mkdir(parents=True, exist_ok=True)
    status._file().write_text("[broken")
    counted(folder)
    (folder / "a file").write_text("")
    monkeypatch.setattr(status, "_file", lambda: folder / "a file" / "counts.json")
    counted(folder)


def test_a_run_that_asks_something_else_is_counted_again(recorded: Path, tmp_path: Path):
    folder = Path(shutil.copytree(recorded, tmp_path / "run"))
    for number in range(0, 12, 2):
        happen(folder, *edited(number, outcome=OUTCOMES[number % 4]))
    before, _ = counted(folder)
    small_audit(folder, limit=2, **AUDIT)
    with Store.writing(folder) as store:
        record(load(folder), store)
    after, _ = counted(folder)
    assert [counts.editors["noop"]["total"] for counts in (before, after)] == [6, 4]
