from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest

from stillme.core.errors import StillmeError
from stillme.curation.decisions import CurationTally, Log, Outcome, order_for
from stillme.curation.pools import Cell, Pools


class Room:
    """Curators at work: says who does what, and reads what follows."""

    def __init__(self, pools: Pools) -> None:
        self.pools, self.log = pools, Log(pools)
        self.cell: Cell = pools.design.cells[0]
        self.ids = [candidate.id for candidate in pools.cells[self.cell]]

    def choose(self, curator: str, place: int) -> None:
        self.log.append(curator, self.cell, "choose", {"candidate": self.ids[place]})

    @property
    def tally(self) -> CurationTally:
        return CurationTally(self.pools, self.log.actions())

    @property
    def outcome(self) -> Outcome:
        return self.tally.outcomes[self.cell]


@pytest.fixture
def room(pools: Pools) -> Iterator[Room]:
    made = Room(pools)
    yield made
    made.log.close()


def test_one_curator_decides_alone_unless_more_are_needed(room: Room):
    assert room.outcome.state == "open"
    room.choose("Ada", 0)
    assert (room.outcome.state, room.outcome.chosen) == ("agreed", (room.ids[0],))
    room.log.append("stillme", (), "rule", {"curators": 2})
    assert room.outcome.state == "open"
    assert room.tally.curators == ("Ada",)
    room.choose("Bo", 0)
    assert room.outcome.state == "agreed"


def test_a_majority_wins_and_a_tie_is_contested(room: Room):
    room.choose("Ada", 0)
    room.choose("Bo", 1)
    assert (room.outcome.state, room.outcome.chosen) == ("contested", ())
    room.choose("Cy", 1)
    assert (room.outcome.state, room.outcome.chosen) == ("voted", (room.ids[1],))


def test_settling_decides_what_votes_do_not_and_can_be_undone(room: Room):
    room.choose("Ada", 0)
    room.choose("Bo", 1)
    room.log.append("Dee", room.cell, "settle", {"candidates": [room.ids[1]], "note": "sharper"})
    assert (room.outcome.state, room.outcome.chosen, room.outcome.reason) == ("settled", (room.ids[1],), "sharper")
    last = room.tally.last_action("Dee", room.cell)
    room.log.append("Dee", room.cell, "undo", {"action": last.id})
    assert room.outcome.state == "contested"
    room.log.append("Dee", room.cell, "settle", {"candidates": []})
    assert room.outcome.state == "empty"


def test_nobody_fits_is_a_vote_too(room: Room):
    room.log.append("Ada", room.cell, "none", {"note": "all blurred"})
    assert (room.outcome.state, room.outcome.reason) == ("empty", "all blurred")
    room.choose("Bo", 0)
    assert room.outcome.state == "contested"
    room.choose("Ada", 0)
    assert room.outcome.state == "agreed"


def test_a_choice_replaces_the_one_before_and_rejecting_takes_it_back(room: Room):
    room.choose("Ada", 0)
    room.choose("Ada", 1)
    assert room.outcome.chosen == (room.ids[1],)
    room.log.append("Ada", room.cell, "reject", {"candidate": room.ids[1], "reasons": ["focus"], "note": ""})
    opinion = room.tally.opinion("Ada", room.cell)
    assert (opinion.chosen, opinion.rejected) == ([], {room.ids[1]: (("focus",), "")})
    assert room.outcome.state == "open"


def test_undoing_goes_back_step_by_step(room: Room):
    for kind, criterion in (("tick", "focus"), ("tick", "frontal"), ("untick", "focus")):
        room.log.append("Ada", room.cell, kind, {"candidate": room.ids[0], "criterion": criterion})  # type: ignore[arg-type]
    seen: list[set[str]] = []
    while (last := room.tally.last_action("Ada", room.cell)) is not None:
        seen.append(set(room.tally.opinion("Ada", room.cell).ticked.get(room.ids[0], ())))
        room.log.append("Ada", room.cell, "undo", {"action": last.id})
    assert seen == [{"frontal"}, {"focus", "frontal"}, {"focus"}]
    assert room.tally.opinion("Ada", room.cell).ticked == {}


def test_two_per_cell_need_two(pools: Pools):
    two = replace(pools, design=replace(pools.design, per_cell=2))
    room = Room(two)
    room.choose("Ada", 0)
    assert room.outcome.state == "open"
    room.choose("Ada", 1)
    assert room.outcome.chosen == tuple(sorted(room.ids[:2]))
    room.choose("Bo", 1)
    room.choose("Bo", 2)
    assert room.outcome.state == "contested"
    (agreement,) = room.tally.agreement()
    assert (agreement.alike, agreement.expected) == (0.5, pytest.approx(2 / 3))
    room.log.close()


def test_a_cell_without_candidates_is_empty_and_nobody_is_waited_for(pools: Pools):
    levels = {**pools.design.levels, "preset": (*pools.design.levels["preset"], "Z")}
    wider = replace(pools, design=replace(pools.design, levels=levels))
    outcome = CurationTally(wider, ()).outcomes["Z", "feminine"]
    assert (outcome.state, outcome.reason) == ("empty", "no picture was found")


def test_agreement_is_measured_against_chance(room: Room):
    for place, cell in enumerate(room.pools.design.cells):
        ids = [candidate.id for candidate in room.pools.cells[cell]]
        room.log.append("Ada", cell, "choose", {"candidate": ids[0]})
        room.log.append("Bo", cell, "choose", {"candidate": ids[0 if place < 3 else 1]})
    (agreement,) = room.tally.agreement()
    assert (agreement.cells, agreement.alike, agreement.expected) == (4, 0.75, pytest.approx(1 / 3))
    assert agreement.kappa == pytest.approx((0.75 - 1 / 3) / (2 / 3))


def test_another_process_sees_what_was_written(room: Room):
    other = Log(room.pools)
    room.choose("Ada", 0)
    assert [action.curator for action in other.actions()] == ["Ada"]
    other.append("Bo", room.cell, "choose", {"candidate": room.ids[1]})
    assert [action.curator for action in room.log.actions()] == ["Ada", "Bo"]
    other.close()


def test_decisions_on_other_candidates_are_not_mixed_up(room: Room):
    fewer = replace(room.pools, candidates=room.pools.candidates[1:])
    with pytest.raises(StillmeError, match="holds decisions on other candidates"):
        Log(fewer)


def test_a_file_that_is_no_log_is_one_sentence(pools: Pools):
    (pools.folder / "curation.sqlite").write_bytes(b"not a database at all" * 100)
    with pytest.raises(StillmeError, match="file is not a database"):
        Log(pools)


def test_every_curator_has_an_order_of_their_own_that_stays(pools: Pools):
    orders = {name: [order_for(name, cell, pools) for cell in pools.design.cells] for name in ("Ada", "Bo", "Cy")}
    assert orders["Ada"] == [order_for("Ada", cell, pools) for cell in pools.design.cells]
    assert len({str(order) for order in orders.values()}) == 3
    for cell, order in zip(pools.design.cells, orders["Ada"], strict=True):
        assert sorted(order) == sorted(candidate.id for candidate in pools.cells[cell])


def test_the_first_place_on_the_screen_belongs_to_no_pool(pools: Pools):
    """Over many curators, each pool comes first about equally often."""
    firsts = [
        pools.by_id[order_for(f"curator {number}", cell, pools)[0]].pools[0]
        for number in range(100)
        for cell in pools.design.cells
    ]
    counts = [firsts.count(pool) for pool in (1, 2, 3)]
    assert sum(counts) == 400
    assert min(counts) > 90
