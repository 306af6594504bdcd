"""The demo: processor seconds of each stage, which on two free cores take half as long.

Ratios: each stage against what it cannot do without, measured on the same pictures in the same run. Editing reads and
segments every portrait once and writes every picture; judging reads every picture, finds its face and describes it;
the report reads every picture. Wall time is not measured, because other work on a machine changes it.
"""

from __future__ import annotations

import resource
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

from stillme.api.demo import write_demo
from stillme.api.pipeline import Name, run_stages
from stillme.audit.loading import load
from stillme.core import images
from stillme.core.types import Interval, Portrait
from stillme.instruments import faces
from stillme.instruments.description import describe
from stillme.runs import Run, known_answers

TARGET = 40.0
"""Processor seconds: 20 s on two cores."""
SAMPLE = 12
"""Pictures on which the limits are measured."""


def main() -> None:
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        write_demo(folder)
        stages: tuple[Sequence[Name], ...] = (("edit",), ("judge",), ("estimate", "report"))
        taken = {names[-1]: _seconds(lambda names=names: run_stages(folder, names)) for names in stages}
        pictures = sorted((folder / "images").rglob("*.png"))
        with Run.open(folder) as run:
            edits, gaps = len(run.results.edits), list(known_answers.gaps(run))
        limits = _limits(edits, pictures, load(folder).portraits)
    for name, seconds in taken.items():
        print(f"{name:<8}{seconds:>7.1f} CPU s, ×{seconds / limits[name]:.2f} of its limit ({limits[name]:.1f} s)")
    whole, limit = sum(taken.values()), sum(limits.values())
    print(f"{'all':<8}{whole:>7.1f} CPU s, ×{whole / limit:.2f} of its limit, ×{whole / TARGET:.2f} of the target")
    inside = [
        isinstance(gap.recovered, Interval) and gap.recovered.low <= gap.planted <= gap.recovered.high for gap in gaps
    ]
    print(f"planted gaps within their intervals: {sum(inside)} of {len(inside)}")
    assert all(inside), "a planted gap was not recovered"


def _limits(edits: int, pictures: Sequence[Path], portraits: Sequence[Portrait]) -> dict[str, float]:
    people = [images.read_rgb(portrait.image.path) for portrait in portraits[:SAMPLE]]
    found = [faces.mesh(rgb, faces.find(rgb)[0]) for rgb in people]
    files = pictures[:SAMPLE]

    def segment(place: int) -> None:
        rgb = images.read_rgb(portraits[place].image.path)
        faces.mesh(rgb, faces.find(rgb)[0])
        faces.person_mask(rgb)

    def look(place: int) -> None:
        faces.find(images.read_rgb(files[place]))
        describe(people[place], found[place])

    return {
        "edit": len(portraits) * _each(segment) + edits * _each(lambda place: images.encode_png(people[place])),
        "judge": (len(portraits) + edits) * _each(look),
        "report": (len(portraits) + edits) * _each(lambda place: images.read_picture(files[place])),
    }


def _each(work: Callable[[int], object]) -> float:
    """Seconds that one picture takes, after a first one that opens the networks."""
    work(0)
    return _seconds(lambda: [work(place) for place in range(SAMPLE)]) / SAMPLE


def _seconds(work: Callable[[], object]) -> float:
    """Processor seconds of this process, its threads and its children."""
    before = _used()
    work()
    return _used() - before


def _used() -> float:
    own, children = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return own.ru_utime + own.ru_stime + children.ru_utime + children.ru_stime
