"""What benchmarks measured: one table with ratios, the machine, and a history to compare with."""

from __future__ import annotations

import json
import os
import platform
import resource
import subprocess
from collections.abc import Callable
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path

HISTORY = Path(__file__).parent / "history.jsonl"
"""One line per run of benchmarks on this machine; not part of the repository."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """One measurement, with what it is compared to in the same run."""

    bench: str
    name: str
    value: float
    unit: str
    peer: str
    """What the ratio refers to: another program's figure, a limit or a target."""
    ratio: float


figures: list[Figure] = []


def note(bench: str, name: str, value: float, unit: str, *, peer: str, of: float) -> None:
    """Keep a figure for the table: `of` is the peer's figure in the same unit."""
    bench = bench.rpartition(".")[2]
    figures.append(Figure(bench=bench, name=name, value=value, unit=unit, peer=peer, ratio=value / of))


def cpu_seconds(work: Callable[[], object]) -> float:
    """Processor seconds of this process, its threads and its children."""
    before = _used()
    work()
    return _used() - before


def _used() -> float:
    own, children = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return own.ru_utime + own.ru_stime + children.ru_utime + children.ru_stime


def machine() -> dict[str, str | int | float]:
    """What the figures depend on."""
    cpu = next(
        (line.partition(":")[2].strip() for line in _lines(Path("/proc/cpuinfo")) if line.startswith("model name")),
        platform.processor(),
    )
    return {
        "cpu": cpu,
        "cores": os.cpu_count() or 1,
        "load": round(os.getloadavg()[0], 1),
        "system": platform.platform(),
        "python": platform.python_version(),
    }


def table(before: dict[tuple[str, str, str], float]) -> str:
    """All figures, with the ratio of the last run beside that of this one."""
    rows = [("bench", "figure", "", "ratio", "to", "last time")]
    for figure in figures:
        last = before.get((figure.bench, figure.name, figure.peer))
        rows.append(
            (
                figure.bench,
                figure.name,
                f"{_number(figure.value)} {figure.unit}",
                f"×{figure.ratio:.2f}",
                figure.peer,
                f"×{last:.2f}" if last is not None else "–",
            )
        )
    widths = [max(len(row[place]) for row in rows) for place in range(len(rows[0]))]
    right = (2, 3, 5)
    lines = [
        "  ".join(f"{cell:{'>' if place in right else '<'}{widths[place]}}" for place, cell in enumerate(row)).rstrip()
        for row in rows
    ]
    return "\n".join([lines[0], "─" * len(lines[0]), *lines[1:]])


def last_ratios() -> dict[tuple[str, str, str], float]:
    """The newest ratio of each figure in the history; ratios, because they survive a busy machine."""
    ratios: dict[tuple[str, str, str], float] = {}
    for line in _lines(HISTORY):
        for figure in json.loads(line)["figures"]:
            ratios[figure["bench"], figure["name"], figure["peer"]] = figure["ratio"]
    return ratios


def remember() -> None:
    """Add this run to the history."""
    commit = subprocess.run(
        ["git", "describe", "--always", "--dirty"], cwd=HISTORY.parent, capture_output=True, text=True, check=False
    )
    entry = {
        "at": datetime.now(UTC).isoformat(timespec="seconds"),
        "commit": commit.stdout.strip(),
        "machine": machine(),
        "figures": [asdict(figure) for figure in figures],
    }
    with HISTORY.open("a", encoding="utf-8") as stream:
        stream.write(json.dumps(entry) + "\n")


def _lines(path: Path) -> list[str]:
    return path.read_text(encoding="utf-8").splitlines() if path.is_file() else []


def _number(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:,.3g}"
