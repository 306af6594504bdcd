from __future__ import annotations

import json
import sqlite3
import subprocess
import sys
import tempfile
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stillme.core.errors import StoreBusy, StoreDamaged, StoreOfAnotherVersion
from stillme.core.types import Assessment, Edited, EditOutcome, Failed, Rated, Refused
from stillme.runs.store import Store
from stillme.runs.store.exported import EDITS, rows_of
from stillme.runs.store.schema import VERSION, create_tables
from tests.records import assessment_row, edit_row, request

outcomes = st.one_of(
    st.builds(Edited, image=st.just(b""), truth=st.none() | st.dictionaries(st.text(), st.integers())),
    st.builds(Refused, message=st.text()),
    st.builds(Failed, error=st.text(), retryable=st.booleans()),
)


@given(st.lists(outcomes, max_size=12))
def test_what_is_appended_is_found_again(outcomes: list[EditOutcome]):
    with tempfile.TemporaryDirectory() as folder, Store.writing(Path(folder)) as store:
        requests = [request(seed=seed) for seed in range(len(outcomes))]
        store.add([edit_row(made, outcome) for made, outcome in zip(requests, outcomes, strict=True)])
        found = store.edits([made.key for made in requests])
        finished = store.finished("edit", [made.key for made in requests])
        for made, outcome in zip(requests, outcomes, strict=True):
            kept = found[made.key]
            assert (made.key in finished) == kept.final == (not isinstance(outcome, Failed))
            assert kept.outcome == type(outcome).__name__.lower()
            if isinstance(outcome, Edited):
                assert kept.truth == (outcome.truth if outcome.truth is not None else None)


def test_a_final_row_replaces_earlier_failures(tmp_path: Path):
    with Store.writing(tmp_path) as store:
        for outcome in (Failed(error="503", retryable=True), Failed(error="503", retryable=True), Edited(image=b"")):
            store.add([edit_row(request(), outcome)])
        assert store.edits([request().key])[request().key].outcome == "edited"
        assert store.totals().edits == {"edited": 1}


def test_work_done_twice_is_kept_once_and_what_differs_is_reported(tmp_path: Path):
    with Store.writing(tmp_path) as store:
        first, other = store.pictures.add(b"one"), store.pictures.add(b"another")
        store.add([replace(edit_row(request()), image=first, cost=0.5)])
        again = [edit_row(request(seed=1)), *(replace(edit_row(request()), image=i, cost=0.5) for i in (first, other))]
        store.add(again)
        assert store.count_edits() == 2, "neighbours are saved"
        assert store.edits([request().key])[request().key].image == first
        same, different = store.attempts.of(request().key)
        assert (same.status, different.status) == ("repeated", "nondeterministic")
        assert first in different.error
        assert other in different.error
        assert store.totals().cost == 1.5 + edit_row(request()).cost, "all three were paid"


def test_a_row_that_cannot_be_saved_is_a_failure_with_its_reason_and_harms_no_other(tmp_path: Path):
    with Store.writing(tmp_path) as store:
        broken = Edited(image=b"", effective={"half a character": "\ud800"})
        store.add([edit_row(request()), edit_row(request(seed=1), broken), edit_row(request(seed=2))])
        stored = store.edits([request(seed=seed).key for seed in range(3)])
        assert [stored[request(seed=seed).key].outcome for seed in range(3)] == ["edited", "failed", "edited"]
        assert "cannot be saved" in (stored[request(seed=1).key].message or "")


@pytest.mark.parametrize("statement", ["UPDATE edit SET seed = 9", "DELETE FROM edit", "DELETE FROM judgement"])
def test_rows_cannot_be_changed_or_removed(tmp_path: Path, statement: str):
    with Store.writing(tmp_path) as store:
        store.add([edit_row(request())])
        store.add([assessment_row(request().key)])
        with pytest.raises(sqlite3.IntegrityError, match="append-only"):
            store.query(statement)


def test_a_reader_sees_a_consistent_past_while_a_writer_writes(tmp_path: Path):
    with Store.writing(tmp_path) as writer:
        writer.add([edit_row(request())])
        with Store.reading(tmp_path) as reader, writer.transaction():
            writer._connection.execute("INSERT INTO instruction VALUES ('k', 't')")
            assert reader.count_edits() == 1


HOLD = """
import pathlib, sys
from stillme.runs.store import Store
with Store.writing(pathlib.Path(sys.argv[1])):
    print("held", flush=True)
    sys.stdin.read()
"""


