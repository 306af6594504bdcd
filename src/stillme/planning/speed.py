"""How long an edit takes: as told, as measured in a run, or as published."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

from stillme.audit import NamedEditor
from stillme.planning.assumptions import Assumptions, PlanOptions


@dataclass(frozen=True, slots=True, kw_only=True)
class Speed:
    """Seconds of one edit. Published ones give a range and no single number."""

    seconds: float | None = None
    origin: str = ""
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Published:
    """What an editor's authors measured."""

    source: str
    seconds: Mapping[str, float]
    """By the kind of GPU."""


def speed_of(named: NamedEditor, options: PlanOptions, assumed: Assumptions) -> Speed:
    """The user's number, else a run's, else what was published."""
    spec = named.editor.spec
    told = options.seconds.get(named.name, options.seconds.get(""))
    if told is not None:
        return Speed(seconds=told, origin="as you say")
    measured = next((assumed.seconds[name] for name in (spec.key, spec.use) if name in assumed.seconds), None)
    if measured is not None:
        return Speed(seconds=measured, origin=f"measured in {assumed.timed}")
    known = published().get(spec.use)
    if known is None:
        return Speed()
    times = ", ".join(f"{seconds:g} s on {gpu}" for gpu, seconds in known.seconds.items())
    return Speed(
        origin=f"published: {times} ({known.source})",
        low=min(known.seconds.values()),
        high=max(known.seconds.values()),
    )


@cache
def published() -> Mapping[str, Published]:
    """By the editor's name."""
    data = tomllib.loads(files("stillme.planning").joinpath("published.toml").read_text("utf-8"))
    return {name: Published(source=entry["source"], seconds=entry["seconds"]) for name, entry in data.items()}
