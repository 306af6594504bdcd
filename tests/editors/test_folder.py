"""Outputs that are already there."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from stillme import audit
from stillme.api.pipeline import Ended, RunOptions, run_stages
from stillme.core import images
from stillme.core.errors import InvalidAudit
from stillme.core.types import Arm, Edited, Failed, Refused
from stillme.editors.folder import Folder, FolderParameters
from stillme.findings.tables.paper import Chosen, make_tables
from stillme.runs import RecordedRun
from tests.records import must_be, portrait, prompt, request

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
    whose = [portrait(f"p{index}") for index in range(people)]
    return list(editor.problems(whose, [prompt(f"O-0{index}") for index in range(prompts)]))


def test_a_file_is_an_edit_and_says_which_file_it_was(tmp_path: Path):
    put(tmp_path, "p0/O-01_feature_007.png")
    edited = outcome(folder(tmp_path, "{portrait}/{prompt}_{arm}_{seed:03d}.png"), arm=Arm.FEATURE, seed=7)
    assert edited.image == PNG
    assert edited.effective == {
        "file": "p0/O-01_feature_007.png",
        "sha256": hashlib.sha256(PNG).hexdigest(),
        "size": [6, 8],
    }


def test_a_missing_file_is_named_and_stays_missing_until_it_appears(tmp_path: Path):
    editor = folder(tmp_path)
    failed = must_be(Failed, outcome(editor))
    assert str(tmp_path / "p0" / "O-01.png") in failed.error
    # Retryable, or the ledger would hold the failure as final; and at once, as waiting does not make files.
    assert not failed.retryable, "to wait does not help"
    put(tmp_path, "p0/O-01.png")
    assert isinstance(outcome(editor), Edited)


@pytest.mark.parametrize(
    ("pattern", "files", "asked", "words"),
    [
        ("{portrait}/{prompt}.png", {"p0/O-01.png": PNG[:60]}, {}, "damaged"),
        ("{portrait}/{prompt}.png", {"p0/O-01.png": PNG}, {"arm": Arm.PLACEBO}, "has no {arm}"),
        ("{portrait}/{prompt}.png", {"p0/O-01.png": PNG}, {"seed": 1}, "has no {seed}"),
        ("{portrait}/{prompt}.*", {"p0/O-01.webp": PNG, "p0/O-01.jpg": PNG}, {}, "keep one"),
        ("{portrait}.*", {"p0.png": PNG, "p0.PNG": PNG}, {}, "both exist; keep one"),
    ],
)
def test_what_is_not_one_whole_file_of_the_request_is_a_failure(
    tmp_path: Path, pattern: str, files: dict[str, bytes], asked: dict[str, Any], words: str
):
    put(tmp_path, *files)
    for name, data in files.items():
        (tmp_path / name).write_bytes(data)
    failed = must_be(Failed, outcome(folder(tmp_path, pattern), **asked))
    assert not failed.retryable
    assert words in failed.error


def test_two_portraits_in_one_request_are_named_together(tmp_path: Path):
    put(tmp_path, "p0+p1/O-01.png")
    editor = folder(tmp_path)
    both = replace(request(editor=editor.spec), portraits=(portrait("p0"), portrait("p1")))
    assert [type(outcome) for outcome in editor.edit([both])] == [Edited]


@pytest.mark.parametrize("who", ["../secret", "/etc/passwd", "a/../../secret", "..\\secret", "C:\\x"])
def test_no_name_leads_out_of_the_folder(tmp_path: Path, who: str):
    put(tmp_path, "secret/O-01.png")
    editor = folder(tmp_path / "outputs", "{portrait}/{prompt}.png")
    failed = must_be(Failed, outcome(editor, who=who))
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


def test_what_is_not_there_or_would_be_shared_is_named(tmp_path: Path):
    gone = Folder(FolderParameters(manifest=str(tmp_path / "gone.csv")))
    assert "gone.csv does not exist; correct its path" in problems(gone)[0]
    assert "does not exist" in problems(folder(tmp_path / "nowhere"))[0]
    whose = [portrait("a", race="Black"), portrait("b", race="Black")]
    for pattern, words in (
        ("{race}/{prompt}.png", "has no {portrait}, so 2 portraits would share a file"),
        ("{rase}/{prompt}.png", "unknown field 'rase'. Did you mean 'race'?"),
    ):
        assert words in next(folder(tmp_path, pattern).problems(whose, [prompt()]))


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
    assert manifest(tmp_path, "file,portrait,prompt").spec.parameters["manifest"]


@pytest.fixture
def audit_folder(write_audit: Callable[..., Path]) -> Path:
    """An audit of one prompt whose edits are in the folder `outputs` beside it."""
    return write_audit('use = "folder"\n[editors.parameters]\nfolder = "outputs"', prompts='["O-01"]')


def test_a_relative_folder_is_meant_from_the_audit_wherever_that_or_its_run_lies(audit_folder: Path, tmp_path: Path):
    put(audit_folder / "outputs", "p0/O-01.png")
    run_stages(audit_folder, ("edit",), RunOptions(out=tmp_path / "run"))
    put(audit_folder / "outputs", "p1/O-01.png")
    again = run_stages(tmp_path / "run", ("edit",)).tallies[0]
    assert (again.already, again.counts.get("edited")) == (1, 1)
    assert run_stages(audit_folder, ("edit",)).tallies[0].counts["edited"] == 2
    assert run_stages(audit_folder.rename(tmp_path / "moved"), ("edit",)).tallies[0].already == 2


# -- names of researchers ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("pattern", "name"), [("{portrait}.png", "p0.PNG"), ("{portrait}.*", "p0.JPG"), ("{portrait}.*", "p0.webp")]
)
def test_endings_in_capitals_and_open_endings_are_found(tmp_path: Path, pattern: str, name: str):
    put(tmp_path, name)
    editor = folder(tmp_path, pattern, complete=True)
    edited = must_be(Edited, outcome(editor))
    assert edited.effective["file"] == name
    assert problems(editor, people=1, prompts=1) == []


def test_attributes_and_the_number_of_the_prompt_are_fields(tmp_path: Path):
    put(tmp_path, "Black_woman/01.png", "White_man/01.png", "Black_woman/00.png")
    whose = [portrait("a", race="Black", gender="woman"), portrait("b", race="White", gender="man")]
    asked = [prompt("O-07"), prompt("O-01")]
    for field, second in (("index", asked[1]), ("number", asked[0])):
        editor = folder(tmp_path, f"{{race}}_{{gender}}/{{prompt_{field}:02d}}.png", complete=True)
        editor.set_prompts(asked)
        (edited,) = editor.edit([replace(request("b", editor=editor.spec), portraits=(whose[1],), prompt=second)])
        assert edited.effective["file"] == "White_man/01.png"
        if field == "index":
            (sentence,) = editor.problems(whose, asked)
            assert "1 of 4 files are missing (b × O-07); the first would be" in sentence
            assert "White_man/00.png" in sentence


def test_several_seeds_need_a_place_in_the_pattern(write_audit: Any):
    settings = 'use = "folder"\nseeds = [0, 1]\n[editors.parameters]\nfolder = "outputs"\n'
    audit_folder = write_audit(settings, prompts='["O-01"]')
    put(audit_folder / "outputs", "p0/O-01.png")
    with pytest.raises(InvalidAudit, match=r"has no \{seed\}, so there are no files of seed 1; add it"):
        audit.load(audit_folder)
    put(audit_folder / "outputs", "p0/O-01_1.png")
    write_audit(settings + 'pattern = "{portrait}/{prompt}_{seed}.png"', prompts='["O-01"]')
    audit.load(audit_folder)


def test_files_that_nobody_asks_for_are_reported_at_the_start(audit_folder: Path):
    put(audit_folder / "outputs", *(f"p{index}/O-01.png" for index in range(6)), "p9/O-01.png", "old/p0.JPG")
    (audit_folder / "outputs" / "readme.txt").write_text("not a picture")
    said: list[str] = []
    run_stages(audit_folder, ("edit",), RunOptions(say=said.append))
    (note,) = [sentence for sentence in said if "belong to no request" in sentence]
    assert note.startswith("folder: 2 pictures in ")
    assert "(old/p0.JPG, p9/O-01.png); they are not read." in note


# -- a table of edits -------------------------------------------------------------------------------------------------


def manifest(root: Path, *lines: str, **more: object) -> Folder:
    (root / "edits.csv").write_text("\n".join(lines) + "\n")
    return Folder(FolderParameters.model_validate({"manifest": str(root / "edits.csv"), **more}))


def test_a_table_says_what_each_file_shows(tmp_path: Path):
    put(tmp_path, "1.png", "2.png")
    editor = manifest(
        tmp_path,
        "file,portrait,prompt,arm,seed,note,rater",
        "1.png,p0,O-01,,,,me",
        "2.png,p0,O-01,feature,7,second try,me",
    )
    first, second = outcome(editor), outcome(editor, arm=Arm.FEATURE, seed=7)
    assert isinstance(first, Edited)
    assert isinstance(second, Edited)
    assert (first.effective["file"], second.effective["file"]) == ("1.png", "2.png")
    assert second.effective["note"] == "second try"
    assert "note" not in first.effective
    failed = must_be(Failed, outcome(editor, seed=1))
    assert "edits.csv has no row for p0 × O-01, baseline, seed 1" in failed.error


def test_a_refusal_in_the_table_is_a_refusal(tmp_path: Path):
    editor = manifest(tmp_path, "file,portrait,prompt,refused,note", ",p0,O-01,yes,against our policy")
    assert outcome(editor) == Refused(message="against our policy", effective={"row": 2})
    assert editor.capabilities.can_refuse
    with pytest.raises(ValueError, match=r"says that it was refused \(line 2\)"):
        editor.expected_file([portrait("p0")], prompt(), Arm.BASELINE, 0)
    other = manifest(tmp_path, "file,portrait,prompt,refused,note", ",p0,O-01,yes,other")
    assert len({fingerprint(editor), fingerprint(other), ""}) == 3
    assert problems(editor, people=1, prompts=2) == []


def test_a_row_whose_file_is_missing_or_damaged_names_the_file(tmp_path: Path):
    editor = manifest(tmp_path, "file,portrait,prompt", "1.png,p0,O-01", "2.png,p1,O-01", "../3.png,p2,O-01")
    (tmp_path / "2.png").write_bytes(PNG[:60])
    for who, words in (("p0", f"there is no file {tmp_path / '1.png'}"), ("p1", "2.png"), ("p2", "leave the folder")):
        failed = must_be(Failed, outcome(editor, who=who))
        assert words in failed.error


@pytest.mark.parametrize(
    ("lines", "words"),
    [
        (("file,potrait,prompt",), "has no column 'portrait'. Did you mean 'potrait'?"),
        (("file,portrait,prompt", "1.png,p0,O-00", "2.png,p0,O-00"), "name the same edit as another row"),
        (("file,portrait,prompt,arm", "1.png,p0,O-00,control"), "unknown arm; write baseline, feature, placebo, noop"),
        (("file,portrait,prompt,seed", "1.png,p0,O-00,x"), "not a whole number (line 2: 'x')"),
        (("file,portrait,prompt,refused", "1.png,p0,O-00,maybe"), "say neither yes nor no"),
        (("file,portrait,prompt", ",p0,O-00"), "name no file and are not refused"),
        (("file,portrait,prompt", "1.png,,O-00"), "no portrait or prompt"),
        (("file,portrait,prompt", "1.png,p9,O-00"), "4 of 4 files are missing"),
    ],
)
def test_a_mistake_in_the_table_is_named(tmp_path: Path, lines: tuple[str, ...], words: str):
    assert words in " ".join(problems(manifest(tmp_path, *lines)))


def test_a_pattern_beside_a_table_is_refused(tmp_path: Path):
    with pytest.raises(ValueError, match="remove one of them"):
        manifest(tmp_path, "file,portrait,prompt", pattern="{portrait}.png")
    with pytest.raises(ValueError, match="give `folder`, or `manifest`"):
        FolderParameters()


def test_a_whole_audit_reads_a_table(write_audit: Any):
    audit_folder = write_audit('use = "folder"\n[editors.parameters]\nmanifest = "made/edits.csv"', prompts='["O-01"]')
    put(audit_folder / "made", *(f"{index}.png" for index in range(5)))
    rows = [*(f"{index}.png,p{index},O-01,no," for index in range(5)), ",p5,O-01,yes,no faces"]
    manifest(audit_folder / "made", "file,portrait,prompt,refused,note", *rows)
    assert run_stages(audit_folder, ("edit",)).tallies[0].counts == {"edited": 5, "refused": 1}


def test_missing_files_are_counted_once_and_the_rest_is_judged_and_reported(
    write_audit: Callable[..., Path], portraits: Path, tmp_path: Path
):
    numbers = [f"{kind}-{number:02d}" for kind in "OV" for number in range(1, 11)]
    people = sorted(file.stem for file in portraits.glob("*.png"))
    put(tmp_path / "outputs", *(f"{who}/O-01.png" for who in people))
    # With sixty pictures to look for and six that are there, the breaker opened and the run ended in a traceback.
    editor = f'use = "folder"\n[editors.parameters]\nfolder = "{tmp_path / "outputs"}"'
    folder = write_audit(editor, prompts=json.dumps(numbers))
    said: list[str] = []
    summary = run_stages(folder, ("edit", "judge", "estimate", "report"), RunOptions(say=said.append))
    missing = len(people) * (len(numbers) - 1)
    assert summary.tallies[0].counts == {"edited": len(people), "failed": missing}
    assert summary.tallies[0].retried == 0
    assert summary.ended is Ended.COMPLETE
    assert summary.report is not None
    assert summary.totals.to_retry == missing
    found = "6 of 120 files found; missing: O-02 (6), O-03 (6), O-04 (6), O-05 (6), O-06 (6) and 14 more"
    assert found in "".join(said)
    assert "nothing has worked" not in "".join(said)
    put(tmp_path / "outputs", f"{people[0]}/O-02.png")
    assert run_stages(folder, ("edit",)).tallies[0].counts == {"edited": 1, "failed": missing - 1}


def test_the_papers_role_audit_runs_from_its_100_files(tmp_path: Path, portraits: Path):
    """Two editors, 50 sentences, each with two people: files are named `a+b`, and no other pair is looked for."""
    head = "file,licence,label_origin,gender\n"
    rows = [f"p{index}.png,CC0-1.0,made up,{'Male' if index % 2 else 'Female'}\n" for index in range(6)]
    (portraits / "portraits.csv").write_text(head + "".join(rows))
    editors = "".join(
        f'[[editors]]\nuse = "folder"\nname = "{name}"\n[editors.parameters]\nfolder = "{name}"\ncomplete = true\n'
        f'pattern = "{{portrait}}_{{prompt}}.png"\n'
        for name in ("flux", "qwen")
    )
    (tmp_path / "audit.toml").write_text(
        f'[portraits]\nsource = "{portraits}"\n[prompts]\nsets = ["roles"]\n'
        f'[roles]\ngender = "gender"\nmale = "Male"\nfemale = "Female"\n{editors}'
        '[[judges]]\nuse = "scripted"\n[judges.parameters]\nscores = { role_target = 1 }\n'
        '[estimates]\nfactors = ["gender"]\n'
    )
    for name in ("flux", "qwen"):
        (tmp_path / name).mkdir()
    with pytest.raises(InvalidAudit, match=r"50 of 50 files are missing \(p\d\+p\d × W-01,"):
        audit.load(tmp_path)
    wanted = audit.load(tmp_path, ready=False)
    for named in wanted.editors:
        for each in wanted.requests(named):
            assert isinstance(named.editor, Folder)
            put(tmp_path, str(named.editor.expected_file(each.portraits, each.prompt, each.arm, each.seed)))
    missing = next((tmp_path / "qwen").iterdir())
    missing.rename(tmp_path / "aside.png")
    with pytest.raises(InvalidAudit, match="1 of 50 files are missing"):
        audit.load(tmp_path)
    (tmp_path / "aside.png").rename(missing)
    summary = run_stages(tmp_path, ("edit", "judge"))
    assert summary.ended is Ended.COMPLETE
    with RecordedRun.open(tmp_path) as run:
        (table,) = make_tables(run, Chosen(numbers=(7,)))
    assert [row.label for row in table.rows] == ["flux", "qwen"]
    assert "50 sentences" in "".join(table.notes)
