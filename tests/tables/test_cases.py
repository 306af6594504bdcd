"""Tables 24 and 25: the worst edits, in the judge's words, and nobody twice before everybody once."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from stillme.estimates import Settings
from stillme.findings.tables.paper.source import CASES, Source, table_24, table_25
from stillme.findings.tables.paper.table import Words
from tests.estimates import worlds


def source() -> Source:
    """Prompt P000 is ignored for everyone; where edits are made, A's race changes completely."""
    crowd = worlds.people("ABC", 2)
    success = np.full((6, 4), 5.0)
    success[:, 0] = np.array([1, 2, 1, 2, 1, 2])
    edits, made = worlds.rows(crowd, success, axis="edit_success")
    race = replace(made, axis="race_change", value=np.where(edits.portrait < 2, 5.0, 1.0))
    return Source(
        edits=edits,
        scores=(made, race),
        settings=Settings(factors=("race",)),
        factor="race",
        factors=("race", "gender"),
        people=frozenset(),
        remarks=lambda keys: {key: {"edit_success": f"nothing changed in {key}"} for key in keys},
    )


def texts(row: object) -> list[str]:
    return [cell.text for cell in getattr(row, "cells", ()) if isinstance(cell, Words)]


def test_ignored_edits_come_worst_first_from_every_group_with_the_judges_words():
    table = table_24(source())
    assert {row.label for row in table.rows} == {"P000"}
    assert len(table.rows) == min(CASES, 6)
    assert {texts(row)[0][0] for row in table.rows[:3]} == {"A", "B", "C"}
    assert [texts(row)[2] for row in table.rows[:1]] == ["Edit Success: 1/5"]
    assert all(texts(row)[3].startswith("nothing changed in") for row in table.rows)


def test_an_edit_that_was_not_made_is_no_stereotype_replacement():
    table = table_25(source())
    assert {texts(row)[0][0] for row in table.rows} == {"A"}
    assert "P000" not in {row.label for row in table.rows}, "ignored edits change nobody"
    assert {texts(row)[2] for row in table.rows} == {"Race Change: 5/5"}


def test_without_a_judge_the_reason_is_given():
    alone = replace(source(), scores=source().scores[1:])
    assert table_24(alone).absent == "no judge of this audit rates Edit Success"
