"""What a provider has accepted is paid for once: through failed looks, retries and a killed process."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from stillme.api.pipeline import run_stages
from stillme.core import registry
from stillme.editors.hosted.queues import Fal, Replicate
from stillme.runs.store.jobs import FILE, Jobs
from tests.editors.hosted.loopback import Loopback, Says, serving
from tests.editors.hosted.providers import FAL, REPLICATE, Provider, prediction

REQUESTS = 12
queues = pytest.mark.parametrize("provider", [FAL, REPLICATE], ids=lambda provider: provider.name)
KINDS = {"fal": Fal, "replicate": Replicate}


def waiting(provider: Provider, server: Loopback) -> tuple[str, Says]:
    """Where a job is looked at, and the answer that it is not done."""
    if provider is REPLICATE:
        return "/gm3qorzd", Says(body=prediction(server, "processing"))
    return "/status", Says(body={"status": "IN_QUEUE"})


def audit(write_audit: Callable[..., Path], provider: Provider, server: Loopback) -> Path:
    return write_audit(
        f'use = "{provider.kind.name}"\n[editors.parameters]\nbase_url = "{server.url}"\n'
        f"poll_seconds = 0.01\nconcurrency = 1\nprice = {{ image = 0.04 }}"
    )


def submitted(server: Loopback) -> int:
    return len(server.calls("POST"))


@pytest.fixture(autouse=True)
def _found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "editor_class", KINDS.__getitem__)


RUN = (
    "import sys\n"
    "from pathlib import Path\n"
    "from stillme.core import registry\n"
    "from stillme.api.pipeline import RunOptions, run_stages\n"
    "from tests.editors.hosted.test_jobs import KINDS\n"
    "registry.editor_class = KINDS.__getitem__\n"
    "run_stages(Path(sys.argv[1]), ('edit',))\n"
)


@queues
def test_a_killed_run_asks_for_the_same_job_and_makes_no_new_one(write_audit: Callable[..., Path], provider: Provider):
    with serving(provider.behave) as server:
        folder = audit(write_audit, provider, server)
        place, says = waiting(provider, server)
        server.breaks(says, at=place, times=100_000)
        process = subprocess.Popen([sys.executable, "-c", RUN, str(folder)])
        end = time.monotonic() + 60
        while not any(place in asked.path for asked in server.asked):
            assert time.monotonic() < end, "the run looked at no job"
            assert process.poll() is None, "the run ended"
            time.sleep(0.02)
        process.send_signal(signal.SIGKILL)
        process.wait()
        assert submitted(server) == 1
        server.faults.clear()
        tally = run_stages(folder, ("edit",)).tallies[0]
        assert tally.counts == {"edited": REQUESTS}
        assert tally.cost == pytest.approx(REQUESTS * 0.04)
        assert submitted(server) == REQUESTS


@queues
def test_a_fetch_that_fails_is_repeated_and_the_job_is_paid_for_once(
    write_audit: Callable[..., Path], provider: Provider
):
    with serving(provider.behave) as server:
        folder = audit(write_audit, provider, server)
        place, _ = waiting(provider, server)
        # More than one call bears, fewer than a run does.
        server.breaks(Says(status=503, body=b"busy"), at=place, times=9)
        tally = run_stages(folder, ("edit",)).tallies[0]
        assert tally.counts == {"edited": REQUESTS}
        assert tally.retried >= 1
        assert tally.cost == pytest.approx(REQUESTS * 0.04)
        assert submitted(server) == REQUESTS


@queues
def test_a_job_that_the_provider_has_forgotten_is_made_anew_and_counted(
    write_audit: Callable[..., Path], provider: Provider
):
    with serving(provider.behave) as server:
        folder = audit(write_audit, provider, server)
        place, _ = waiting(provider, server)
        server.breaks(Says(status=404, body=b"no such job"), at=place, times=6)
        tally = run_stages(folder, ("edit",)).tallies[0]
        assert tally.counts == {"edited": REQUESTS}
        assert submitted(server) == REQUESTS + 1
        assert tally.cost == pytest.approx((REQUESTS + 1) * 0.04), "the lost job counts as charged"


def test_an_audit_without_queues_writes_no_file(write_audit: Callable[..., Path], monkeypatch: pytest.MonkeyPatch):
    monkeypatch.undo()
    folder = write_audit()
    run_stages(folder, ("edit",))
    assert not (folder / FILE).exists()


def test_jobs_survive_their_process(tmp_path: Path):
    jobs = Jobs(tmp_path / FILE)
    jobs.add("a", "/jobs/1")
    jobs.add("b", "/jobs/2")
    jobs.add("a", "/jobs/3")
    jobs.end("b")
    jobs.answered("a")
    again = Jobs(tmp_path / FILE)
    assert (again.open("a"), again.open("b"), again.open("c")) == ("/jobs/3", None, None)


def test_a_line_that_a_crash_cut_off_spoils_no_other(tmp_path: Path):
    Jobs(tmp_path / FILE).add("a", "/jobs/1")
    with (tmp_path / FILE).open("ab") as file:
        file.write(b'{"key": "b", "jo')
    jobs = Jobs(tmp_path / FILE)
    jobs.add("c", "/jobs/3")
    again = Jobs(tmp_path / FILE)
    assert (again.open("a"), again.open("b"), again.open("c")) == ("/jobs/1", None, "/jobs/3")


def test_a_job_that_has_ended_leaves_no_trace(tmp_path: Path):
    jobs = Jobs(tmp_path / FILE)
    jobs.add("a", "https://files.example/a.png?signature=1")
    jobs.add("b", "https://files.example/b.png?signature=2")
    Jobs(tmp_path / FILE).add("c", "https://files.example/c.png?signature=3")
    jobs.end("a")
    jobs.end("c")
    assert "signature=1" not in (tmp_path / FILE).read_text()
    assert "signature=3" not in (tmp_path / FILE).read_text(), "also one that another process has added"
    again = Jobs(tmp_path / FILE)
    assert (again.open("a"), again.open("c")) == (None, None)
    assert again.open("b") == "https://files.example/b.png?signature=2"
