"""Many processes without a cluster: the union of shards is the whole."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stillme.api.pipeline import RunOptions, run_stages
from stillme.core.errors import StillmeError
from stillme.runs.store import Store
from stillme.runs.store.merging import merge
from stillme.work.shards import Shard, parse_shard

ALL = ("edit", "judge", "estimate", "report")


EDITOR = "use = 'negative'\nseeds = [1, 2, 3]"
HERE = "[executor]\nisolate = false"
Write = Callable[..., Path]


def tables(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in (folder / "tables").rglob("*.csv")}


def test_the_union_of_shards_gives_the_tables_of_the_whole_byte_for_byte(tmp_path: Path, write_audit: Write):
    folder = write_audit(EDITOR, extra=HERE)
    whole = run_stages(folder, ALL, RunOptions(out=tmp_path / "whole"))
    shards = [run_stages(folder, ALL, RunOptions(shard=Shard(number=n, count=3))) for n in (1, 2, 3)]
    assert sum(tally.done for shard in shards for tally in shard.tallies) == sum(t.done for t in whole.tallies)
    assert all(0 < shard.tallies[0].done < whole.tallies[0].done for shard in shards)
    merged = merge([shard.folder for shard in shards], tmp_path / "union")
    assert (merged.added["edit"], merged.conflicts, merged.lost_pictures) == (36, [], [])
    assert merge([shard.folder for shard in reversed(shards)], tmp_path / "union").added == {}, "twice adds nothing"
    run_stages(tmp_path / "union", ("estimate", "report"))
    assert tables(tmp_path / "union") == tables(tmp_path / "whole")
    again = run_stages(tmp_path / "union", ALL)
    assert sum(tally.done for tally in again.tallies) == 0, "a run goes on where the shards were"


def test_different_results_for_the_same_work_are_named_and_the_first_counts(tmp_path: Path, write_audit: Write):
    folder = write_audit(EDITOR, extra=HERE)
    for name in ("a", "b"):
        run_stages(folder, ("edit",), RunOptions(out=tmp_path / name))
    with Store.writing(tmp_path / "b") as store:
        (key, image) = store.query("SELECT key, image FROM edit ORDER BY id LIMIT 1").fetchone()
        other = store.pictures.add(b"other bytes")
        store.execute("DROP TRIGGER edit_refuses_update")
        store.execute("UPDATE edit SET image = ? WHERE key = ?", (other, key))
    merged = merge([tmp_path / "a", tmp_path / "b"], tmp_path / "c")
    (conflict,) = merged.conflicts
    assert key in conflict
    assert image in conflict
    assert other in conflict
    with Store.reading(tmp_path / "c") as store:
        assert store.edits([key])[key].image == image
        assert store.attempts.count("nondeterministic") == {"nondeterministic": 1}


def test_runs_of_different_audits_are_not_merged(tmp_path: Path, write_audit: Write):
    for name, prompts in (("one", '["O-01"]'), ("two", '["O-02"]')):
        run_stages(write_audit(prompts=prompts), ("edit",), RunOptions(out=tmp_path / name))
    with pytest.raises(StillmeError, match="asks something else"):
        merge([tmp_path / "one", tmp_path / "two"], tmp_path / "both")


@pytest.mark.parametrize("text", ["0/4", "5/4", "1", "a/b", "1/0"])
def test_what_is_no_shard_is_said(text: str):
    with pytest.raises(StillmeError, match="1/4 for the first of four"):
        parse_shard(text)


@given(st.lists(st.text("0123456789abcdef", min_size=32, max_size=32)), st.integers(1, 9))
def test_every_request_is_in_exactly_one_shard(keys: list[str], count: int):
    shards = [Shard(number=number, count=count) for number in range(1, count + 1)]
    assert all(sum(shard.holds(key) for shard in shards) == 1 for key in keys)
