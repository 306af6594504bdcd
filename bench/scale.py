"""The same audit on this machine alone and on two Ray nodes of one CPU each: overhead, memory, a node killed midway.

Editor and judge cost nothing, so what is measured is the way there and back. Ratios: the time of the local run, and
memory at the whole against a tenth of it. Ends with a comparison of every row and picture.
"""

from __future__ import annotations

import importlib.util
import os
import resource
import sqlite3
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench._figures import note
from bench.spine import write_audit

REQUESTS = int(os.environ.get("STILLME_BENCH_SCALE", "100000"))
SMALL = {"object_store_memory": 80_000_000}
LOOPBACK = {
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_AUTH_MODE": "disabled",
    "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",  # Ray's name for: on loopback
}
ROWS = (
    "SELECT key, outcome, image, message FROM edit ORDER BY key",
    "SELECT key, edit, judge, epoch FROM assessment ORDER BY key",
    "SELECT key, axis, outcome, score FROM assessment JOIN judgement ON assessment = id ORDER BY key, axis",
)


@dataclass(frozen=True, slots=True)
class Took:
    """What one run took."""

    seconds: float
    megabytes: float


def main() -> None:
    if importlib.util.find_spec("ray") is None:
        print("not run: ray is not installed (`pip install 'stillme[ray]'`)")
        return
    os.environ |= LOOPBACK
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        local = _run(_audit(folder / "local", REQUESTS, "local"))
        local_tenth = _run(_audit(folder / "local-tenth", REQUESTS // 10, "local"))
        cluster, nodes = _cluster()
        try:
            environment = {"RAY_ADDRESS": cluster.address}
            tenth = _run(_audit(folder / "tenth", REQUESTS // 10, "ray"), environment)
            ray = _run(_audit(folder / "ray", REQUESTS, "ray"), environment)
            pause, lost = _disturbed(_audit(folder / "disturbed", REQUESTS, "ray"), environment, cluster, nodes[0])
        finally:
            cluster.shutdown()
        same = _content(folder / "local") == _content(folder / "ray") == _content(folder / "disturbed")
    # From the difference of two sizes: starting actors takes seconds, once.
    each = 1000 * (ray.seconds - tenth.seconds) / (1.8 * REQUESTS)
    here = 1000 * (local.seconds - local_tenth.seconds) / (1.8 * REQUESTS)
    print(f"{REQUESTS:,} edits and as many judgements that cost nothing")
    print(f"this machine            {local.seconds:>8,.1f} s, {local.megabytes:,.0f} MB")
    print(
        f"two Ray nodes           {ray.seconds:>8,.1f} s, {ray.megabytes:,.0f} MB (a tenth: {tenth.megabytes:,.0f} MB)"
    )
    print(f"each further item       {each:>8,.2f} ms on Ray, {here:,.2f} ms here")
    print(f"a node killed midway    {lost.seconds:>8,.1f} s, longest pause {pause:,.1f} s")
    print(f"rows and pictures       {'the same' if same else 'DIFFERENT'}")
    note(__name__, "each item on two Ray nodes", each, "ms", peer="this machine, work that costs nothing", of=here)
    note(__name__, "a node killed midway", lost.seconds, "s", peer="two Ray nodes undisturbed", of=ray.seconds)
    note(__name__, "peak memory of the driver", ray.megabytes, "MB", peer="a tenth of the requests", of=tenth.megabytes)
    assert same, "a run on the cluster differs from one on this machine"


def _audit(folder: Path, requests: int, kind: str) -> Path:
    write_audit(folder, requests)
    with (folder / "audit.toml").open("a") as stream:
        stream.write(f'[executor]\nkind = "{kind}"\n')
    return folder


def _begin(folder: Path, environment: dict[str, str]) -> subprocess.Popen[str]:
    code = f"from bench.scale import report_run; report_run({str(folder)!r})"
    everything = {**os.environ, **environment}
    return subprocess.Popen([sys.executable, "-c", code], env=everything, stdout=subprocess.PIPE, text=True)


def _run(folder: Path, environment: dict[str, str] | None = None) -> Took:
    return _took(_begin(folder, environment or {}))


def _took(process: subprocess.Popen[str]) -> Took:
    said, _ = process.communicate()
    assert process.returncode == 0, "the run failed"
    seconds, megabytes = map(float, said.split()[-2:])
    return Took(seconds, megabytes)


def report_run(name: str) -> None:
    """Edit and judge, in a process of its own."""
    from stillme.api.pipeline import run_stages

    begun = time.perf_counter()
    run_stages(Path(name), ("edit", "judge"))
    print(time.perf_counter() - begun, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)


def _cluster() -> tuple[Any, list[Any]]:
    from ray.cluster_utils import Cluster

    head = {"num_cpus": 0, "include_dashboard": False, "node_ip_address": "127.0.0.1", **SMALL}
    cluster: Any = Cluster(initialize_head=True, head_node_args=head)
    return cluster, [cluster.add_node(num_cpus=1, node_ip_address="127.0.0.1", **SMALL) for _ in range(2)]


def _disturbed(folder: Path, environment: dict[str, str], cluster: Any, node: Any) -> tuple[float, Took]:
    """Kill a node when a third of the edits is saved; the longest time without a new row after that."""
    process = _begin(folder, environment)
    while _saved(folder) < REQUESTS // 3:
        assert process.poll() is None, "the run ended before the node was killed"
        time.sleep(0.2)
    cluster.remove_node(node, allow_graceful=False)
    pause, seen, since = 0.0, _saved(folder), time.monotonic()
    while process.poll() is None and seen < REQUESTS:
        time.sleep(0.2)
        if (saved := _saved(folder)) > seen:
            pause, seen, since = max(pause, time.monotonic() - since), saved, time.monotonic()
    return pause, _took(process)


def _saved(folder: Path) -> int:
    if not (folder / "stillme.sqlite").exists():
        return 0
    try:
        with sqlite3.connect(f"file:{folder / 'stillme.sqlite'}?mode=ro", uri=True) as ledger:
            return ledger.execute("SELECT COALESCE(MAX(id), 0) FROM edit").fetchone()[0]
    except sqlite3.OperationalError:  # no tables yet
        return 0


def _content(folder: Path) -> tuple[list[list[tuple[Any, ...]]], dict[str, bytes]]:
    with sqlite3.connect(folder / "stillme.sqlite") as ledger:
        rows = [ledger.execute(query).fetchall() for query in ROWS]
    pictures = {path.name: path.read_bytes() for path in (folder / "images").rglob("*.png")}
    return rows, pictures
