from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from stillme import audit as audits
from stillme import portraits as room
from stillme.core.errors import InvalidPortraits, StillmeError
from stillme.core.images import read_rgb
from stillme.curation import versions
from stillme.curation.decisions import Log
from stillme.curation.making import finalize, import_portraits
from stillme.curation.measuring import load_criteria
from stillme.curation.pools import Pools
from stillme.curation.versions import WrittenVersion, make_square, slug, verify
from tests.curation.conftest import RENDERS, picture, write_table

PART: dict[str, Any] = {"crop": "face", "partial": True}


@pytest.fixture
def decide(pools: Pools) -> Callable[..., None]:
    """Two curators who choose the candidate of that place in every cell, or in some cells."""

    def decide(place: int = 0, *, cells: int = 4) -> None:
        log = Log(pools)
        for cell in pools.design.cells[:cells]:
            chosen = sorted(candidate.id for candidate in pools.cells[cell])[place]
            for curator in ("Ada", "Bo"):
                for criterion in ("frontal", "focus") if curator == "Ada" else ("frontal",):
                    log.append(curator, cell, "tick", {"candidate": chosen, "criterion": criterion})
                log.append(curator, cell, "choose", {"candidate": chosen})
        log.close()

    return decide


def test_what_curators_chose_becomes_a_set_that_an_audit_reads(
    pools: Pools, decide: Callable[..., None], tmp_path: Path
):
    decide()
    home = tmp_path / "set"
    written = finalize(pools.folder, home, crop="face", partial=False)
    assert (written.folder, written.portraits, written.new) == (home / "v1", 4, True)
    portraits = room.load(home / "v1")
    assert {portrait.id for portrait in portraits} == {"a_feminine", "a_masculine", "b_feminine", "b_masculine"}
    assert {tuple(portrait.attributes) for portrait in portraits} == {("preset", "gender_presentation")}
    assert {portrait.licence for portrait in portraits} == {"CC0-1.0"}
    for portrait in portraits:
        with Image.open(portrait.image.path) as made:
            assert (made.size, made.mode, made.info) == ((1024, 1024), "RGB", {})
    (tmp_path / "audit.toml").write_text(
        '[portraits]\nsource = "./set/v1"\n[[editors]]\nuse = "noop"\n[[judges]]\nuse = "scripted"\n'
    )
    loaded = audits.load(tmp_path)
    assert len(loaded.portraits) == 4
    assert set(loaded.factors) == {"preset", "gender_presentation"}
    (checked,) = verify(home)
    assert checked.problems == ()
    # The sums can be checked without us.
    subprocess.run(["sha256sum", "--check", "--strict", "--quiet", "SHA256SUMS"], cwd=home / "v1", check=True)
    sums = (home / "v1" / "SHA256SUMS").read_text().splitlines()
    assert len(sums) == sum(path.is_file() for path in (home / "v1").rglob("*")) - 1
    curation = json.loads((home / "v1" / "manifest.json").read_text())["curation"]
    assert (curation["curators"], curation["outcomes"]) == ({"Ada": 4, "Bo": 4}, {"agreed": 4})
    assert sum(curation["pools"].values()) == 4
    text = (home / "v1" / "CARD.md").read_text()
    titles = {criterion.key: criterion.title for criterion in load_criteria().criteria}
    for key, counts in {"frontal": "4 | 0 | 0", "focus": "0 | 4 | 0", "upright": "0 | 0 | 4"}.items():
        assert f"| {titles[key]} | {counts} |" in text
    assert "Ada and Bo: chose alike in 100% of 4 cells" in text
    assert "rendering parameters" in text
    log = [json.loads(line) for line in (home / "v1" / "curation.jsonl").read_text().splitlines()]
    assert [action["kind"] for action in log[:3]] == ["tick", "tick", "choose"]
    assert f"{len(log)} actions from 20" in text
    page = (home / "v1" / "card.html").read_text()
    assert "What instruments doubt" in page
    assert page.count("<figure>") == 4


def test_the_same_choice_again_writes_nothing_and_another_is_a_new_version(
    pools: Pools, decide: Callable[..., None], tmp_path: Path
):
    home = tmp_path / "set"
    decide(0, cells=1)
    finalize(pools.folder, home, **PART)
    first = {path: path.read_bytes() for path in sorted((home / "v1").rglob("*")) if path.is_file()}
    again = finalize(pools.folder, home, **PART)
    assert (again.new, again.folder) == (False, home / "v1")
    decide(1, cells=1)
    assert finalize(pools.folder, home, **PART).folder == home / "v2"
    assert {path: path.read_bytes() for path in first} == first
    assert [version.problems for version in verify(home)] == [(), ()]


