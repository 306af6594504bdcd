"""Find plugins by name, and import them only when they are wanted."""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from importlib.util import find_spec
from typing import Any, Literal, cast

from stillme.errors import BrokenPlugin, UnknownName
from stillme.protocols import Editor, Judge, Needs
from stillme.types import Portrait, Prompt

Kind = Literal["editor", "judge", "prompt set", "portrait set"]

_GROUPS: Mapping[Kind, str] = {
    "editor": "stillme.editors",
    "judge": "stillme.judges",
    "prompt set": "stillme.prompts",
    "portrait set": "stillme.portraits",
}
_LISTED_BY: Mapping[Kind, str] = {
    "editor": "editors",
    "judge": "judges",
    "prompt set": "prompts",
    "portrait set": "portraits",
}


@dataclass(frozen=True, slots=True)
class Plugin:
    """A registered name, not yet imported."""

    kind: Kind
    name: str
    entry: EntryPoint

    @property
    def package(self) -> str:
        """The distribution that brought it."""
        return self.entry.dist.name if self.entry.dist else "unknown"

    def load(self) -> Any:
        """Import the object behind the name."""
        try:
            return self.entry.load()
        except Exception as error:
            raise BrokenPlugin(
                f"The {self.kind} {self.name!r} of package {self.package!r} cannot be imported "
                f"({type(error).__name__}: {error}). Reinstall or remove that package."
            ) from error

    @property
    def summary(self) -> str:
        """The first line of its docstring."""
        return (inspect.getdoc(self.load()) or "").partition("\n")[0]


@cache
def plugins(kind: Kind) -> Mapping[str, Plugin]:
    """All plugins of a kind, by name."""
    found: dict[str, Plugin] = {}
    for entry in sorted(entry_points(group=_GROUPS[kind]), key=lambda entry: entry.name):
        plugin = Plugin(kind, entry.name, entry)
        other = found.get(entry.name)
        if other and other.entry.value != entry.value:
            raise BrokenPlugin(
                f"Two packages, {other.package!r} and {plugin.package!r}, both register the {kind} {entry.name!r}. "
                "Uninstall one of them."
            )
        found[entry.name] = plugin
    return found


def plugin(kind: Kind, name: str) -> Plugin:
    """The plugin of that name, or an error that names the nearest one."""
    known = plugins(kind)
    if name not in known:
        raise UnknownName.among(kind, name, known, f"`stillme list {_LISTED_BY[kind]}` shows all.")
    return known[name]


def editor_class(name: str) -> type[Editor]:
    """The class of an editor; `Parameters`, `needs` and the protocol's methods are checked here."""
    return cast("type[Editor]", _checked("editor", name, ("Parameters", "needs", "edit", "close")))


def judge_class(name: str) -> type[Judge]:
    """The class of a judge, checked like an editor's."""
    return cast("type[Judge]", _checked("judge", name, ("Parameters", "needs", "judge", "close")))


def prompt_set(name: str) -> tuple[Prompt, ...]:
    """The prompts of a registered set."""
    return cast("Callable[[], tuple[Prompt, ...]]", plugin("prompt set", name).load())()


def portrait_set(name: str) -> tuple[Portrait, ...]:
    """The portraits of a registered set."""
    return cast("Callable[[], tuple[Portrait, ...]]", plugin("portrait set", name).load())()


def unmet(needs: Needs) -> list[str]:
    """What this machine lacks, each as the command or variable that brings it."""
    missing = [module for module in needs.modules if not _is_installed(module)]
    lacking: list[str] = []
    if missing:
        target = f'"stillme[{needs.extra}]"' if needs.extra else " ".join(missing)
        lacking.append(f"{', '.join(missing)} is not installed: run `pip install {target}`")
    for variable in needs.variables:
        if not os.environ.get(variable):
            lacking.append(f"{variable} is not set: run `export {variable}=…` with your key")
    return lacking


def _is_installed(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except ModuleNotFoundError:
        # The package around it is absent, as `google` is for `google.genai`.
        return False


def _checked(kind: Kind, name: str, members: tuple[str, ...]) -> Any:
    found = plugin(kind, name)
    loaded = found.load()
    absent = [member for member in members if not hasattr(loaded, member)]
    if absent:
        raise BrokenPlugin(
            f"The {kind} {name!r} of package {found.package!r} lacks {', '.join(absent)}; "
            "see `stillme.protocols` for what a plugin must have."
        )
    return loaded
