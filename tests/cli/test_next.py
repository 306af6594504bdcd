"""Every command ends with the next one to type, and that one exists."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import click
import pytest

from stillme.cli.options import command_line
from tests.command_lines import commands, invoke, parse

Write = Callable[..., Path]

WITHOUT = {
    "completion": "its output is run by a shell",
    "schema": "its output is a file for a text editor",
    "serve": "runs until it is interrupted",
}


def next_of(*words: object) -> list[str]:
    shown = invoke(*words)
    assert not isinstance(shown.exception, Exception), shown.exception
    lines = [line.removeprefix("Next: ") for line in shown.stderr.splitlines() if line.startswith("Next: ")]
    for command in lines:
        parse(command)
    return lines


def test_every_command_of_an_audit_names_the_next(write_audit: Write, tmp_path: Path):
    folder = write_audit()
    assert next_of("new", tmp_path / "new") == [f"stillme run {tmp_path / 'new'}"]
    assert next_of("plan", folder) == [f"stillme run {folder}"]
    assert next_of("run", folder, "--only", "edit") == [f"stillme run {folder} --only judge"]
    assert next_of("run", folder, "--only", "judge") == [f"stillme run {folder} --only estimate"]
    assert next_of("run", folder, "--only", "estimate") == [f"stillme report {folder}"]
    for command in ("report", "run", "status"):
        assert next_of(command, folder) == [f"stillme tables {folder}"]
    assert next_of("tables", folder, "4") == [f"stillme tables {folder} --all"]
    sealing = [f"stillme export {folder} --bundle evidence.zip"]
    assert next_of("tables", folder, "contrasts") == sealing
    assert next_of("export", folder) == sealing
    assert next_of("gate", folder, "--rule", "failed >= 0") == sealing
    bundle = tmp_path / "evidence.zip"
    sealed = json.loads(invoke("export", folder, "--bundle", bundle, "--json").stdout)
    assert next_of("verify", bundle, "--root", sealed["root"]) == [f"stillme status {bundle}"]


def test_shards_are_united_when_all_are_there(write_audit: Write):
    folder = write_audit()
    shards = folder / "shards"
    assert next_of("run", folder, "--shard", "2/3") == [f"stillme run {folder} --shard 1/3"]
    assert next_of("run", folder, "--only", "edit", "--shard", "1/3") == [
        f"stillme run {folder} --only edit --shard 3/3"
    ]
    united = " ".join(str(shards / f"{number}-of-3") for number in (1, 2, 3))
    assert next_of("run", folder, "--shard", "3/3") == [f"stillme merge {united} --into {folder}"]


def test_unfinished_work_is_to_be_run_again(write_audit: Write):
    folder = write_audit()
    next_of("run", folder, "--only", "edit")
    assert next_of("status", folder) == [f"stillme run {folder}"]
    assert next_of("gate", folder, "--rule", "failed <= 5%")[0].startswith("stillme ")


def test_the_run_folder_is_part_of_the_next_command(write_audit: Write, tmp_path: Path):
    out = tmp_path / "a run"
    (command,) = next_of("run", write_audit(), "--out", out)
    assert command.endswith(f"--out '{out}'")


def test_json_has_no_next_line(write_audit: Write):
    shown = invoke("run", write_audit(), "--only", "edit", "--json")
    json.loads(shown.stdout)
    assert "Next:" not in shown.stderr


def test_a_stillme_that_is_not_on_the_path_is_named_as_it_was_called(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("PATH", "")
    monkeypatch.setattr("sys.argv", [".venv/bin/stillme", "demo"])
    assert command_line("new", "my audit") == ".venv/bin/stillme new 'my audit'"


@pytest.mark.parametrize(
    ("name", "command"), [(name, command) for name, command in commands() if not isinstance(command, click.Group)]
)
def test_no_command_was_forgotten(name: str, command: click.Command):
    called = set(command.callback.__code__.co_names)
    prints = called & {"print_next", "print_next_bundle", "_work", "_tell", "_print_next_of_gate"}
    assert bool(prints) != (name.removeprefix("stillme ") in WITHOUT)
