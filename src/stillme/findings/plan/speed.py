"""How long an edit takes: as told, as measured in a run, or as published."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

from stillme.audit import NamedEditor
from stillme.findings.plan.assumptions import Assumptions, PlanOptions


@dataclass(frozen=True, slots=True, kw_only=True)
class Speed:
    """Seconds of one edit. Published ones give a range and no single number."""

    seconds: float | None = None
    origin: str = ""
    low: float = 0.0
    high: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Published:
    """What an editor's authors measured."""

    source: str
    seconds: Mapping[str, float]
    """By the kind of GPU."""

    def __str__(self) -> str:
        times = ", ".join(f"{seconds:g} s on {gpu}" for gpu, seconds in self.seconds.items())
        return f"published: {times} ({self.source})"


def speed_of(named: NamedEditor, options: PlanOptions, assumed: Assumptions) -> Speed:
    """The user's number, else a run's, else what was published of it, or of others like it."""
    spec = named.editor.spec
    told = options.seconds.get(named.name, options.seconds.get(""))
    if told is not None:
        return Speed(seconds=told, origin="as you say")
    if spec.key in assumed.seconds:
        return Speed(seconds=assumed.seconds[spec.key], origin=f"measured in {assumed.timed[spec.key]}")
    known = published()
    own = known.get(spec.use)
    times = own.seconds.values() if own else [time for other in known.values() for time in other.seconds.values()]
    origin = str(own) if own else "; ".join(f"for scale, {name}: {other}" for name, other in known.items())
    return Speed(origin=origin, low=min(times), high=max(times))


@cache
def published() -> Mapping[str, Published]:
    """By the editor's name."""
    data = tomllib.loads(files("stillme.findings.plan").joinpath("published.toml").read_text("utf-8"))
    return {name: Published(source=entry["source"], seconds=entry["seconds"]) for name, entry in data.items()}
