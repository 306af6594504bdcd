from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from PIL import Image

from stillme import portraits as embedded
from stillme import portraits as room
from stillme.api.pipeline import RunOptions, run_stages
from stillme.core import images
from stillme.core.errors import InvalidPortraits
from stillme.portraits.folder import check, colour_note


def test_columns_become_attributes(portraits: Path):
    (first, *_), table = room.load(portraits), portraits / "portraits.csv"
    terms = ("CC0-1.0", "made up")
    assert (first.id, dict(first.attributes), (first.licence, first.label_origin)) == ("p0", {"group": "a"}, terms)
    table.write_text("file,race,block\np0.png,x,b1\n")
    (only,) = room.load(portraits)
    assert (dict(only.attributes), only.block, only.licence) == ({"race": "x"}, "b1", "not stated")


@pytest.mark.parametrize(
    ("table", "sentence"),
    [
        ("file\nno.png\n", "line 2: 'no.png' cannot be read (No such file or directory)"),
        ("file\n../secret.png\n", "leaves the folder"),
        ("file\n\n", "has no rows"),
        ("file,group\n,a\n", "'file' is empty"),
        ("path\np0.png\n", "has no column 'file'; its columns are path"),
        ("file,id\np0.png,x\np1.png,x\n", "the id 'x' is used twice"),
        ("file\np0.png,extra\n", "more cells than the header"),
        ("file,sha256\np0.png,00\n", "is not the picture that its sha256 names"),
    ],
)
def test_mistakes_in_the_table_are_named(portraits: Path, table: str, sentence: str):
    (portraits.parent / "secret.png").write_bytes(b"x")
    (portraits / "portraits.csv").write_text(table)
    with pytest.raises(InvalidPortraits) as caught:
        room.load(portraits)
    assert sentence in str(caught.value)


def test_a_folder_without_a_table_says_what_to_write(tmp_path: Path):
    with pytest.raises(InvalidPortraits, match="write one with the columns file, licence"):
        room.load(tmp_path)


def test_damaged_pictures_are_named(portraits: Path):
    whole = (portraits / "p1.png").read_bytes()
    (portraits / "p1.png").write_bytes(whole[: len(whole) // 2])
    (problem,) = check(room.load(portraits))
    assert problem.place == "portrait 'p1'"
    assert "damaged or truncated" in problem.message


def test_a_profile_that_cannot_be_read_is_said_and_stops_nothing(portraits: Path, write_audit: Callable[..., Path]):
    assert colour_note(room.load(portraits)) == ""
    for name in ("p0.png", "p1.png"):
        Image.fromarray(images.read_rgb(portraits / name)).save(portraits / name, icc_profile=b"nothing")
    loaded = room.load(portraits)
    assert check(loaded) == []
    note = colour_note(loaded)
    assert "the portrait 'p0' and 1 more (its colour profile cannot be read)" in note
    said: list[str] = []
    run_stages(write_audit(), ("edit",), RunOptions(say=said.append))
    assert said == [note]


def test_the_embedded_set_is_counterfactual_and_readable():
    portraits = embedded.portraits()
    blocks = {portrait.block for portrait in portraits}
    presets = {portrait.attributes["preset"] for portrait in portraits}
    cells = {(portrait.block, portrait.attributes["preset"]) for portrait in portraits}
    assert len(cells) == len(portraits) == len(blocks) * len(presets)
    assert check(portraits) == []
    assert {portrait.licence for portrait in portraits} == {"CC0-1.0"}
    assert all("rendering parameters" in portrait.label_origin for portrait in portraits)


def test_the_larger_set_has_three_identities_in_every_cell_and_begins_with_the_smaller_one():
    larger = embedded.portraits_36()
    assert larger[:84] == embedded.portraits()
    assert len(larger) == len({portrait.id for portrait in larger}) == len({p.image.sha256 for p in larger}) == 252
    blocks: dict[str, list[str]] = {}
    cells: dict[str, set[str]] = {}
    for portrait in larger:
        blocks.setdefault(portrait.block, []).append(portrait.attributes["preset"])
        cells.setdefault(portrait.attributes["cell"], set()).add(portrait.block)
    assert len(blocks) == 36
    assert all(sorted(presets) == list("ABCDEFG") for presets in blocks.values())
    assert {len(identities) for identities in cells.values()} == {3}
    assert check(larger) == []
