"""One word sets the templates back to the paper, and the page lists everything that it changes."""

from __future__ import annotations

import itertools
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from stillme import audit
from stillme.audit.experiments import EXPERIMENTS, Experiment, Setup, experiment
from stillme.audit.grid import factors_like_papers, genders_of
from stillme.audit.template import small_audit
from stillme.core import rubric
from stillme.core.errors import InvalidAudit, StillmeError
from stillme.core.paper import published
from stillme.core.types import Portrait
from tests.records import portrait

PAGE = Path(__file__).parents[2] / "docs" / "experiments.md"
RACES = ("White", "Black", "East Asian", "Southeast Asian", "Indian", "Middle Eastern", "Latino")


def fairface_portraits() -> tuple[Portrait, ...]:
    """As FairFace labels them, in its order of columns: age, gender, race."""
    cells = itertools.product(RACES, ("Male", "Female"), ("20s", "30s", "70+"))
    return tuple(
        portrait(f"p{number}", age=age, gender=gender, race=race, service_test=str(number % 2 == 0))
        for number, (race, gender, age) in enumerate(cells)
    )


def settings(text: str) -> set[tuple[str, str]]:
    """Every key of an audit.toml with its value, `judges[].use` for each judge's."""
    return set(_flat(tomllib.loads(text), ""))


def _flat(value: Any, path: str) -> Iterator[tuple[str, str]]:
    if isinstance(value, dict):
        for key, item in value.items():
            yield from _flat(item, f"{path}.{key}" if path else key)
    elif isinstance(value, list) and value and isinstance(value[0], dict):
        for item in value:
            yield from _flat(item, f"{path}[]")
    else:
        yield path, str(value)


def listed(name: str) -> set[tuple[str, str]]:
    """What the page says that `--as paper` sets in this experiment."""
    rows = [line.strip("|").split("|") for line in PAGE.read_text().splitlines() if line.startswith("| ")]
    changed = [row[3] for row in rows if len(row) == 5 and row[4].strip() in ("yes", name)]
    assignments = re.findall(r"`([\w.\[\]]+) = ([^`]+)`", "\n".join(changed))
    return {(key, str(tomllib.loads(f"x = {value}")["x"])) for key, value in assignments}


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_as_paper_changes_what_the_table_lists_and_nothing_else(name: Experiment):
    honest = settings(experiment(name, "x", Setup(run="../one")))
    paper = settings(experiment(name, "x", Setup(run="../one", as_paper=True)))
    assert paper - honest == listed(name)
    replaced = {key for key, _ in honest - paper} - {key for key, _ in paper}
    assert not replaced


def test_the_papers_two_stories_of_its_cases_are_offered_by_name():
    stratified, drifted = (
        tomllib.loads(experiment("mitigation", "x", Setup(run="../one", as_paper=True, cases=cases)))["sample"]
        for cases in ("stratified", "drifted")
    )
    assert stratified == {"size": 500, "seed": 0}
    assert drifted == {"cells": "cells.csv", "by": "drift"}


def test_as_paper_counts_races_as_the_papers_figure_does():
    """3, the rubric's own: with 2 and Eq. 3's whole scores the paper's means of Table 4 could not be."""
    data = tomllib.loads(experiment("diagnosis", "x", Setup(as_paper=True)))
    assert data["estimates"].get("race_cut", rubric.load().rates["race_changed"].at_least) == 3
    means = {n.editor: n.value for n in published() if (n.place, n.quantity) == ("Table 4", "race_change")}
    rates = {n.editor: n.value for n in published() if (n.place, n.quantity) == ("Table 19", "race_changed")}
    assert len(means) == 3
    for editor, mean in means.items():
        assert 1 + 4 * rates[editor] < mean, "a cut at 2 would leave everyone else at 1"


def test_the_table_lists_every_kind_of_departure():
    text = PAGE.read_text()
    rows = [line for line in text.splitlines() if line.startswith("| ") and line.count("|") == 6]
    assert len(rows) > 20
    for row in rows[2:]:
        assert re.search(r"`|not offered|none needed", row.split("|")[4] + row.split("|")[3]), row


