# SPDX-License-Identifier: GPL-3.0-or-later
"""Render many pictures with all cores, doing only what is not done yet."""

import multiprocessing
import os
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from .parameters import Parameters


@dataclass(frozen=True)
class Job:
    """A picture to be made."""

    path: Path
    parameters: Parameters
    kept: Path | None = None
    """Folder for the linear renders, if they are to be kept for developing them again."""


def _shared_renders(jobs: Iterable[Job]) -> list[list[Job]]:
    """Group jobs that need the same run of Cycles (they differ in background, exposure or tint only)."""
    groups: dict[str, list[Job]] = {}
    for job in jobs:
        groups.setdefault(job.parameters.render_digest(), []).append(job)
    return list(groups.values())


def _work(group: Sequence[Job]) -> list[str]:
    from .render import render_or_recall, write_portrait

    rendered = render_or_recall(group[0].parameters, threads=1, kept=group[0].kept)
    for job in group:
        job.path.parent.mkdir(parents=True, exist_ok=True)
        write_portrait(job.path, job.parameters, rendered)
    return [job.path.name for job in group]


def render_all(jobs: Sequence[Job], workers: int | None = None) -> None:
    """Render what is missing or has other parameters; safe to stop and start again at any time.

    One process a core, one thread each: scene building is single-threaded, so
    this keeps all cores busy where one many-threaded Cycles would not.
    """
    from .render import is_current

    missing = [job for job in jobs if not is_current(job.path, job.parameters)]
    groups = _shared_renders(missing)
    print(f"{len(jobs) - len(missing)} of {len(jobs)} pictures are there; {len(groups)} renders to do.", flush=True)
    started, done = time.monotonic(), 0
    # Blender keeps global state and grows slowly: fresh processes now and then.
    with multiprocessing.get_context("spawn").Pool(workers or os.cpu_count(), maxtasksperchild=40) as pool:
        for names in pool.imap_unordered(_work, groups):
            done += 1
            rate = (time.monotonic() - started) / done
            left = rate * (len(groups) - done) / 60
            print(f"{done}/{len(groups)} {' '.join(names)} ({rate:.0f} s each, {left:.0f} min left)", flush=True)
