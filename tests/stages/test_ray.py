"""Work on a Ray cluster gives what work on one machine gives, whoever dies on the way."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psutil
import pytest

from stillme import portraits as synthetic
from stillme.audit.config import ExecutorSection
from stillme.core import registry
from stillme.core.errors import MissingExtra, StillmeError
from stillme.core.protocols import Parameters
from stillme.core.registry import PluginRecipe
from stillme.editors.known import Noop
from stillme.runs.store import Store
from stillme.runs.store.buckets import pictures_at
from stillme.runs.store.pictures import UNFINISHED, PicturePlace
from stillme.work.executors import executor_of
from stillme.work.ray_cluster import places_for
from stillme.work.ray_executor import RayWorker, WorkerActor
from stillme.work.workers import Inside, WorkerSpec
from tests.buckets import S3, Bucket
from tests.records import asked

pytestmark = pytest.mark.xdist_group("ray")
"""One cluster for all."""

Write = Callable[..., Path]

EDIT = """
import os, sys, time
from pathlib import Path

HERE, GUILTY = Path(__file__).parent, {guilty!r}

def allowed():
    file = HERE / "allowed"
    return int(file.read_text() or 0) if file.exists() else 10 ** 9

def node():
    ray = sys.modules.get("ray")
    return ray.get_runtime_context().get_node_id() if ray and ray.is_initialized() else "here"

