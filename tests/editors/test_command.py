"""A program is an editor: its exit code, its picture and its words become an outcome."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from stillme import audit
from stillme.core import images
from stillme.core.errors import InvalidAudit
from stillme.core.protocols import Editor
from stillme.core.types import Arm, Edited, EditOutcome, Failed, ImageFile, Refused, Request
from stillme.editors.own import CommandEditor, EditorCommandParameters
from stillme.plugins.testing import check_plugin
from stillme.portraits import portraits
from tests.pictures import on_its_side
from tests.processes import all_end
from tests.records import asked, must_be

NEGATIVE = """
import sys
from PIL import Image, ImageOps

source, output, instruction, seed = sys.argv[1:5]
ImageOps.invert(Image.open(source)).save(output)
"""
PLACES = ("{source}", "{output}", "{instruction}", "{seed}")


def editor(folder: Path, program: str, *places: str, **settings: Any) -> CommandEditor:
    (folder / "edit.py").write_text(program)
    run = [sys.executable, "edit.py", *(places or PLACES)]
    return CommandEditor(EditorCommandParameters(run=run, **settings).with_base(folder))


def request(editor: Editor, *, people: int = 1, instruction: str = "Make it grey.") -> Request:
    return asked(editor, *portraits()[:people], instruction=instruction, seed=7)


def outcome(editor: CommandEditor, **what: Any) -> EditOutcome:
    return next(editor.edit([request(editor, **what)]))


def failure(editor: CommandEditor, **what: Any) -> Failed:
    return must_be(Failed, outcome(editor, **what))


def test_a_program_conforms(tmp_path: Path):
    run = ["sh", "-c", 'cp "$0" "$1"', *PLACES]
    check_plugin(CommandEditor, portraits()[:2], {"run": run, "seed": "exact", "concurrency": 2})
    assert isinstance(editor(tmp_path, NEGATIVE), Editor)


def test_a_picture_and_exit_code_0_are_an_edit(tmp_path: Path):
    edited = must_be(Edited, outcome(editor(tmp_path, NEGATIVE, price=0.25)))
    source = images.read_rgb(portraits()[0].image.path)
    assert np.array_equal(images.read_rgb(edited.image), 255 - source)
    assert edited.effective == {"size": [source.shape[1], source.shape[0]]}
    assert edited.cost == 0.25


def test_text_is_split_before_it_is_filled_and_no_shell_reads_it(tmp_path: Path):
    (tmp_path / "edit.py").write_text(NEGATIVE + "open('words.txt', 'w').write(instruction)")
    run = f"{sys.executable} edit.py {{source}} {{output}} '{{instruction}}' {{seed}}"
    command = CommandEditor(EditorCommandParameters.model_validate({"run": run}).with_base(tmp_path))
    words = 'Don\'t; touch hacked.txt $(touch hacked.txt) {seed} "é"'
    assert isinstance(outcome(command, instruction=words), Edited)
    assert (tmp_path / "words.txt").read_text() == words
    assert not (tmp_path / "hacked.txt").exists()


def test_it_is_not_told_who_is_in_the_picture(tmp_path: Path):
    """A file's name, the portrait's id and the arm may name a group."""
    told = tmp_path / "told.json"
    command = editor(tmp_path, f"{NEGATIVE}\nimport json\njson.dump(sys.argv[1:], open('told.json', 'w'))")
    file = tmp_path / "black_woman_3.png"
    Image.open(portraits()[0].image.path).save(file)
    who = replace(portraits()[0], id="black_woman_3", image=ImageFile.of(file), attributes={"race": "black"})
    list(command.edit([replace(request(command), portraits=(who,), arm=Arm.FEATURE)]))
    source, output, instruction, seed = json.loads(told.read_text())
    told_of = [Path(source).name, Path(output).name, instruction, seed]
    assert told_of == ["source.png", "output.png", "Make it grey.", "7"]
    assert not Path(source).parent.exists(), "nothing is left behind"


def test_a_picture_that_exif_turns_is_handed_over_upright(tmp_path: Path):
    command = editor(tmp_path, NEGATIVE)
    who = replace(portraits()[0], image=on_its_side(tmp_path))
    (edited,) = command.edit([replace(request(command), portraits=(who,))])
    assert edited.effective == {"size": [4, 8]}


def test_two_portraits_need_a_second_place(tmp_path: Path):
    assert "add {source2}" in failure(editor(tmp_path, NEGATIVE), people=2).error
    both = "import sys; from PIL import Image; Image.open(sys.argv[2]).save(sys.argv[3])"
    command = editor(tmp_path, both, "{source}", "{source2}", "{output}", "{instruction}")
    assert command.capabilities.inputs == 2
    edited = must_be(Edited, outcome(command, people=2))
    assert np.array_equal(images.read_rgb(edited.image), images.read_rgb(portraits()[1].image.path))


# -- what goes wrong --------------------------------------------------------------------------------------------------


def test_a_line_on_standard_output_is_a_refusal(tmp_path: Path):
    command = editor(tmp_path, "print('loading …'); print('stillme: refused: I would rather not.')", price=0.5)
    assert outcome(command) == Refused(message="I would rather not.", cost=0.5)


HALF = NEGATIVE + "data = open(output, 'rb').read(); open(output, 'wb').write(data[: len(data) // 2])"


@pytest.mark.parametrize(
    ("program", "words", "cost"),
    [
        ("pass", "exit code 0, but there is no file at {output}", 1.0),
        ("import sys; open(sys.argv[2], 'w').write('done')", "wrote to {output} is not a picture", 1.0),
        (HALF, "damaged", 1.0),
        ("import os, signal; os.kill(os.getpid(), signal.SIGSEGV)", "killed by SIGSEGV", 0.0),
        ("import sys; sys.exit('line 1\\nCUDA out of memory')", "exit code 1: line 1 | CUDA out of memory", 0.0),
        ("print('stillme: refused: no'); raise SystemExit(3)", "exit code 3", 0.0),
        # The loop stops a stage whose first calls all fail alike; the folder of a call must not hide it.
        ("import sys; sys.exit(f'cannot read {sys.argv[1]}')", "exit code 1: cannot read source.png", 0.0),
    ],
    ids=["no file", "text", "half a picture", "signal", "exit code", "after a refusal", "equal failures"],
)
def test_without_a_readable_picture_nothing_was_edited(tmp_path: Path, program: str, words: str, cost: float):
    failed = failure(editor(tmp_path, program, price=1.0))
    assert words in failed.error
    assert (failed.retryable, failed.fatal, failed.cost) == (True, False, cost)


def test_a_program_that_is_not_there_ends_the_stage(tmp_path: Path):
    parameters = EditorCommandParameters(run=("./no-such-program", *PLACES)).with_base(tmp_path)
    failed = failure(CommandEditor(parameters))
    assert failed.fatal
    assert "no-such-program cannot be started: No such file or directory" in failed.error


def test_secrets_of_the_environment_are_not_stored(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("MY_API_KEY", "sk-very-secret-1234")
    repeats = "import os, sys; sys.exit('rejected ' + os.environ['MY_API_KEY'])"
    assert failure(editor(tmp_path, repeats)).error == "exit code 1: rejected …"
    says = "import os; print('stillme: refused: not for', os.environ['MY_API_KEY'])"
    assert outcome(editor(tmp_path, says)) == Refused(message="not for …")


# -- processes --------------------------------------------------------------------------------------------------------

FAMILY = """
import os, subprocess, sys, time
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
open("pids.tmp", "w").write(f"{os.getpid()} {child.pid}")
os.replace("pids.tmp", "pids.txt")
time.sleep(60)
"""


def family(folder: Path) -> list[int]:
    """The process numbers of a program and its child, once both run."""
    deadline = time.monotonic() + 20
    while not (folder / "pids.txt").exists():
        assert time.monotonic() < deadline
        time.sleep(0.02)
    return [int(text) for text in (folder / "pids.txt").read_text().split()]


def test_after_the_time_limit_the_whole_family_is_killed(tmp_path: Path):
    failed = failure(editor(tmp_path, FAMILY, timeout=1.5))
    assert failed.retryable
    assert failed.error.startswith("not done after 1.5 s, and killed")
    assert all_end(family(tmp_path))


def test_closing_kills_what_still_runs(tmp_path: Path):
    command = editor(tmp_path, FAMILY)
    call = threading.Thread(target=outcome, args=(command,))
    call.start()
    numbers = family(tmp_path)
    command.close()
    call.join(10)
    assert not call.is_alive()
    assert all_end(numbers)


def test_a_program_dies_with_its_parent(tmp_path: Path):
    (tmp_path / "edit.py").write_text(FAMILY)
    script = f"""
