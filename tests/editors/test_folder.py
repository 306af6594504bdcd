"""Outputs that are already there."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from stillme import images
from stillme.editors.folder import Folder, FolderParameters
from stillme.pipeline import Options, run_stages
from stillme.protocols import ChecksRequests
from stillme.types import Arm, Edited, Failed
from tests.records import portrait, prompt, request

PNG = images.encode_png(np.random.default_rng(0).integers(0, 255, (8, 6, 3), dtype=np.uint8))


def folder(root: Path, pattern: str = "{portrait}/{prompt}.png", **more: object) -> Folder:
    return Folder(FolderParameters(folder=str(root), pattern=pattern, **more))


def put(root: Path, *names: str) -> None:
    for name in names:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(PNG)


def outcome(editor: Folder, who: str = "p0", what: str = "O-01", arm: Arm = Arm.BASELINE, seed: int = 0):
    (outcome,) = editor.edit([replace(request(who, what, seed, editor.spec), arm=arm)])
    return outcome


def problems(editor: Folder, people: int = 2, prompts: int = 2) -> list[str]:
    assert isinstance(editor, ChecksRequests)
    whose = [portrait(f"p{index}") for index in range(people)]
    return list(editor.problems(whose, [prompt(f"O-0{index}") for index in range(prompts)]))


def test_a_file_is_an_edit_and_says_which_file_it_was(tmp_path: Path):
    put(tmp_path, "p0/O-01_feature_007.png")
    edited = outcome(folder(tmp_path, "{portrait}/{prompt}_{arm}_{seed:03d}.png"), arm=Arm.FEATURE, seed=7)
    assert isinstance(edited, Edited)
    assert edited.image == PNG
    assert edited.effective == {
        "file": "p0/O-01_feature_007.png",
        "sha256": hashlib.sha256(PNG).hexdigest(),
        "size": [6, 8],
    }


def test_a_missing_file_is_named_and_stays_missing_until_it_appears(tmp_path: Path):
    editor = folder(tmp_path)
    failed = outcome(editor)
    assert isinstance(failed, Failed)
    assert str(tmp_path / "p0" / "O-01.png") in failed.error
    # Retryable, or the ledger would hold the failure as final; and at once, as waiting does not make files.
    assert failed.retryable
    assert failed.retry_after == 0.0
    put(tmp_path, "p0/O-01.png")
    assert isinstance(outcome(editor), Edited)


def test_a_damaged_file_is_missing_too(tmp_path: Path):
    put(tmp_path, "p0/O-01.png")
    (tmp_path / "p0/O-01.png").write_bytes(PNG[:60])
    failed = outcome(folder(tmp_path))
    assert isinstance(failed, Failed)
    assert failed.retryable
    assert "damaged" in failed.error


def test_without_an_arm_in_the_pattern_a_file_is_the_baselines(tmp_path: Path):
    put(tmp_path, "p0/O-01.png")
    failed = outcome(folder(tmp_path), arm=Arm.PLACEBO)
    assert isinstance(failed, Failed)
    assert "has no {arm}" in failed.error


def test_without_a_seed_in_the_pattern_one_file_is_not_two_edits(tmp_path: Path):
    put(tmp_path, "p0/O-01.png")
    failed = outcome(folder(tmp_path), seed=1)
    assert isinstance(failed, Failed)
    assert "has no {seed}" in failed.error


def test_an_open_ending_takes_any_format_but_not_two(tmp_path: Path):
    put(tmp_path, "p0/O-01.webp")
    editor = folder(tmp_path, "{portrait}/{prompt}.*")
    assert isinstance(outcome(editor), Edited)
    put(tmp_path, "p0/O-01.jpg")
    both = outcome(editor)
    assert isinstance(both, Failed)
    assert "keep one" in both.error


def test_two_portraits_in_one_request_are_named_together(tmp_path: Path):
    put(tmp_path, "p0+p1/O-01.png")
    editor = folder(tmp_path)
    both = replace(request(editor=editor.spec), portraits=(portrait("p0"), portrait("p1")))
    assert [type(outcome) for outcome in editor.edit([both])] == [Edited]


@pytest.mark.parametrize("who", ["../secret", "/etc/passwd", "a/../../secret", "..\\secret", "C:\\x"])
def test_no_name_leads_out_of_the_folder(tmp_path: Path, who: str):
    put(tmp_path, "secret/O-01.png")
    editor = folder(tmp_path / "outputs", "{portrait}/{prompt}.png")
    failed = outcome(editor, who=who)
    assert isinstance(failed, Failed)
    assert "leave the folder" in failed.error or "no file" in failed.error
    (tmp_path / "outputs").mkdir()
    assert "leaves the folder" in next(editor.problems([portrait(who)], [prompt()]))


# -- before the first edit --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("pattern", "words"),
    [
        ("{potrait}/{prompt}.png", "unknown field 'potrait'. Did you mean 'portrait'?"),
        ("{portrait}/{prompt}_{}.png", "unknown field ''"),
        ("{portrait.id}/{prompt}.png", "unknown field 'portrait.id'"),
        ("{portrait/{prompt}.png", "is invalid"),
        ("{portrait}/{prompt}_{seed:zz}.png", "is invalid"),
        ("{prompt}.png", "no {portrait}, so 2 portraits would share"),
        ("{portrait}.png", "no {prompt}, so 2 prompts would share"),
    ],
)
def test_a_mistake_in_the_pattern_is_named(tmp_path: Path, pattern: str, words: str):
    assert words in " ".join(problems(folder(tmp_path, pattern)))
    assert isinstance(outcome(folder(tmp_path, pattern)), Failed)


def test_a_folder_that_is_not_there_is_named(tmp_path: Path):
    assert "does not exist" in problems(folder(tmp_path / "nowhere"))[0]


def test_an_audit_without_a_single_file_does_not_start(tmp_path: Path):
    put(tmp_path, "somebody/else.png")
    (sentence,) = problems(folder(tmp_path))
    assert "4 of 4 files are missing (p0 × O-00, p0 × O-01, p1 × O-00 and 1 more)" in sentence
    assert str(tmp_path / "p0" / "O-00.png") in sentence


def test_some_missing_files_stop_only_an_audit_that_must_be_complete(tmp_path: Path):
    put(tmp_path, "p0/O-00.png", "p1/O-01.png")
    assert problems(folder(tmp_path)) == []
    (sentence,) = problems(folder(tmp_path, complete=True))
    assert "2 of 4 files are missing (p0 × O-01, p1 × O-00)" in sentence


def test_files_of_any_arm_and_seed_count_as_there(tmp_path: Path):
    pattern = "{arm}_{seed}/{portrait}_{prompt}.*"
    put(tmp_path, "feature_3/p0_O-00.jpg", "baseline_-1/p1_O-00.png", "baseline_0/p2_O-00.gif")
    assert problems(folder(tmp_path, pattern, complete=True), people=2, prompts=1) == []
    assert problems(folder(tmp_path, pattern, complete=True), people=3, prompts=1) != []


def test_ids_that_begin_alike_are_told_apart(tmp_path: Path):
    put(tmp_path, "a_b_O-01.png")
    editor = folder(tmp_path, "{portrait}_{prompt}.png", complete=True)
    assert list(editor.problems([portrait("a_b")], [prompt("O-01")])) == []
    assert "1 of 2" in next(editor.problems([portrait("a"), portrait("a_b")], [prompt("O-01")]))


# -- keys -------------------------------------------------------------------------------------------------------------


def fingerprint(editor: Folder) -> str:
    return editor.fingerprint([portrait("p0")], prompt(), Arm.BASELINE, 0)


def test_a_changed_file_changes_its_own_fingerprint_only(tmp_path: Path):
    editor = folder(tmp_path)
    assert fingerprint(editor) == ""
    put(tmp_path, "p0/O-01.png")
    first = fingerprint(editor)
    assert first == hashlib.sha256(PNG).hexdigest()
    put(tmp_path, "p1/O-01.png")
    assert fingerprint(editor) == first
    (tmp_path / "p0/O-01.png").write_bytes(images.encode_png(np.zeros((4, 4, 3), dtype=np.uint8)))
    assert fingerprint(editor) not in ("", first)


def test_whether_it_must_be_complete_is_no_part_of_the_key(tmp_path: Path):
    assert folder(tmp_path, complete=True).spec.key == folder(tmp_path).spec.key
    assert folder(tmp_path, "{portrait}_{prompt}.png").spec.key != folder(tmp_path).spec.key


def test_a_relative_folder_is_meant_from_the_audit_and_moves_with_it(write_audit: Any, tmp_path: Path):
    audit_folder = write_audit('use = "folder"\n[editors.parameters]\nfolder = "outputs"', prompts='["O-01"]')
    for index in range(6):
        (audit_folder / "outputs" / f"p{index}").mkdir(parents=True)
        picture = np.full((8, 8, 3), index, dtype=np.uint8)
        (audit_folder / "outputs" / f"p{index}" / "O-01.png").write_bytes(images.encode_png(picture))
    before = run_stages(audit_folder, ("edit",), Options())
    assert before.tallies[0].counts == {"edited": 6}
    moved = audit_folder.rename(tmp_path / "elsewhere")
    assert run_stages(moved, ("edit",), Options()).tallies[0].already == 6


def test_a_run_kept_elsewhere_still_finds_the_files(write_audit: Any, tmp_path: Path):
    audit_folder = write_audit('use = "folder"\n[editors.parameters]\nfolder = "outputs"', prompts='["O-01"]')
    (audit_folder / "outputs" / "p0").mkdir(parents=True)
    picture = images.encode_png(np.zeros((8, 8, 3), dtype=np.uint8))
    (audit_folder / "outputs" / "p0" / "O-01.png").write_bytes(picture)
    run_stages(audit_folder, ("edit",), Options(out=tmp_path / "run"))
    (audit_folder / "outputs" / "p1").mkdir()
    (audit_folder / "outputs" / "p1" / "O-01.png").write_bytes(picture)
    again = run_stages(tmp_path / "run", ("edit",), Options())
    assert (again.tallies[0].already, again.tallies[0].counts.get("edited")) == (1, 1)
