from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from stillme.core.errors import StillmeError
from stillme.curation.decisions import Log
from stillme.curation.pools import Pools
from tests.command_lines import invoke as stillme
from tests.command_lines import ran
from tests.curation.conftest import picture, write_table


def test_sample_lists_every_cell_it_could_not_fill(fairface: Callable[..., Path], tmp_path: Path):
    options = ("--pools", 3, "--only", "race=White,Black", "--only", "age=70+", "--no-checks")
    shown = ran("portraits", "sample", fairface(), tmp_path / "pools", *options)
    assert "8 candidates in 3 pools over 4 cells" in shown.output
    assert shown.output.count("2 of 3; pools share them") == 4
    assert f"Next: stillme portraits curate {tmp_path / 'pools'}" in shown.output


def test_sample_speaks_json_and_checks_by_default(tmp_path: Path):
    folder = tmp_path / "own"
    folder.mkdir()
    for number in range(3):
        (folder / f"{number}.png").write_bytes(picture(60 * number))
    write_table(folder / "people.csv", [{"file": f"{n}.png", "group": "ab"[n % 2], "licence": "x"} for n in range(3)])
    options = ("--table", "people.csv", "--by", "group", "--pools", 2, "--json")
    sampled = json.loads(stillme("portraits", "sample", folder, tmp_path / "pools", *options).stdout)
    assert sampled["candidates"] == 3
    assert sampled["shortfalls"] == [{"cell": ["b"], "found": 1, "wanted": 2, "empty_pools": []}]
    assert sampled["doubts"]["Identifiable features"] == 3


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (("--by", "rase"), "Unknown attribute 'rase'. Did you mean 'race'?"),
        (("--only", "age=80s"), "Unknown age '80s'"),
        (("--pools", 0), "at least one pool"),
        (("--split", "test"), "no split 'test'"),
    ],
)
def test_mistakes_of_sample_are_one_sentence_and_write_nothing(
    fairface: Callable[..., Path], tmp_path: Path, options: tuple[object, ...], sentence: str
):
    shown = stillme("portraits", "sample", fairface(), tmp_path / "pools", *options)
    assert isinstance(shown.exception, StillmeError)
    assert sentence in str(shown.exception)
    assert not (tmp_path / "pools").exists()


def test_only_must_name_a_value(fairface: Callable[..., Path], tmp_path: Path):
    shown = stillme("portraits", "sample", fairface(), tmp_path, "--only", "age")
    assert "--only takes NAME=VALUE,VALUE" in shown.output


def test_finalize_and_verify_tell_programs_what_they_did(pools: Pools, tmp_path: Path):
    log = Log(pools)
    cell = pools.design.cells[0]
    log.append("Ada", cell, "choose", {"candidate": pools.cells[cell][0].id})
    log.close()
    shown = stillme("portraits", "finalize", pools.folder, tmp_path / "set", "--partial", "--json")
    assert json.loads(shown.stdout) == {"folder": str(tmp_path / "set" / "v1"), "portraits": 1, "new": True}
    again = stillme("portraits", "finalize", pools.folder, tmp_path / "set", "--partial")
    assert "already is this set; nothing was written" in again.output
    ran("portraits", "verify", tmp_path / "set")
    (tmp_path / "set" / "v1" / "CARD.md").write_text("other")
    shown = ran("portraits", "verify", tmp_path / "set", "--json", code=1)
    assert json.loads(shown.stdout)[0]["problems"] == ["CARD.md has changed since it was written."]


def test_curating_needs_pools(tmp_path: Path):
    shown = stillme("portraits", "curate", tmp_path, "--no-browser")
    assert isinstance(shown.exception, StillmeError)
    assert "holds no candidate pools" in str(shown.exception)