@pytest.mark.parametrize("as_paper", [False, True])
@pytest.mark.parametrize("name", EXPERIMENTS)
def test_seeds_and_size_are_the_papers_either_way(tmp_path: Path, name: Experiment, as_paper: bool):
    (tmp_path / "audit.toml").write_text(experiment(name, "x", Setup(as_paper=as_paper)))
    (tmp_path / "cells.csv").write_text("editor,portrait,prompt\nflux2-dev,A_f_23,O-01\n")
    loaded = audit.load(tmp_path, ready=False)
    seeds = {"flux2-dev": (42,), "qwen-image-edit-2511": (0,), "step1x-edit-v1p2": (42,)}
    assert {named.name: named.seeds for named in loaded.editors}.items() <= seeds.items()
    for named in loaded.editors:
        stated = named.editor.spec.parameters
        assert stated.get("size", [stated.get("size_level")] * 2) == [1024, 1024]


def test_fairface_labels_become_factors_in_the_papers_order():
    people = fairface_portraits()
    assert factors_like_papers(people)[:3] == ["race", "gender", "age"]
    genders = genders_of(people)
    assert (genders.gender, genders.male, genders.female) == ("gender", "Male", "Female")
    data = tomllib.loads(experiment("roles", "x", Setup(source="./set", portraits=people)))
    assert data["portraits"]["source"] == "./set"
    assert data["roles"].items() >= {"gender": "gender", "male": "Male", "female": "Female"}.items()
    assert '# reference = { race = "White" }' in experiment("diagnosis", "x", Setup(portraits=people))


def test_a_crossing_of_two_factors_is_none():
    people = [
        portrait(str(number), race="ab"[number % 2], sex="mf"[number // 2 % 2], cell="abcd"[number % 4])
        for number in range(8)
    ]
    assert factors_like_papers(people) == ["race", "sex"]


def test_portraits_without_genders_cannot_play_roles():
    people = tuple(portrait(one.id, race=one.attributes["race"]) for one in fairface_portraits())
    with pytest.raises(StillmeError, match="words for men and women"):
        experiment("roles", "x", Setup(source="./set", portraits=people))


def test_the_small_audit_plants_its_gap_in_a_group_that_the_portraits_have(portraits: Path, tmp_path: Path):
    from stillme.portraits import folder

    (tmp_path / "audit.toml").write_text(small_audit("x", str(portraits), folder.load(portraits)))
    loaded = audit.load(tmp_path)
    assert loaded.factors == ("group",)
    assert loaded.editors[1].editor.spec.parameters["by"] == "group"


def test_a_sample_may_be_a_file_of_cells(write_audit, tmp_path: Path):
    folder = write_audit(extra='[sample]\ncells = "cells.csv"')
    (folder / "cells.csv").write_text("editor,portrait,prompt\nnoop,p1,O-01\nnoop,p2,O-02\n")
    loaded = audit.load(folder)
    assert loaded.request_count(loaded.editors[0]) == 2
    before = loaded.hash
    (folder / "cells.csv").write_text("editor,portrait,prompt\nnoop,p1,O-01\n")
    assert audit.load(folder).hash != before
    (folder / "cells.csv").write_text("editor,portrait,prompt\nnop,p9,O-01\n")
    with pytest.raises(InvalidAudit, match=r"the editor 'nop'. Did you mean 'noop'") as caught:
        audit.load(folder)
    assert "the portrait 'p9'" in str(caught.value)
    (folder / "cells.csv").unlink()
    with pytest.raises(InvalidAudit, match=r"cells.csv cannot be read"):
        audit.load(folder)


@pytest.mark.parametrize("section", ["seed = 1", 'size = 2\ncells = "x.csv"', 'size = 2\nby = "drift"'])
def test_a_sample_is_drawn_or_listed(write_audit, section: str):
    with pytest.raises(
        InvalidAudit, match=r"either `size`, to draw by seed, or `cells`|how listed cells were selected"
    ):
        audit.load(write_audit(extra=f"[sample]\n{section}"))


def test_a_problem_names_the_editor_that_has_it_where_another_could_not_be_built(write_audit):
    folder = write_audit('use = "unready"\n[[editors]]\nuse = "planted"\nparameters = { by = "gruop" }')
    with pytest.raises(InvalidAudit) as caught:
        audit.load(folder)
    assert any("editors[1].parameters: no portrait has the attribute 'gruop'" in str(p) for p in caught.value.problems)
