"""Several devices: one process each, the same edits as one, and nothing left behind."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest

from stillme.core.programs.worker import WorkerFault, WorkerProcess
from stillme.core.types import Edited, EditOutcome, Failed, Request
from stillme.editors.diffusion import device_pool
from stillme.editors.diffusion.machine import gpus
from tests.editors.diffusion.conftest import THIRD_PARTY, Ask
from tests.editors.diffusion.test_editing import Folders, rgb, tiny_editor
from tests.processes import all_end

pytestmark = THIRD_PARTY

ROOT = Path(__file__).parents[3]


@pytest.fixture
def workers_import(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Worker processes get what `conftest.py` does for this one: a torchvision that imports, one thread, no hub."""
    (tmp_path / "site").mkdir()
    (tmp_path / "site" / "sitecustomize.py").write_text(
        "from tests.editors.diffusion import tiny\ntiny.allow_torchvision()\n"
    )
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join((str(tmp_path / "site"), str(ROOT))))
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")


@pytest.fixture
def pool(offline: Folders) -> Iterator[Any]:
    """An editor on two devices."""
    editor = tiny_editor(offline, "kontext", devices=["cpu", "cpu"], batch=1)
    yield editor
    editor.close()


WITHOUT_TORCH = """
import pickle
from stillme.core.types import Edited

def load(parameters):
    return parameters

def edit(loaded, message, attached):
    sources = [request.portraits[0].image for request in pickle.loads(attached[0])]
    return {}, [pickle.dumps([Edited(image=source.path.read_bytes()) for source in sources])]
"""


@pytest.fixture
def restartable(pool: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Its workers return the source: how they die and start again has nothing to do with torch."""
    (tmp_path / "backend.py").write_text(WITHOUT_TORCH)
    monkeypatch.setattr(device_pool, "BACKEND", tmp_path / "backend.py")
    return pool


def workers_of(editor: Any) -> list[int]:
    """The processes themselves, not their supervisors."""
    running = [psutil.Process(worker._process._popen.pid) for worker in editor._pool._workers if worker._process]
    return [child.pid for supervisor in running for child in supervisor.children()]


def edited_by_threads(editor: Any, requests: Sequence[Request]) -> list[EditOutcome]:
    """As the stage loop does: as many calls at once as the editor takes."""
    with ThreadPoolExecutor(editor.capabilities.concurrency) as threads:
        return [outcome for [outcome] in threads.map(lambda request: list(editor.edit([request])), requests)]


def test_two_processes_make_the_same_pictures_as_one(
    offline: Folders, ask: Ask, workers_import: None, pool: Any
) -> None:
    requests = [ask(f"Wear hat {number}.", seed=number) for number in range(6)]
    alone = list(tiny_editor(offline, "kontext", batch=1).edit(requests))
    shared = edited_by_threads(pool, requests)
    for left, right in zip(alone, shared, strict=True):
        assert np.array_equal(rgb(left), rgb(right))
    first, second = (psutil.Process(pid) for pid in workers_of(pool))
    assert min(first.cpu_times().user, second.cpu_times().user) > 1, "both imported torch and worked"
    pool.close()
    assert all_end([first.pid, second.pid])


def test_a_worker_that_dies_fails_its_request_and_is_restarted(ask: Ask, restartable: Any) -> None:
    assert all(isinstance(outcome, Edited) for outcome in edited_by_threads(restartable, [ask("a"), ask("b")]))
    victim, _ = workers_of(restartable)
    os.kill(victim, signal.SIGKILL)
    outcomes = edited_by_threads(restartable, [ask(text, seed=1) for text in "abcd"])
    failed = [outcome for outcome in outcomes if isinstance(outcome, Failed)]
    assert [(outcome.retryable, outcome.fatal) for outcome in failed] == [(True, False)]
    assert "killed by SIGKILL" in failed[0].error
    assert victim not in workers_of(restartable)


def test_a_worker_that_hangs_is_ended_at_its_time_limit_and_restarted(ask: Ask, restartable: Any) -> None:
    restartable.end_calls_after(20.0)
    assert all(isinstance(outcome, Edited) for outcome in edited_by_threads(restartable, [ask("a"), ask("b")]))
    assert {worker._timeout for worker in restartable._pool._workers} == {20.0}
    stopped = [psutil.Process(pid) for pid in workers_of(restartable)]
    for worker in restartable._pool._workers:
        worker._timeout = 0.5  # an edit takes longer on a busy machine; a stopped process never answers
    for process in stopped:
        process.suspend()
    outcomes = edited_by_threads(restartable, [ask("c"), ask("d")])
    assert all(isinstance(outcome, Failed) and outcome.retryable and not outcome.fatal for outcome in outcomes)
    assert "not done after 0.5 s, and killed" in str(outcomes)
    assert all_end([process.pid for process in stopped])
    for worker in restartable._pool._workers:
        worker._timeout = 20.0
    assert all(isinstance(outcome, Edited) for outcome in edited_by_threads(restartable, [ask("c"), ask("d")]))


BACKEND = """
import os

def load(parameters):
    return parameters

def edit(loaded, message, attached):
    if message.get("die"):
        os._exit(3)
    return {"pid": os.getpid()}, []
"""


@pytest.fixture
def backend(tmp_path: Path) -> Path:
    (tmp_path / "backend.py").write_text(BACKEND)
    return tmp_path / "backend.py"


def test_a_worker_that_dies_twice_in_a_row_is_given_up(backend: Path) -> None:
    worker = WorkerProcess(sys.executable, backend, {}, timeout=20, restarts=1)
    for _ in range(2):
        with pytest.raises(WorkerFault) as fault:
            worker.ask({"do": "edit", "die": True}, [])
        assert not fault.value.fatal
        assert worker.ask({"do": "edit"}, []).message["pid"], "an answer in between starts the count again"
    for fatal in (False, True, True):
        with pytest.raises(WorkerFault) as fault:
            worker.ask({"do": "edit", "die": True}, [])
        assert fault.value.fatal is fatal
    worker.close()


CARDS = "#!/bin/sh\necho '0, GPU-aa1, A100, 81920, 80000'\necho '1, GPU-bb2, RTX 4090, 24564, 24000'\n"


@pytest.fixture
def driver(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine whose driver shows two cards."""
    tool = tmp_path / "nvidia-smi"
    tool.write_text(CARDS)
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)


def test_all_devices_are_a_process_for_every_card_that_the_driver_shows(offline: Folders, driver: None) -> None:
    editor: Any = tiny_editor(offline, "kontext", devices="all", batch=1)
    assert (editor.capabilities.concurrency, editor.gpus) == (2, 2)
    pool = editor._started()
    assert [worker.parameters["parameters"]["device"] for worker in pool._workers] == ["cuda:0", "cuda:1"]


@pytest.mark.parametrize(
    ("visible", "names"),
    [(None, ["A100", "RTX 4090"]), ("1", ["RTX 4090"]), ("GPU-aa,1", ["A100", "RTX 4090"]), ("7,0", []), ("", [])],
)
def test_only_the_gpus_that_a_process_may_use_are_counted(
    driver: None, monkeypatch: pytest.MonkeyPatch, visible: str | None, names: list[str]
) -> None:
    if visible is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    assert [card.name for card in gpus()] == names
    assert {round(card.total_gb) for card in gpus()} <= {80, 24}, "as cards are named"
