"""What was recorded is what is read: on another machine, after the plugins, inputs and folder have changed."""

from __future__ import annotations

import os
import shutil
import sqlite3
import tempfile
import traceback
from collections.abc import Callable
from pathlib import Path

import pytest

from stillme.api.pipeline import RunOptions, run_stages
from stillme.audit.design import is_edited
from stillme.core import registry
from stillme.judges.given import Scripted
from stillme.runs import RecordedRun
from tests.command_lines import invoke, ran
from tests.runs import fill, group, luck, people, scores, write_audit

ALL = ("edit", "judge", "estimate", "report")
FOLDER_EDITOR = 'use = "folder"\nname = "elsewhere"\nparameters = {{ folder = "{}", pattern = "{{portrait}}.png" }}'

Write = Callable[..., Path]


def tables(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in (folder / "tables").rglob("*.csv")}


def computed_again(folder: Path) -> dict[str, bytes]:
    """The tables after `estimate` and `tables`, which must not depend on anything but the run."""
    shutil.rmtree(folder / "tables", ignore_errors=True)
    ran("run", folder, "--only", "estimate")
    ran("tables", folder, 4)
    return tables(folder)


@pytest.fixture
def finished(tmp_path: Path) -> Path:
    def answer(_editor: str, request: object) -> object:
        return scores(success=1 if luck(request) < (0.6 if group(request) == "b" else 0.1) else 5)

    portraits = people(tmp_path / "people", per_group=4)
    return fill(write_audit(tmp_path / "run", portraits), answer)


def test_plugins_inputs_and_an_audit_toml_that_are_gone_change_no_table_and_no_report(
    finished: Path, monkeypatch: pytest.MonkeyPatch
):
    before = computed_again(finished)
    shutil.rmtree(finished.parent / "people")
    monkeypatch.setattr(registry, "plugins", lambda _kind: {})
    for name in ("audit.toml", "resolved.toml"):
        (finished / name).unlink(missing_ok=True)
    assert computed_again(finished) == before
    assert "100%" in ran("status", finished).output
    ran("report", finished)
    assert "data:image/webp" in (finished / "report.html").read_text()


def test_a_judge_with_another_version_changes_no_table(finished: Path, monkeypatch: pytest.MonkeyPatch):
    before = computed_again(finished)
    rule = ("--rule", "soft_erasure <= 0.9", "--allow-uncalibrated")
    passed = invoke("gate", finished, *rule)
    original = Scripted.__init__

    def upgraded(self: Scripted, parameters: object) -> None:
        original(self, parameters)
        object.__setattr__(self.spec, "version", "2")

    monkeypatch.setattr(Scripted, "__init__", upgraded)
    assert computed_again(finished) == before
    again = invoke("gate", finished, *rule)
    assert (again.exit_code, again.stdout) == (passed.exit_code, passed.stdout)


def test_a_run_that_was_moved_or_copied_reads_the_same(finished: Path, tmp_path: Path):
    before = computed_again(finished)
    moved = tmp_path / "deep" / "elsewhere"
    moved.parent.mkdir()
    shutil.move(finished, moved)
    assert computed_again(moved) == before
    assert computed_again(Path(shutil.copytree(moved, tmp_path / "copy"))) == before


@pytest.mark.skipif(os.name != "posix" or os.getuid() != 0, reason="only root can become somebody else")
@pytest.mark.parametrize("crashed", [False, True])
def test_a_run_that_cannot_be_written_to_is_read(finished: Path, tmp_path: Path, crashed: bool):
    place = tmp_path / "run of somebody else"
    writer = sqlite3.connect(finished / "stillme.sqlite")
    if crashed:
        # As after a crash: the last rows are in the write-ahead log only.
        writer.execute("CREATE TABLE late (x)")
    shutil.copytree(finished, place, ignore=shutil.ignore_patterns("*-shm"))
    writer.close()
    assert ((place / "stillme.sqlite-wal").exists()) == crashed
    with RecordedRun.open(finished) as run:
        expected = run.results.edits.state.sum()
    for path in (*tmp_path.parents, tmp_path):
        if path.stat().st_uid == 0 and str(path).startswith(str(Path(tempfile.gettempdir()))):
            path.chmod(path.stat().st_mode | 0o055)
    for path in (place, *place.rglob("*")):
        path.chmod(0o555 if path.is_dir() else 0o444)
    child = os.fork()
    if child == 0:
        # Everything is imported already: only the run is read as a user who may not write here.
        try:
            os.setegid(65534)
            os.seteuid(65534)
            with RecordedRun.open(place) as run:
                late = run.store.query("SELECT 1 FROM sqlite_master WHERE name = 'late'").fetchone() is not None
                os._exit(0 if run.results.edits.state.sum() == expected and late == crashed else 1)
        except BaseException:
            traceback.print_exc()
            os._exit(2)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_outputs_that_were_moved_after_the_run_change_no_table(write_audit: Write, tmp_path: Path):
    outputs = tmp_path / "outputs"
    folder = write_audit(FOLDER_EDITOR.format(outputs), prompts='["O-01"]')
    shutil.copytree(tmp_path / "portraits", outputs, ignore=lambda _, names: [n for n in names if n.endswith("csv")])
    run_stages(folder, ALL)
    before = tables(folder)
    shutil.move(outputs, tmp_path / "away")
    assert "100%" in ran("status", folder).output
    said: list[str] = []
    run_stages(folder, ("estimate",), RunOptions(say=said.append))
    assert tables(folder) == before
    assert "Files of finished edits changed since this run was recorded" in said[0]
    assert "The recorded configuration is used" in said[0]


def test_what_changes_no_row_is_taken_over_by_estimate(finished: Path):
    run_stages(finished, ("estimate",))
    assert not is_edited(finished)
    file = finished / "audit.toml"
    file.write_text(file.read_text().replace("factors = ['group']", "factors = ['group']\nconfidence = 0.8"))
    with RecordedRun.open(finished) as run:
        assert run.settings.confidence == 0.95
    assert "audit.toml was changed after this run was recorded" in ran("tables", finished, "4").stderr
    run_stages(finished, ("estimate",))
    with RecordedRun.open(finished) as run:
        assert run.settings.confidence == 0.8
    assert not is_edited(finished)


def test_an_audit_that_was_never_run_says_so(tmp_path: Path):
    folder = write_audit(tmp_path / "run", people(tmp_path / "people"))
    for command in ("status", "tables", "gate", "export"):
        assert "has no run yet" in str(invoke(command, folder).exception)
