"""How the paper measured, for comparison with a run's design."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache

from stillme.core.files import packaged_toml


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