from pathlib import Path
from tests.editors.test_command import CommandEditor, EditorCommandParameters, outcome
run = [{sys.executable!r}, "edit.py", "{{source}}", "{{output}}", "{{instruction}}"]
outcome(CommandEditor(EditorCommandParameters(run=run).with_base(Path({str(tmp_path)!r}))))
"""
    root = str(Path(__file__).parents[2])
    parent = subprocess.Popen(
        [sys.executable, "-c", script],
        cwd=root,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([root, os.environ.get("PYTHONPATH", "")])},
    )
    try:
        numbers = family(tmp_path)
    finally:
        parent.kill()
        parent.wait()
    assert all_end(numbers)


# -- before the first edit --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("run", "words"),
    [
        ("sh -c {source} {output} {instruction} {sead}", "unknown placeholder {sead}. Did you mean 'seed'?"),
        ("sh -c {source} {output} {instruction} {portrait}", "unknown placeholder {portrait}"),
        ("sh -c {output} {instruction}", "`run` has no {source}; add it"),
        ("sh -c {source} {instruction}", "`run` has no {output}"),
        ("sh -c {source} {output}", "`run` has no {instruction}"),
        ("no-such-program {source} {output} {instruction}", "'no-such-program', which is not there"),
        ("edit.sh {source} {output} {instruction}", "is in the folder of audit.toml; write './edit.sh'"),
        ("./edit.sh {source} {output} --prompt={instruction} --style {{plain}}", ""),
    ],
)
def test_a_mistake_in_the_command_line_is_named(tmp_path: Path, run: str, words: str):
    (tmp_path / "edit.sh").write_text("#!/bin/sh\n")
    (tmp_path / "edit.sh").chmod(0o755)
    parameters = EditorCommandParameters.model_validate({"run": run}).with_base(tmp_path)
    named = " ".join(CommandEditor(parameters).problems([], []))
    assert words in named if words else not named


def test_a_mistake_stops_the_audit(write_audit: Callable[..., Path]):
    folder = write_audit('use = "command"\nparameters = { run = "sh {source} {output}" }')
    with pytest.raises(InvalidAudit, match=r"`run` has no \{instruction\}"):
        audit.load(folder)
    with pytest.raises(InvalidAudit, match="cannot be split into arguments"):
        audit.load(write_audit('use = "command"\nparameters = { run = "sh \'{source}" }'))


# -- keys -------------------------------------------------------------------------------------------------------------


def test_the_content_of_its_files_is_part_of_the_key_and_how_it_is_called_is_not(tmp_path: Path):
    here, there = tmp_path / "here", tmp_path / "there"
    here.mkdir()
    there.mkdir()
    first = editor(here, NEGATIVE).spec.key
    assert editor(there, NEGATIVE).spec.key == first, "nor where they are"
    assert editor(here, NEGATIVE, timeout=5, concurrency=2, price=1, seed="exact").spec.key == first
    assert editor(here, NEGATIVE + "# changed").spec.key != first
    assert editor(here, NEGATIVE, *PLACES, "--fast").spec.key != first
    assert editor(here, "1", version="2").spec.key == editor(here, "2", version="2").spec.key
    keys = set()
    for content in ("{}", "[]"):
        (here / "settings.json").write_text(content)
        keys.add(editor(here, NEGATIVE, *PLACES, "--settings=settings.json").spec.key)
    assert len(keys) == 2, "a file in an option counts too"