def test_undecided_cells_are_listed_or_left_out_on_request(pools: Pools, decide: Callable[..., None], tmp_path: Path):
    with pytest.raises(StillmeError, match="No one has curated"):
        finalize(pools.folder, tmp_path / "set", crop="face", partial=False)
    decide(cells=1)
    with pytest.raises(StillmeError, match=r"3 of 4 cells are undecided(.|\n)*B, masculine: not decided yet"):
        finalize(pools.folder, tmp_path / "set", crop="face", partial=False)
    assert not (tmp_path / "set").exists()
    written = finalize(pools.folder, tmp_path / "set", **PART)
    assert written.portraits == 1
    assert "- B, masculine: not decided yet" in (written.folder / "CARD.md").read_text()


def test_two_people_finalizing_at_once_get_one_version_and_one_sentence(
    pools: Pools, decide: Callable[..., None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    decide(cells=1)
    inside, go_on = threading.Event(), threading.Event()
    made = versions._finish_all

    def slow(*args: object) -> object:
        inside.set()
        assert go_on.wait(30)
        return made(*args)  # type: ignore[arg-type]

    monkeypatch.setattr(versions, "_finish_all", slow)
    first = threading.Thread(target=finalize, args=(pools.folder, tmp_path / "set"), kwargs=PART)
    first.start()
    assert inside.wait(30)
    try:
        with pytest.raises(StillmeError, match="being finalized by another process"):
            finalize(pools.folder, tmp_path / "set", **PART)
    finally:
        go_on.set()
        first.join()
    assert [path.name for path in (tmp_path / "set").iterdir() if not path.name.startswith(".")] == ["v1"]


def test_a_killed_finalize_leaves_no_version_and_the_next_one_works(
    pools: Pools, decide: Callable[..., None], tmp_path: Path
):
    decide(cells=2)
    home = tmp_path / "set"
    program = (
        "import os, signal, sys\n"
        "from pathlib import Path\n"
        "from stillme.curation.making import finalize\n"
        "def die(done, total):\n"
        "    if done == 1: os.kill(os.getpid(), signal.SIGKILL)\n"
        "finalize(Path(sys.argv[1]), Path(sys.argv[2]), crop='face', partial=True, watch=die)\n"
    )
    ended = subprocess.run([sys.executable, "-c", program, str(pools.folder), str(home)], env=os.environ, timeout=120)
    assert ended.returncode == -9
    assert not (home / "v1").exists()
    assert list(home.glob(".v1.partial/pictures/*.png"))
    assert finalize(pools.folder, home, **PART).folder == home / "v1"
    assert not list(home.glob(".v*.partial"))
    assert verify(home)[0].problems == ()


def test_a_candidate_that_was_changed_is_not_finalized(pools: Pools, decide: Callable[..., None], tmp_path: Path):
    decide()
    for candidate in pools.candidates:
        path = pools.path_of(candidate)
        path.write_bytes(path.read_bytes() + b"\0")
    with pytest.raises(StillmeError, match="SHA-256 differs"):
        finalize(pools.folder, tmp_path / "set", crop="face", partial=False)
    assert [path.name for path in (tmp_path / "set").iterdir()] == [".finalize.lock"]


@pytest.fixture
def own(tmp_path: Path) -> Path:
    """Two renders with any attributes, one of them with everything in its metadata."""
    folder = tmp_path / "own"
    folder.mkdir()
    wide = Image.fromarray(read_rgb(RENDERS / "A_f_33.webp")).crop((0, 100, 768, 668))
    exif = Image.Exif()
    exif[0x010E] = "taken at home"
    wide.save(folder / "one.jpg", quality=95, exif=exif)
    Image.fromarray(read_rgb(RENDERS / "B_m_43.webp")).save(folder / "two.png")
    return folder


def rows(**more: str) -> list[dict[str, str]]:
    return [{"file": name, "hair": hair} | more for name, hair in (("one.jpg", "long"), ("two.png", "short"))]


def imported(own: Path, **changed: Any) -> WrittenVersion:
    """Import them into a set beside their folder."""
    return import_portraits(own, own.parent / "set", **{"table": None, "given": {}, "crop": "face", **changed})


TERMS = {"licence": "own | mine", "label_origin": "self-described", "consent": "signed form"}


def test_pictures_of_ones_own_become_a_set_with_their_terms(own: Path, tmp_path: Path):
    write_table(own / "portraits.csv", rows(**TERMS))
    written = imported(own)
    portraits = {portrait.id: portrait for portrait in room.load(written.folder)}
    assert dict(portraits["one"].attributes) == {"hair": "long"}
    assert (portraits["one"].licence, portraits["one"].label_origin) == ("own | mine", "self-described")
    assert verify(tmp_path / "set")[0].problems == ()
    text = (written.folder / "CARD.md").read_text()
    assert r"| own \| mine | self-described | signed form | 2 |" in text
    assert "no one compared candidates" in text
    assert b"taken at home" not in portraits["one"].image.read()


def test_terms_are_asked_for_and_may_be_said_once(own: Path, tmp_path: Path):
    write_table(own / "portraits.csv", rows(licence="own"))
    with pytest.raises(InvalidPortraits) as caught:
        imported(own)
    assert "has no column 'consent'; say what the person agreed to" in str(caught.value)
    assert "`--label-origin TEXT`" in str(caught.value)
    assert "licence" not in str(caught.value)
    assert not (tmp_path / "set").exists()
    given = {"consent": "public figures", "label_origin": "us"}
    written = imported(own, given=given)
    entries = json.loads((written.folder / "manifest.json").read_text())["portraits"]
    assert {entry["consent"] for entry in entries} == {"public figures"}


@pytest.mark.parametrize(
    ("name", "data", "sentence"),
    [
        ("two.png", b"none", "two.png is not a picture"),
        ("two.png", picture(1, mode="CMYK", kind="JPEG"), "is in CMYK"),
        ("../one.jpg", b"", "leaves the folder"),
    ],
)
def test_every_fault_of_an_import_is_named_and_nothing_is_written(
    own: Path, tmp_path: Path, name: str, data: bytes, sentence: str
):
    if data:
        (own / name).write_bytes(data)
    table = rows(**TERMS)
    table[1]["file"] = name
    write_table(own / "portraits.csv", [*table, {**table[0]}])
    with pytest.raises(InvalidPortraits) as caught:
        imported(own)
    assert sentence in str(caught.value)
    assert "used twice" in str(caught.value)
    assert not (tmp_path / "set").exists()


def test_verify_names_what_was_changed_added_or_lost(own: Path, tmp_path: Path):
    write_table(own / "portraits.csv", rows(**TERMS))
    folder = imported(own, crop="centre").folder
    (folder / "pictures" / "two.png").write_bytes(picture(1, exif=b"Exif\0\0MM\0*\0\0\0\x08\0\0\0\0\0\0"))
    (folder / "notes.txt").write_text("hello")
    (folder / "card.html").unlink()
    said = "\n".join(verify(tmp_path / "set")[0].problems)
    assert "pictures/two.png has changed" in said
    assert "notes.txt was added later" in said
    assert "card.html cannot be read" in said
    assert "is not the picture that its sha256 names" in said
    with pytest.raises(StillmeError, match="holds no finished portraits"):
        verify(own)


def test_a_square_keeps_the_face_and_invents_nothing():
    face = read_rgb(RENDERS / "B_f_33.webp")
    wide = np.concatenate([np.full((768, 900, 3), 90, dtype=np.uint8), face], axis=1)
    by_face, by_middle = make_square(wide, "face"), make_square(wide, "centre")
    assert by_face.box == (pytest.approx(900, abs=20), 0, 768)
    assert by_middle.box == (450, 0, 768)
    assert by_face.rgb.shape == (1024, 1024, 3)
    assert by_face.enlarged == pytest.approx(1024 / 768, abs=0.001)
    plain = make_square(np.full((100, 300, 3), 90, dtype=np.uint8), "face")
    assert (plain.method, plain.box) == ("centre", (100, 0, 100))


@pytest.mark.parametrize(
    ("text", "name"), [("East Asian", "east-asian"), ("70+", "70plus"), ("../x", "x"), ("", "unnamed")]
)
def test_ids_are_safe_file_names(text: str, name: str):
    assert slug(text) == name
