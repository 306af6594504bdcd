"""Step1X in a process of its own: the protocol, and everything that a process can do wrong."""

from __future__ import annotations

import io
import struct
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stillme.core import images
from stillme.core.programs.serve import MAGIC, BadFrame, read_frame, write_frame
from stillme.core.types import Edited, Failed
from stillme.editors.diffusion.step1x import Step1X
from stillme.plugins.testing import check_plugin
from tests.editors.diffusion import fake_fork
from tests.editors.diffusion.conftest import Ask, picture
from tests.records import must_be


@pytest.fixture
def start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """Step1X whose worker is a real process with a fake fork of diffusers."""
    monkeypatch.setenv("PYTHONPATH", str(fake_fork.install(tmp_path / "fork")))
    editors: list[Step1X] = []

    def make(**values: Any) -> Step1X:
        values = {"python": sys.executable, "timeout": 20.0, **values}
        editors.append(Step1X(Step1X.Parameters.model_validate(values)))
        return editors[-1]

    yield make
    for editor in editors:
        editor.close()


def test_a_worker_edits(start: Any, ask: Ask) -> None:
    request = ask(seed=7)
    [outcome] = start().edit([request])
    source = images.read_rgb(request.portraits[0].image.path)
    assert (images.read_rgb(outcome.image) == source + 7).all()
    assert outcome.effective["weights"] == {"repo": "stepfun-ai/Step1X-Edit-v1p2", "revision": "commit-of-main"}
    assert outcome.effective["libraries"]["transformers"] == "4.55.0"
    assert outcome.effective["guidance"] == {"cfg": True, "true_cfg_scale": 6.0}
    assert outcome.effective["steps"] == 28
    assert "rewritten_prompt" not in outcome.effective


def test_it_conforms(start: Any, tmp_path: Path) -> None:
    people = [picture(tmp_path / f"p{number}.png", seed=number) for number in range(2)]
    check_plugin(type(start()), people, {"python": sys.executable})


def test_a_rewritten_prompt_is_recorded(start: Any, ask: Ask) -> None:
    editor = start(thinking=True)
    [outcome] = editor.edit([ask()])
    assert outcome.effective["rewritten_prompt"] == "Put a hat on them."
    assert editor.capabilities.rewrites_prompt
    assert editor.spec.key != start().spec.key


def test_what_a_library_prints_does_not_spoil_the_protocol(start: Any, ask: Ask) -> None:
    assert [type(outcome) for outcome in start().edit([ask("print"), ask("print")])] == [Edited, Edited]


def test_a_crash_fails_one_request_and_the_next_gets_a_new_worker_with_the_same_weights(
    start: Any, ask: Ask, monkeypatch: pytest.MonkeyPatch
) -> None:
    editor = start()
    [before] = editor.edit([ask()])
    monkeypatch.setenv("BRANCH_MOVED", "-tomorrow")
    crashed, after = editor.edit([ask("crash"), ask()])
    assert must_be(Failed, crashed).retryable
    assert "killed by SIGKILL" in crashed.error
    assert "Segmentation fault in a kernel" in crashed.error
    assert before.effective["weights"] == must_be(Edited, after).effective["weights"]
    [another] = start().edit([ask()])
    assert another.effective["weights"]["revision"] == "commit-of-main-tomorrow"


def test_a_worker_that_hangs_is_given_up_and_replaced(start: Any, ask: Ask) -> None:
    editor = start(timeout=5.0)
    begun = time.monotonic()
    hung, after = editor.edit([ask("hang"), ask()])
    assert time.monotonic() - begun < 30
    assert must_be(Failed, hung).retryable
    assert "not done after 5 s, and killed" in hung.error
    assert isinstance(after, Edited)


def test_out_of_memory_in_the_worker_says_what_to_do_and_a_rejection_what_was_wrong(start: Any, ask: Ask) -> None:
    memory, rejected, after = start().edit([ask("memory"), ask("reject"), ask()])
    smaller = 'write `offload = "model"` or `offload = "sequential"`'
    assert memory == Failed(error=f"out of memory: one edit does not fit; {smaller}", retryable=False)
    assert rejected == Failed(error="ValueError: the prompt is empty", retryable=False)
    assert isinstance(after, Edited)


def test_weights_that_do_not_load_are_tried_once(start: Any, ask: Ask, tmp_path: Path) -> None:
    (tmp_path / "broken").mkdir()
    first, second = start(repo=str(tmp_path / "broken")).edit([ask(), ask("b")])
    assert "cannot be loaded: OSError" in must_be(Failed, first).error
    assert must_be(Failed, first).fatal
    assert first == second


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ("echo Welcome to conda; exec sleep 60", "violates the protocol: expected a frame and got b'Welcome '"),
        ("echo 'No module named torch' >&2; exit 3", "exit code 3: No module named torch"),
        (None, "python cannot be started: No such file"),
    ],
)
def test_an_interpreter_that_is_no_worker_is_named(start: Any, ask: Ask, tmp_path: Path, body: str | None, words: str):
    if body:
        (tmp_path / "python").write_text(f"#!/bin/sh\n{body}\n")
        (tmp_path / "python").chmod(0o755)
    [outcome] = start(python=str(tmp_path / "python")).edit([ask()])
    assert words in must_be(Failed, outcome).error


def test_where_it_runs_is_no_part_of_the_key(start: Any) -> None:
    plain = start().spec.key
    assert start(python="/elsewhere/python", offload="model", device="cuda:1", timeout=5.0).spec.key == plain
    assert start(steps=27).spec.key != plain


@given(st.dictionaries(st.text(), st.integers() | st.text()).map(lambda m: {**m, "do": "x"}), st.lists(st.binary()))
def test_frames_come_back_as_they_were_sent(message: dict[str, Any], attached: list[bytes]) -> None:
    message.pop("attached", None)
    stream = io.BytesIO()
    write_frame(stream, message, attached)
    stream.seek(0)
    assert read_frame(stream) == (message, attached)
    assert read_frame(stream) is None


@pytest.mark.parametrize(
    "data",
    [
        b"hello",
        b"hello world",
        MAGIC + struct.pack(">I", 10) + b"short",
        MAGIC + struct.pack(">I", 2**31),
        MAGIC + struct.pack(">I", 2) + b"[]",
        MAGIC + struct.pack(">I", 2) + b"{}",
        MAGIC + struct.pack(">I", 16) + b'{"attached":[5]}' + b"1234",
    ],
)
def test_bytes_that_are_no_frame_are_refused(data: bytes) -> None:
    with pytest.raises(BadFrame):
        read_frame(io.BytesIO(data))
