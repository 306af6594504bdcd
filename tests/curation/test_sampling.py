from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stillme.core.errors import StillmeError
from stillme.curation.pools import PoolDesign, draw
from stillme.curation.sources import SourceRow

LEVELS = {"race": ("a", "b"), "age": ("20s", "30s", "70+")}


def row(number: int, race: str, age: str) -> SourceRow:
    attributes = {"race": race, "age": age}
    return SourceRow(file=f"{number}.jpg", attributes=attributes, licence="", label_origin="", consent="")


rows_of_any_size = st.lists(
    st.tuples(st.sampled_from("abc"), st.sampled_from(["20s", "30s", "70+", "0-2"])), max_size=60
).map(lambda cells: [row(number, race, age) for number, (race, age) in enumerate(cells)])
designs = st.builds(
    PoolDesign, levels=st.just(LEVELS), pools=st.integers(1, 5), per_cell=st.integers(1, 3), seed=st.integers(0, 9)
)


@given(rows_of_any_size, designs, st.integers(0, 5))
def test_every_cell_of_every_pool_is_full_or_listed_and_holds_each_picture_once(
    rows: list[SourceRow], design: PoolDesign, seed: int
):
    pooled, shortfalls = draw(rows, design)
    assert set(pooled) == set(design.cells)
    short = {shortfall.cell: shortfall for shortfall in shortfalls}
    for cell, pools in pooled.items():
        assert len(pools) == design.pools
        available = sum(design.cell_of(row.attributes) == cell for row in rows)
        for number, pool in enumerate(pools, start=1):
            assert len(pool) == design.per_cell or number in short[cell].empty_pools
            assert len({row.file for row in pool}) == len(pool)
            assert all(tuple(row.attributes.values()) == cell for row in pool)
        assert (cell in short) == (available < design.pools * design.per_cell)
        files = [row.file for pool in pools for row in pool]
        if cell in short:
            assert short[cell].found == available == len(set(files))
        else:
            assert len(set(files)) == len(files), "pools are disjoint wherever there are enough pictures"
    shuffled = list(rows)
    random.Random(seed).shuffle(shuffled)
    assert draw(shuffled, design) == (pooled, shortfalls), "the order of rows does not matter"


@given(rows_of_any_size, st.integers(0, 9))
def test_more_pools_leave_the_first_ones_as_they_were(rows: list[SourceRow], seed: int):
    few = draw(rows, PoolDesign(levels=LEVELS, pools=2, seed=seed))
    many = draw(rows, PoolDesign(levels=LEVELS, pools=5, seed=seed))
    assert all(many[0][cell][:2] == pools for cell, pools in few[0].items())


def test_another_seed_draws_otherwise():
    rows = [row(number, "a", "20s") for number in range(50)]
    first, second = (draw(rows, PoolDesign(levels=LEVELS, pools=3, seed=seed)) for seed in (0, 1))
    assert first[0]["a", "20s"] != second[0]["a", "20s"]


def test_a_large_queue_is_drawn_from_evenly():
    rows = [row(number, "a", "20s") for number in range(40)]
    taken = [draw(rows, PoolDesign(levels=LEVELS, pools=1, seed=seed))[0]["a", "20s"][0][0].file for seed in range(400)]
    counts = [taken.count(row.file) for row in rows]
    assert min(counts) >= 1
    assert max(counts) <= 25


def test_only_rows_that_would_be_taken_are_looked_at():
    rows = [row(number, "a", "20s") for number in range(1000)]
    asked: list[str] = []

    def usable(row: SourceRow) -> bool:
        asked.append(row.file)
        return len(asked) > 2

    pooled, _ = draw(rows, PoolDesign(levels={"race": ("a",)}, pools=3), usable=usable)
    assert len(asked) == 5
    assert asked[:2] not in [[row.file for row in pool] for pool in pooled["a",]]


def test_a_design_needs_something_to_cross():
    with pytest.raises(StillmeError, match="--by ATTRIBUTE"):
        PoolDesign(levels={})
