"""The command line as a user meets it: in a process of its own."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import click
import pytest

from stillme import __version__, audit
from stillme.cli import cli
from stillme.core.errors import StillmeError
from tests.command_lines import invoke
from tests.processes import ran, stillme

Write = Callable[..., Path]


def started(*words: str) -> subprocess.CompletedProcess[str]:
    """A new interpreter, as a shell starts it."""
    return subprocess.run([sys.executable, "-m", "stillme", *words], capture_output=True, text=True, timeout=120)


def test_version_and_help():
    assert started("--version").stdout == f"stillme, version {__version__}\n"
    shown = started("--help")
    assert shown.returncode == 0
    for command in ("demo", "new", "run", "report", "status", "list", "export", "doctor"):
        assert f"\n  {command} " in shown.stdout


def modules_after(code: str, *words: str | Path) -> set[str]:
    command = [sys.executable, "-c", f"import sys\n{code}\nprint(*sys.modules)", *map(str, words)]
    shown = subprocess.run(command, capture_output=True, text=True, check=True)
    return set(shown.stdout.splitlines()[-1].split())


def imported_by(*words: str | Path) -> set[str]:
    command = "from stillme.cli import cli; cli(sys.argv[1:], standalone_mode=False)"
    return modules_after(command, *words) - modules_after("")


def test_a_command_imports_what_it_needs_and_no_more(write_audit: Write):
    # What a command costs before it does anything is its imports, about half a millisecond each.
    folder = write_audit()
    ran("run", folder)
    helping = imported_by("--help")
    assert len(helping) <= 100
    # What keeps `stillme --help` under 0.3 s on any machine: none of these is imported to show it.
    assert not {"numpy", "pydantic", "PIL", "cv2", "onnxruntime", "jinja2", "sqlite3"} & helping
    counting = imported_by("status", folder)
    assert len(counting) <= 330
    rooms = {"stillme.findings.evidence", "stillme.report", "stillme.estimates"}
    assert not {"pydantic", "scipy", "PIL", *rooms} & counting
    for what, most in (("editors", 375), ("prompts", 320), ("portraits", 320)):  # rich draws the table
        listing = imported_by("list", what)
        assert len(listing) <= most
        assert not {"scipy", "stillme.runs", "stillme.runs.store", "numpy", "PIL", "asyncio"} & listing
    writing = imported_by("tables", folder)
    assert len(writing) <= 400
    assert not {"scipy", "PIL", "asyncio", "pydantic", "stillme.report", "stillme.editors"} & writing


def test_the_list_of_commands_says_what_each_says_itself():
    context = click.Context(cli)
    for verb in cli.verbs:
        command = cli.get_command(context, verb.name)
        assert (command.help or "").splitlines()[0] == verb.help
        assert len(verb.help) <= 80 - 13, f"{verb.name}: a line of `--help` has 80 columns"


@pytest.mark.parametrize("group", ["study", "portraits"])
def test_the_help_of_a_group_cuts_no_sentence_off(group: str):
    done = stillme(group, "--help")
    commands = done.stdout.partition("\nCommands:\n")[2].splitlines()
    assert len(commands) >= 5
    assert not [line for line in commands if line.endswith("...")]


def test_working_and_counting_need_no_scipy_before_there_is_something_to_estimate():
    assert "scipy" not in modules_after("import stillme.api.pipeline, stillme.runs.status")


def test_a_mistake_is_one_sentence_without_a_traceback(tmp_path: Path):
    shown = ran("run", tmp_path / "nowhere", code=2)
    assert (
        shown.stderr
        == f"stillme: {tmp_path}/nowhere does not exist. Start an audit there with `stillme new {tmp_path}/nowhere`.\n"
    )


def test_a_run_from_beginning_to_end(write_audit: Write):
    folder = write_audit()
    shown = ran("run", folder, "--json")
    summary = json.loads(shown.stdout)
    assert summary["ended"] == "complete"
    assert Path(summary["report"]).is_file()
    made = {"audit.toml", "resolved.toml", "stillme.sqlite", "images", "tables", "report.html"}
    assert {path.name for path in folder.iterdir()} >= made
    status = json.loads(stillme("status", folder, "--json").stdout)
    assert status["editors"] == [{"name": "noop", "total": 12, "done": 12, "edited": 12}]
    assert status["judges"] == [{"name": "scripted", "total": 12, "done": 12}]
    assert "100%  12 of 12" in stillme("status", folder).stdout


def test_failures_that_a_rerun_would_retry_exit_with_3(write_audit: Write):
    folder = write_audit('use = "flaky"\nparameters = { failures = 9 }', extra="[executor]\nattempts = 1")
    shown = ran("run", folder, "--only", "edit", code=3)
    assert "12 failed; run the same command to try them again." in shown.stdout


def printed(*words: object) -> str:
    """What a command prints, in this process."""
    done = invoke(*words)
    if done.exception:
        raise done.exception
    return done.stdout


def test_a_new_audit_is_commented_and_loads(tmp_path: Path):
    printed("new", tmp_path / "mine")
    text = (tmp_path / "mine" / "audit.toml").read_text()
    assert text.count("#") > 15
    with pytest.raises(StillmeError, match="--force"):
        printed("new", tmp_path / "mine")
    loaded = audit.load(tmp_path / "mine")
    assert [named.name for named in loaded.editors] == ["even-handed", "biased"]


def test_lists_for_programs():
    sets = {entry["name"]: entry for entry in json.loads(printed("list", "portraits", "--json"))}
    assert (sets["synthetic"]["portraits"], sets["synthetic"]["identities"]) == (84, 12)
    assert (sets["synthetic-36"]["portraits"], sets["synthetic-36"]["identities"]) == (252, 36)
    assert [name for name, entry in sets.items() if entry["default"]] == ["synthetic"]
    portraits = json.loads(printed("list", "portraits", "synthetic-36", "--json"))
    assert len(portraits) == 252
    assert all({"id", "sha256", "attributes"} <= entry.keys() for entry in portraits)
    known = {"editors": {"planted", "noop"}, "judges": {"instruments"}, "prompts": {"O-01", "W-50"}}
    for what, at_least in known.items():
        assert at_least <= {entry["name"] for entry in json.loads(printed("list", what, "--json"))}
    with pytest.raises(StillmeError, match=r"Did you mean 'planted'\?"):
        printed("list", "editors", "plantd")


def test_a_list_of_prompts_shows_each_text_once():
    lines = printed("list", "prompts").splitlines()
    texts = [line.rsplit("  ", 1)[1] for line in lines]
    assert len(texts) == len(set(texts)) > 150
    assert any("roles, roles-as-printed" in line for line in lines)


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_scripts(shell: str):
    assert "_STILLME_COMPLETE" in printed("completion", shell)


def test_completion_completes():
    environment = {"_STILLME_COMPLETE": "bash_complete", "COMP_WORDS": "stillme stat", "COMP_CWORD": "1"}
    assert "status" in stillme(environment=environment).stdout


def test_doctor_finds_this_machine_fit(tmp_path: Path):
    shown = stillme("doctor", "--json", cwd=tmp_path, environment={"HF_HUB_OFFLINE": "1"})
    checks = {check["name"]: check for check in json.loads(shown.stdout)}
    core = ("versions", "run folder", "embedded portraits", "face models", "editor planted", "judge instruments")
    assert {name: checks[name]["state"] for name in core} == dict.fromkeys(core, "ok")
    assert checks["editor unready"]["state"] == "lacking"
    # The test plugin registers a broken editor on purpose.
    assert checks["editor broken"]["state"] == "broken"
    assert shown.returncode == 1
    assert list(tmp_path.iterdir()) == [], "it cleans up after itself"


@pytest.mark.parametrize(
    ("words", "said"),
    [(("--bundle", "x.zip", "--model-card"), "--model-card"), (("--model-card", "--rows", "jsonl"), "--rows")],
)
def test_options_of_an_export_that_do_not_go_together_are_named(words: tuple[str, ...], said: str):
    refused = invoke("export", *words)
    assert refused.exit_code == 2
    assert said in refused.output


def test_an_export_holds_every_row(write_audit: Write):
    folder = write_audit('use = "moody"')
    printed("run", folder, "--only", "edit")
    for kind in ("csv", "jsonl"):
        printed("export", folder, "--rows", kind)
        rows = (folder / "export" / f"edits.{kind}").read_text()
        assert len(rows.splitlines()) == 12 + (kind == "csv")
        assert "I would rather not." in rows
    assert "labels, not truth" in (folder / "export" / "codebook.md").read_text()