def edit(image, instruction, seed, portrait):
    if portrait == GUILTY:
        os.abort()
    with (HERE / "begun.log").open("a") as log:
        log.write(f"{{node()}} {{os.getpid()}}\\n")
    number = len((HERE / "begun.log").read_text().splitlines())
    while number > allowed():
        time.sleep(0.01)
    return image.point(lambda value: 255 - value if len(instruction) % 2 else value // 2)
"""
ROWS = (
    "SELECT key, portraits, prompt, arm, instruction, editor, seed, outcome, image, message FROM edit ORDER BY key",
    "SELECT key, edit, judge, epoch FROM assessment ORDER BY key",
    "SELECT key, axis, outcome, score, reason FROM assessment JOIN judgement ON assessment = id ORDER BY key, axis",
)
EDITS = ("--only", "edit")
"""Judges have actors of their own, which take seconds to start."""
HERE: Any = object()
"""A worker of this process."""
RAY = '[executor]\nkind = "ray"'
WITHOUT_A_SECOND_TRY = (
    "import sys; from stillme.work.ray_executor import RayWorker; "
    "RayWorker.__init__.__kwdefaults__['deaths'] = 0; from stillme.cli import main; sys.exit(main())"
)


LOSES_ITS_HEAD_SOON = (
    "import sys; from stillme.work import ray_cluster; ray_cluster._HEAD_SECONDS = 2.0; "
    "from stillme.cli import main; sys.exit(main())"
)


class Nodes:
    """Two machines of one CPU each, in processes of this one, and a head that does no work."""

    def __init__(self, bucket: Bucket) -> None:
        from ray.cluster_utils import Cluster

        self.bucket = bucket
        head = {"num_cpus": 0, "include_dashboard": False, "node_ip_address": "127.0.0.1", **SMALL}
        self._cluster = Cluster(initialize_head=True, head_node_args=head)
        self.environment = {**os.environ, "RAY_ADDRESS": self._cluster.address}
        self._nodes: list[Any] = []
        self.complete()

    def complete(self) -> None:
        while len(self._nodes) < 2:
            self._nodes.append(self._cluster.add_node(num_cpus=1, node_ip_address="127.0.0.1", **SMALL))

    def kill_one_of(self, ids: set[str]) -> str:
        """The id of the node that was killed."""
        node = next(node for node in self._nodes if node.unique_id in ids or node.node_id in ids)
        self._nodes.remove(node)
        self._cluster.remove_node(node, allow_graceful=False)
        return node.unique_id if node.unique_id in ids else node.node_id

    def end(self) -> None:
        self._cluster.shutdown()


SMALL = {"object_store_memory": 80_000_000}


@pytest.fixture(scope="module")
def nodes(s3: S3) -> Iterator[Nodes]:
    pytest.importorskip("ray", reason="Ray is not installed: pip install 'stillme[ray]'")
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("RAY_USAGE_STATS_ENABLED", "0")
        environment.setenv("RAY_AUTH_MODE", "disabled")
        environment.setenv("RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER", "0")  # Ray's name for: on loopback
        with s3.bucket() as bucket:
            # Machines have credentials of their own; here, those that they are started with.
            for name, value in bucket.environment.items():
                environment.setenv(name, value)
            started = Nodes(bucket)
            yield started
            started.end()


def write(
    write_audit: Write, *, prompts: str = "[]", guilty: str = "", extra: str = RAY, allowed: int | None = None
) -> Path:
    """An audit whose editor notes where it works, and answers no more than `allowed` calls until it may."""
    folder = write_audit('use = "python:./edit.py:edit"', 'use = "brightness"', prompts=prompts, extra=extra)
    (folder / "edit.py").write_text(EDIT.format(guilty=guilty))
    if allowed is not None:
        (folder / "allowed").write_text(str(allowed))
    return folder


def content(folder: Path) -> tuple[list[list[tuple[object, ...]]], dict[str, bytes]]:
    with Store.reading(folder) as store:
        rows = [store.query(query).fetchall() for query in ROWS]
    # Every file, hidden or not: a killed run's drafts must be gone.
    return rows, {path.name: path.read_bytes() for path in (folder / "images").rglob("*") if path.is_file()}


def rows_of(folder: Path) -> int:
    """Edits that are committed; none before the first table is made."""
    if not Store.exists(folder):
        return 0
    with Store.reading(folder) as store:
        made = {name for (name,) in store.query("SELECT name FROM sqlite_master")}
        return store.query("SELECT COUNT(*) FROM edit").fetchone()[0] if "edit" in made else 0


def begin(
    folder: Path, out: Path, environment: Mapping[str, str], *program: str, only: Sequence[str] = ()
) -> subprocess.Popen[str]:
    command = [sys.executable, *(program or ("-m", "stillme")), "run", str(folder), "--out", str(out), *only]
    return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def begun_by(folder: Path) -> Counter[str]:
    """How many calls have begun on each node."""
    log = folder / "begun.log"
    return Counter(line.split()[0] for line in log.read_text().splitlines()) if log.exists() else Counter()


def lives(pid: int) -> bool:
    return psutil.pid_exists(pid) and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE


def wait_for(process: subprocess.Popen[str], happened: Callable[[], bool]) -> None:
    end = time.monotonic() + 300
    while not happened():
        assert process.poll() is None, process.communicate()[0]
        if time.monotonic() > end:
            process.kill()
            pytest.fail(f"it did not happen: {process.communicate()[0]}")
        time.sleep(0.1)


def run_to_its_end(folder: Path, out: Path, environment: Mapping[str, str]) -> None:
    ending_with(0, begin(folder, out, environment))


def ending_with(code: int, process: subprocess.Popen[str]) -> str:
    try:
        said, _ = process.communicate(timeout=300)
    finally:
        process.kill()
    assert process.returncode == code, said
    return said


def test_a_killed_node_and_a_killed_driver_change_no_byte(nodes: Nodes, write_audit: Write, tmp_path: Path):
    nodes.complete()
    here, there = tmp_path / "here", tmp_path / "there"
    folder = write(write_audit, extra="")
    run_to_its_end(folder, here, nodes.environment)
    (folder / "begun.log").unlink()
    folder = write(write_audit, allowed=20)

    first = begin(folder, there, nodes.environment)
    wait_for(first, lambda: begun_by(folder).total() > 20 and len(begun_by(folder)) == 2)
    nodes.kill_one_of(set(begun_by(folder)))
    (folder / "allowed").write_text("60")
    wait_for(first, lambda: rows_of(there) > 30)
    first.kill()
    first.communicate()
    (folder / "allowed").unlink()
    assert rows_of(there) < rows_of(here) - 20, "there was hardly anything left to do: the test would prove nothing"
    run_to_its_end(folder, there, nodes.environment)

    assert content(there) == content(here)
    for table in sorted((here / "tables").iterdir()):
        assert (there / "tables" / table.name).read_bytes() == table.read_bytes(), table.name


def test_without_a_second_try_a_killed_node_loses_requests(nodes: Nodes, write_audit: Write, tmp_path: Path):
    """The negative control of the test above."""
    nodes.complete()
    folder, out = write(write_audit, prompts='["O-01", "O-02", "V-01"]', allowed=2), tmp_path / "there"
    process = begin(folder, out, nodes.environment, "-c", WITHOUT_A_SECOND_TRY, only=EDITS)
    wait_for(process, lambda: begun_by(folder).total() > 3 and len(begun_by(folder)) == 2)
    killed = nodes.kill_one_of(set(begun_by(folder)))
    lines = [line.split() for line in (folder / "begun.log").read_text().splitlines()]
    # Actors die a moment after their node, and could still answer.
    wait_for(process, lambda: not any(node == killed and lives(int(pid)) for node, pid in lines))
    (folder / "allowed").unlink()
    said = ending_with(3, process)
    assert "this request ends its worker" in said


def test_a_request_that_ends_its_actor_is_named_and_the_rest_is_done(nodes: Nodes, write_audit: Write, tmp_path: Path):
    nodes.complete()
    folder, out = write(write_audit, prompts='["O-01"]', guilty="p3"), tmp_path / "there"
    said = ending_with(3, begin(folder, out, nodes.environment, only=EDITS))
    assert "this request ends its worker" in said
    with Store.reading(out) as store:
        edits = dict(store.query("SELECT portraits, outcome FROM edit WHERE final = 1").fetchall())
    assert list(edits.values()) == ["edited"] * 5


def test_pictures_of_a_cluster_may_be_in_a_bucket(nodes: Nodes, write_audit: Write, tmp_path: Path):
    nodes.complete()
    here, there = tmp_path / "here", tmp_path / "there"
    run_to_its_end(write(write_audit, prompts='["O-01"]', extra=""), here, nodes.environment)
    folder = write(write_audit, prompts='["O-01"]', extra=f'{RAY}\n[pictures]\nstore = "{nodes.bucket.address}"')
    (folder / "begun.log").unlink()
    own = nodes.environment | {"STILLME_HOME": str(tmp_path / "home of the driver")}
    run_to_its_end(folder, there, own)
    assert begun_by(folder), "no actor did anything: the test would prove nothing"
    assert "here" not in begun_by(folder)
    rows, pictures = content(here)
    assert content(there) == (rows, {}), "pictures do not go through the run folder"
    assert nodes.bucket.pictures() == pictures
    # The driver looked at thumbnails; nothing else came to its machine.
    copies = {path.name for path in (tmp_path / "home of the driver" / "pictures").rglob("*") if path.is_file()}
    assert copies <= set(pictures)


def test_an_actor_without_the_inputs_has_them_from_the_bucket(bucket: Bucket, tmp_path: Path):
    place = PicturePlace(tmp_path / "images", (bucket.address,))
    pictures = pictures_at(place)
    pictures.prepare()
    portrait = synthetic.portraits()[0]
    pictures.take(portrait.image)
    elsewhere = replace(portrait, image=replace(portrait.image, path=Path("/on/the/drivers/machine.png")))
    editor = registry.build("editor", "noop", {})
    recipe = PluginRecipe(kind="editor", use="noop", parameters={}, base=Path(), key=editor.spec.key)
    actor = WorkerActor(WorkerSpec(recipe=recipe, pictures=place, jobs=tmp_path / "jobs"), token="")
    assert actor.problem() == ""
    (kept,) = actor.perform([asked(editor, elsewhere)])
    assert kept.image in {name.partition(".")[0] for name in bucket.pictures()}


def test_an_actor_that_does_not_see_the_bucket_says_so(bucket: Bucket, tmp_path: Path):
    elsewhere = replace(spec(tmp_path), pictures=PicturePlace(tmp_path, (bucket.address,)))
    problem = WorkerActor(elsewhere, token="").problem()
    assert f"on {socket.gethostname()}, {bucket.address} holds no pictures of runs" in problem


def spec(pictures: Path, **changed: Any) -> WorkerSpec:
    recipe = PluginRecipe(kind="editor", use="noop", parameters={}, base=Path(), key="")
    return WorkerSpec(recipe=recipe, pictures=PicturePlace(pictures), jobs=pictures / "jobs", **changed)


class TellsItsLimit(Noop):
    def end_calls_after(self, seconds: float) -> None:
        self.limit = seconds


def test_an_actors_editor_with_processes_of_its_own_is_told_its_time_limit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    editor = TellsItsLimit(Parameters())
    monkeypatch.setattr(PluginRecipe, "build", lambda _: editor)
    spec(tmp_path, ends_calls_after=7.0).worker()
    assert editor.limit == 7.0


class OneActor:
    """As much of Ray, and of a cluster, as one actor needs whose every call takes so many seconds."""

    exceptions = SimpleNamespace(RayTaskError=KeyError, RayError=OSError, GetTimeoutError=TimeoutError)
    head, head_lost = "127.0.0.1:1", False

    def __init__(self, takes: float) -> None:
        self.ray, self.kill = self, lambda *_, **__: None
        self.problem = SimpleNamespace(options=lambda **_: SimpleNamespace(remote=lambda: ""))
        self.perform = SimpleNamespace(remote=lambda tasks: (time.monotonic() + takes, tasks))

    def remote(self, *_: object) -> OneActor:
        return self

    def options(self, **_: object) -> OneActor:
        return self

    def get(self, answer: Any, timeout: float | None = None) -> Any:
        if timeout is None:
            return answer
        at, tasks = answer
        time.sleep(max(0.0, min(timeout, at - time.monotonic())))
        if time.monotonic() < at:
            raise TimeoutError
        return tasks


@pytest.mark.parametrize(("own", "answered"), [(None, False), (0.1, True)])
def test_an_actor_outlives_a_call_that_its_editor_ends(tmp_path: Path, own: float | None, answered: bool):
    cluster: Any = OneActor(takes=0.3)
    worker = RayWorker(cluster, spec(tmp_path, ends_calls_after=own), "", str, actors=1, seconds=0.1)
    (result,) = worker.perform(["a task"])
    assert (result == "a task") == answered
    assert answered or "no answer within 0.1 s" in result


def test_a_call_of_a_cluster_that_has_lost_its_head_does_not_wait_for_its_time_limit(tmp_path: Path):
    cluster: Any = OneActor(takes=3600.0)
    cluster.head_lost = True
    worker = RayWorker(cluster, spec(tmp_path), "", lambda failed: failed, actors=1, seconds=3600.0)
    assert worker.ready
    (failure,) = worker.perform(["a task"])
    assert failure.fatal
    assert "its head at 127.0.0.1:1 does not answer" in failure.error


def test_an_actor_that_does_not_see_the_run_folder_or_is_of_another_version_says_so(tmp_path: Path):
    problem = WorkerActor(spec(tmp_path), token="shared-elsewhere").problem()
    assert "does not see" in problem
    assert "file system that every machine of the cluster mounts" in problem
    (tmp_path / UNFINISHED).mkdir()
    (tmp_path / UNFINISHED / "shared-1").touch()
    assert "is another one here than where the run was started" in WorkerActor(spec(tmp_path), "shared-1").problem()


def test_what_asks_somebody_elses_computer_stays_in_this_process(tmp_path: Path):
    executor = executor_of(ExecutorSection(kind="ray"))
    worker = executor.worker(spec(tmp_path, is_hosted=True), HERE, concurrency=3, seconds=1.0)
    assert worker == Inside(HERE, 3)


def test_a_cluster_that_does_not_answer_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    pytest.importorskip("ray")
    monkeypatch.setenv("RAY_ADDRESS", "127.0.0.1:1")
    monkeypatch.setenv("RAY_USAGE_STATS_ENABLED", "0")
    with pytest.raises(StillmeError, match=r"RAY_ADDRESS=127\.0\.0\.1:1 does not answer .*unset RAY_ADDRESS"):
        executor_of(ExecutorSection(kind="ray")).worker(spec(tmp_path), HERE, concurrency=1, seconds=1.0)


def test_without_ray_the_extra_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(MissingExtra, match=r'pip install "stillme\[ray\]"'):
        executor_of(ExecutorSection(kind="ray")).worker(spec(tmp_path), HERE, concurrency=1, seconds=1.0)


def test_a_cluster_without_a_gpu_is_refused_before_anything_waits_for_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    class Ray:
        def is_initialized(self) -> bool:
            return True

        def nodes(self) -> list[dict[str, Any]]:
            return [{"Alive": True, "Resources": {"CPU": 4.0}}]

        def get_runtime_context(self) -> Any:
            return SimpleNamespace(gcs_address="127.0.0.1:1")

    monkeypatch.setitem(sys.modules, "ray", Ray())  # type: ignore[arg-type]
    with pytest.raises(StillmeError, match="No machine of the Ray cluster has 1 GPU and a CPU for editor 'noop'"):
        executor_of(ExecutorSection(kind="ray")).worker(spec(tmp_path, gpus=1), HERE, concurrency=1, seconds=1.0)


@pytest.mark.parametrize(
    ("resources", "gpus", "places"),
    [
        ([{"CPU": 4.0}, {"CPU": 2.0}], 0, 6),
        ([{"CPU": 8.0, "GPU": 4.0}, {"CPU": 1.0, "GPU": 4.0}], 1, 5),
        ([{"CPU": 8.0, "GPU": 3.0}, {"CPU": 8.0, "GPU": 1.0}], 2, 1),
        ([{}], 0, 0),
    ],
)
def test_actors_are_as_many_as_have_a_place(resources: list[dict[str, float]], gpus: int, places: int):
    machines = [{"Alive": True, "Resources": has} for has in resources]
    gone = {"Alive": False, "Resources": {"CPU": 99.0, "GPU": 99.0}}
    assert places_for([*machines, gone], gpus) == places


def test_a_run_whose_cluster_lost_its_head_says_so_with_the_next_command(
    nodes: Nodes, write_audit: Write, tmp_path: Path
):
    """Ray itself would end the process within a minute, with 1 and its own words. The last test: no cluster is left."""
    nodes.complete()
    folder, out = write(write_audit, prompts='["O-01"]', allowed=2), tmp_path / "there"
    run = begin(folder, out, nodes.environment, "-c", LOSES_ITS_HEAD_SOON)
    wait_for(run, lambda: rows_of(out) == 2)
    nodes.end()
    said = ending_with(3, run)
    assert "the Ray cluster has ended: its head at 127.0.0.1:" in said
    assert f"Next: stillme run {folder}" in said
    assert rows_of(out) >= 2
