"""The paper's published numbers and how they were measured, kept as data: facts with their places, in our words."""

from __future__ import annotations

import csv
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any

from stillme.core.files import packaged_toml

__all__ = ["PaperEditor", "PaperJudge", "Published", "Setting", "published", "setting"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Published:
    """One number of the paper. What the paper does not say is empty."""

    place: str
    """A table, figure, section or appendix."""
    judge: str
    """`models`, `people` or `models - people`."""
    sample: str
    """The part of all edits that the number is over: `rated by people`, `mitigation`; empty for all."""
    editor: str
    """The paper's name; `all` taken together; `each` where a range covers all of them."""
    arm: str
    group: str
    """A race as the paper calls it; empty for everyone."""
    quantity: str
    """What we call it: an axis or a named rate."""
    statistic: str
    """`mean`, `rate`, `change`, `max - min`, `bias`, or a test and what of it is given, such as `p`."""
    sign: str
    """How the value limits the number where the number itself is not given."""
    value: float
    high: float | None
    """The upper end where a range is given."""
    unit: str
    n: int | None
    decimals: int
    """As printed."""
    note: str
    unanswered: str
    """Why no number of a run stands beside it; empty where one can."""


@cache
def published() -> tuple[Published, ...]:
    """All of them, in the paper's order."""
    text = files("stillme.core.paper").joinpath("published.csv").read_text("utf-8")
    return tuple(_published(row) for row in csv.DictReader(text.splitlines(), strict=True))


def _published(row: dict[str, Any]) -> Published:
    numbers: dict[str, Any] = {
        "value": float(row["value"]),
        "high": float(row["high"]) if row["high"] else None,
        "n": int(row["n"]) if row["n"] else None,
        "decimals": len(row["value"].partition(".")[2]),
    }
    return Published(**{**row, **numbers})


@dataclass(frozen=True, slots=True, kw_only=True)
class PaperEditor:
    """An editor as the paper ran it (Table 12)."""

    name: str
    plugins: tuple[str, ...]
    """Ours for the same model; the first has the paper's settings."""
    seed: int
    settings: Mapping[str, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class PaperJudge:
    """A model that the paper asked (§4.1)."""

    name: str
    plugin: str
    """Ours for it."""
    model: str
    """As its provider calls it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """Whom the paper edited, with what, judged by whom."""

    title: str
    portraits: int
    portrait_source: str
    prompts: int
    gpu_gb: int
    """Memory of the GPUs that the paper used."""
    editors: tuple[PaperEditor, ...]
    judges: tuple[PaperJudge, ...]
    groups: Mapping[str, tuple[str, ...]]
    """The paper's groups, each with other spellings."""

    def named(self, name: str) -> PaperEditor | None:
        """The paper's editor of this name, or of this plugin of ours."""
        wanted = _plain(name)
        for editor in self.editors:
            if wanted in map(_plain, (editor.name, *editor.plugins)):
                return editor
        return None

    def near(self, name: str) -> PaperEditor | None:
        """The only editor of the paper whose name begins as this one does, such as FLUX.2-dev for `flux`."""
        first = _FIRST_WORD.match(_plain(name))
        near = [editor for editor in self.editors if first and _plain(editor.name).startswith(first[0])]
        return near[0] if len(near) == 1 else None

    def group(self, level: str) -> str:
        """The paper's group that a level of the user's attribute names; empty where there is none."""
        wanted = _plain(level)
        for group, spellings in self.groups.items():
            if wanted in map(_plain, (group, *spellings)):
                return group
        return ""


@cache
def setting() -> Setting:
    """The paper's setting, as shipped with this version of stillme."""
    data = packaged_toml("stillme.core.paper", "paper.toml")
    return Setting(
        title=data["title"],
        portraits=data["portraits"],
        portrait_source=data["portrait_source"],
        prompts=data["prompts"],
        gpu_gb=data["gpu_gb"],
        editors=tuple(PaperEditor(**(entry | {"plugins": tuple(entry["plugins"])})) for entry in data["editors"]),
        judges=tuple(PaperJudge(**entry) for entry in data["judges"]),
        groups={group: tuple(spellings) for group, spellings in data["groups"].items()},
    )


_FIRST_WORD = re.compile(r"[a-z]{4,}")


def _plain(name: str) -> str:
    return " ".join(name.casefold().replace("_", " ").replace("/", " ").split())
