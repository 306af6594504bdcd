"""The table of requests is what a folder of finished edits must hold."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from stillme import audit
from stillme.api.pipeline import run_stages
from stillme.findings.plan import write_requests
from stillme.findings.plan.requests import COLUMNS
from stillme.runs.store import Store
from stillme.work.features import with_features
from tests.command_lines import ran
from tests.records import rows_in

Write = Callable[..., Path]

FOLDER = """use = "folder"
name = "ours"
seeds = [1, 2]
[editors.parameters]
folder = "outputs"
pattern = "{portrait}/{prompt}_{arm}_{seed}.png"
"""
SYNTHETIC = """title = "x"
arms = ["baseline", "feature", "placebo", "noop"]
[portraits]
source = "synthetic"
limit = 2
[prompts]
only = ["O-01"]
[[judges]]
use = "scripted"
"""


def test_files_made_from_the_table_are_a_complete_run(write_audit: Write, tmp_path: Path):
    folder = write_audit(editor=FOLDER)
    file = tmp_path / "requests.csv"
    shown = ran("plan", folder, "--requests", file)
    assert f"Wrote {file}: 24 requests to ours." in shown.stdout
    rows = rows_in(file)
    assert tuple(rows[0]) == COLUMNS
    assert len(rows) == 6 * 2 * 2
    for row in rows:
        assert row["instruction"] == row["prompt_text"]
        assert not row["note"]
        made = Path(row["file"])
        made.parent.mkdir(parents=True, exist_ok=True)
        made.write_bytes(Path(row["source"]).read_bytes())
    summary = run_stages(folder, ("edit",))
    assert summary.tallies[0].counts == {"edited": 24}


def test_instructions_are_those_that_an_editor_would_read(tmp_path: Path):
    file = tmp_path / "audit.toml"
    file.write_text(SYNTHETIC + '[[editors]]\nuse = "noop"\nname = "live"\n')
    run_stages(tmp_path, ("edit",))
    with_folder = tmp_path / "elsewhere"
    with_folder.mkdir()
    (with_folder / "audit.toml").write_text(SYNTHETIC + "[[editors]]\n" + FOLDER.replace("[1, 2]", "[0]"))
    # Nobody has described these portraits; the offline extractor does it for the table.
    written = write_requests(with_folder, tmp_path / "requests.csv")
    assert "no feature sentence" not in written
    loaded = audit.load(tmp_path)
    assert not loaded.features
    with Store.reading(tmp_path) as store:
        described = with_features(loaded, store)
    asked = {
        (request.portraits[0].id, request.prompt.id, request.arm.value): request.instruction
        for request in described.requests(described.editors[0])
    }
    rows = rows_in(tmp_path / "requests.csv")
    assert {(row["portrait"], row["prompt"], row["arm"]): row["instruction"] for row in rows} == asked
    assert len(set(asked.values())) == 1 + 2 + 2 + 1


def test_a_portrait_that_only_a_paid_model_can_describe_is_named(tmp_path: Path):
    folder = tmp_path / "audit"
    folder.mkdir()
    paid = '[mitigation]\nextractors = ["gemini-3-flash"]\n'
    (folder / "audit.toml").write_text(SYNTHETIC + "[[editors]]\n" + FOLDER + paid)
    written = write_requests(folder, tmp_path / "requests.csv")
    assert "2 portraits have no feature sentence yet" in written
    assert "stillme mitigate PORTRAIT --dry-run --extractor gemini-3-flash" in written
    empty = [row for row in rows_in(tmp_path / "requests.csv") if not row["instruction"]]
    assert {row["arm"] for row in empty} == {"feature", "placebo"}
    assert all(row["note"] == f"no feature sentence for {row['portrait']} yet" for row in empty)


def test_a_request_that_the_pattern_has_no_place_for_says_so(write_audit: Write, tmp_path: Path):
    folder = write_audit(editor='use = "folder"\nseeds = [7]\n[editors.parameters]\nfolder = "outputs"')
    write_requests(folder, tmp_path / "requests.csv")
    row = rows_in(tmp_path / "requests.csv")[0]
    assert row["file"] == ""
    assert "has no {seed}" in row["note"]


@pytest.mark.parametrize("editor", ['use = "noop"', 'use = "noop"\n[[editors]]\n' + FOLDER])
def test_only_editors_of_files_are_listed_if_there_is_one(write_audit: Write, tmp_path: Path, editor: str):
    folder = write_audit(editor=editor)
    shown = ran("plan", folder, "--requests", tmp_path / "requests.csv", "--json")
    assert json.loads(shown.stdout)["requests_file"] == str(tmp_path / "requests.csv")
    assert {row["editor"] for row in rows_in(tmp_path / "requests.csv")} == {"ours" if "folder" in editor else "noop"}
