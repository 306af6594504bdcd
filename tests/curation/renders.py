"""Pools of rendered people, small enough to be looked at in a second."""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path

from stillme.curation.measuring import check_missing
from stillme.curation.pools import Pools, SampleOptions, sample
from stillme.curation.sources import open_source

RENDERS = Path(str(files("stillme.portraits").joinpath("data")))


def draw_renders(folder: Path, *, pools: int = 3, only: tuple[str, ...] = ("A", "B")) -> Pools:
    """Candidates over preset × gender presentation; the six ages are what pools are drawn from."""
    wanted = SampleOptions(by=("preset", "gender_presentation"), only={"preset": only}, pools=pools)
    drawn = sample(open_source(str(RENDERS)), folder, wanted)
    check_missing(drawn)
    return drawn