def test_a_second_writer_is_told_who_holds_the_run(tmp_path: Path):
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    with holder:
        assert holder.stdout.readline() == "held\n"
        with pytest.raises(StoreBusy, match=f"process {holder.pid} on "), Store.writing(tmp_path):
            pass
        with Store.reading(tmp_path) as reader:
            assert reader.count_edits() == 0
        holder.kill()
    with Store.writing(tmp_path, wait=10) as store:
        assert store.count_edits() == 0, "a dead holder must not block"


@pytest.mark.parametrize("version", [VERSION - 1, VERSION + 1, 9])
def test_a_run_of_another_version_is_refused(tmp_path: Path, version: int):
    with Store.writing(tmp_path) as store:
        store.query(f"PRAGMA user_version = {version}")
    for opened in (Store.reading, Store.writing):
        with pytest.raises(StoreOfAnotherVersion, match=f"has schema {version}, .* Use the stillme"), opened(tmp_path):
            pass


def test_whoever_sees_a_new_ledger_sees_all_its_tables(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """A reader, or a kill, between the first byte and the last table finds no run, never half a ledger."""
    seen: list[bool] = []

    def watched(connection: sqlite3.Connection) -> None:
        seen.append(Store.exists(tmp_path))
        create_tables(connection)
        seen.append(Store.exists(tmp_path))

    monkeypatch.setattr("stillme.runs.store.ledger.create_tables", watched)
    with Store.writing(tmp_path) as writer, Store.reading(tmp_path) as reader:
        assert writer.count_edits() == reader.count_edits() == 0
    assert seen[:2] == [False, False]
    assert [path.name for path in tmp_path.iterdir() if path.suffix != ".lock"] == ["stillme.sqlite"]


@pytest.mark.parametrize(("content", "said"), [(b"", "is empty"), (b"not a database" * 200, "is damaged")])
def test_an_emptied_or_damaged_ledger_is_no_new_run(tmp_path: Path, content: bytes, said: str):
    with Store.writing(tmp_path) as store:
        store.add([edit_row(request())])
    (tmp_path / "stillme.sqlite").write_bytes(content)
    for opened in (Store.reading, Store.writing):
        with pytest.raises(StoreDamaged, match=rf"stillme\.sqlite {said}"), opened(tmp_path):
            pass


def test_the_last_configuration_is_remembered(tmp_path: Path):
    with Store.writing(tmp_path) as store:
        store.record_audit("h1", {"title": "one"})
        store.record_audit("h1", {"title": "one"})
        store.record_audit("h2", {"title": "two"})
        latest = store.latest_audit()
        assert (latest.hash, latest.resolved) == ("h2", {"title": "two"})
        assert [json.loads(row[0])["title"] for row in store.query("SELECT resolved FROM audit")] == ["one", "two"]


def test_only_the_latest_of_several_failed_assessments_is_read(tmp_path: Path):
    def said(score: float) -> Assessment:
        failed = Failed(error="503", retryable=True)
        return Assessment(ratings={"skin_tone": Rated(score=score), "race_change": failed})

    with Store.writing(tmp_path) as store:
        row = assessment_row("e", said(1))
        store.add([row])
        store.add([assessment_row("e", said(5))])
        scores = {axis: score for _, axis, _, score in store.judgements([row.key])}
        assert scores == {"skin_tone": 5.0, "race_change": None}
        assert len(list(store.judgements([row.key]))) == 2


def test_an_unknown_price_is_never_zero(tmp_path: Path):
    with Store.writing(tmp_path) as store:
        store.add([edit_row(request(), Edited(image=b"", effective={"cost": "unknown"}))])
        assert (store.totals().unpriced, store.totals().cost_text) == (1, "unknown")
        store.add([edit_row(request(seed=1), Edited(image=b"", cost=2.0))])
        assert store.totals().cost_text == "$2.00 and an unknown amount"
        assert [row["cost"] for row in rows_of(store, EDITS)] == [None, 2.0]


def test_totals_count_what_was_added(tmp_path: Path):
    with Store.writing(tmp_path) as store:
        store.add([replace(edit_row(request(seed=seed)), cost=0.5) for seed in range(8)])
        assert store.totals().edits == {"edited": 8}
        store.add([edit_row(request(seed=900), Refused(message="no"))])
        store.add([edit_row(request(seed=901), Failed(error="503", retryable=True))])
        store.add([assessment_row(request().key)])
        second = store.totals()
    assert second.edits == {"edited": 8, "to retry": 1, "refused": 1}
    assert (second.cost, second.seconds) == (8 * 0.5 + 0.25, 11 * 0.5)
    with Store.reading(tmp_path) as store:
        assert store.totals() == second
