"""Find plugins by name, import them only when they are needed, and build them from their parameters."""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cache
from importlib.metadata import Distribution, EntryPoint, entry_points
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal, cast, overload

from pydantic import BaseModel, ValidationError

from stillme.core.errors import BrokenPlugin, InvalidParameters, NotReady, StillmeError, UnknownName
from stillme.core.protocols import Editor, Judge, Needs, Parameters
from stillme.core.types import Portrait, Prompt

Kind = Literal["editor", "judge", "prompt set", "portrait set"]
Buildable = Literal["editor", "judge"]

_LISTED_BY: Mapping[Kind, str] = {
    "editor": "editors",
    "judge": "judges",
    "prompt set": "prompts",
    "portrait set": "portraits",
}
"""What `stillme list` calls them, and, below `stillme.`, the entry-point group."""
_METHODS: Mapping[Buildable, tuple[str, str]] = {"editor": ("edit_one", "edit"), "judge": ("judge_one", "judge")}
_HERE = Path()


@dataclass(frozen=True, slots=True)
class Registered:
    """A registered name, not yet imported."""

    kind: Kind
    name: str
    entry: EntryPoint

    @property
    def package(self) -> str:
        """The distribution that registers it."""
        return _name_of(self.entry.dist) if self.entry.dist else "unknown"

    def load(self) -> Any:
        """Import the object behind the name."""
        try:
            return self.entry.load()
        except (Exception, SystemExit) as error:
            raise BrokenPlugin(
                f"The {self.kind} {self.name!r} of package {self.package!r} cannot be imported "
                f"({type(error).__name__}: {error}). Reinstall or remove that package."
            ) from error

    @property
    def summary(self) -> str:
        """The first line of its docstring."""
        return (inspect.getdoc(self.load()) or "").partition("\n")[0]


@cache
def _name_of(package: Distribution) -> str:
    # It reads and parses the package's metadata at every look, which a list asks for once per plugin.
    return package.name


@cache
def plugins(kind: Kind) -> Mapping[str, Registered]:
    """All plugins of a kind, by name."""
    registered: dict[str, Registered] = {}
    for entry in sorted(entry_points(group=f"stillme.{_LISTED_BY[kind]}"), key=lambda entry: entry.name):
        plugin = Registered(kind, entry.name, entry)
        other = registered.get(entry.name)
        if other and other.entry.value != entry.value:
            raise BrokenPlugin(
                f"Two packages, {other.package!r} and {plugin.package!r}, both register the {kind} {entry.name!r}. "
                "Uninstall one of them."
            )
        registered[entry.name] = plugin
    return registered


def plugin(kind: Kind, name: str) -> Registered:
    """The plugin of that name, or an error that names the closest one."""
    known = plugins(kind)
    if name not in known:
        raise UnknownName.among(kind, name, known, f"`stillme list {_LISTED_BY[kind]}` shows all.")
    return known[name]


def is_own(kind: Kind, name: str) -> bool:
    """Whether it came with stillme."""
    known = plugins(kind).get(name)
    return known is not None and known.package == "stillme"


@dataclass(frozen=True, slots=True, kw_only=True)
class PluginRecipe:
    """How to build an editor or judge anywhere: what audit.toml says of it, and the key that must come out."""

    kind: Buildable
    use: str
    parameters: Mapping[str, Any]
    base: Path
    """What relative paths among the parameters are resolved from."""
    key: str
    """Of the specification."""

    def build(self) -> Editor | Judge:
        """The same editor or judge, or an error: another version here would answer under the same name."""
        built: Editor | Judge = build(self.kind, self.use, self.parameters, base=self.base)
        if built.spec.key != self.key:
            raise BrokenPlugin(
                f"The {self.kind} {self.use!r} is another one here than where the run was started: its version or its "
                "files differ. Install the same packages and files on every machine."
            )
        return built

    @property
    def foreign(self) -> bool:
        """Whether it runs code that did not come with stillme, which may take its process down."""
        name = self.use.partition(":")[0]
        return not is_own(self.kind, name) or plugin_class(self.kind, name).runs_foreign_code


@overload
def build(
    kind: Literal["editor"], use: str, parameters: Mapping[str, Any], *, base: Path = ..., ready: bool = ...
) -> Editor: ...
@overload
def build(
    kind: Literal["judge"], use: str, parameters: Mapping[str, Any], *, base: Path = ..., ready: bool = ...
) -> Judge: ...
def build(
    kind: Buildable,
    use: str,
    parameters: Mapping[str, Any],
    *,
    base: Path = _HERE,
    ready: bool = True,
) -> Editor | Judge:
    """Build the editor or judge that `use` names, such as `noop` or `diffusers:owner/model`.

    Relative paths among the parameters are resolved from `base`. With `ready`, packages or keys that this machine
    lacks are an error (`NotReady`). Rejected parameters are `InvalidParameters`.
    """
    name, _, value = use.partition(":")
    loaded = plugin_class(kind, name)
    if value and not loaded.shorthand:
        raise StillmeError(f"{name!r} takes nothing after a colon; set {value!r} as one of its parameters.")
    given = {loaded.shorthand: value, **parameters} if value else dict(parameters)
    if ready and (lacking := unmet(_needs(loaded.needs, given))):
        raise NotReady(f"The {kind} {use!r}", lacking)
    try:
        valid = loaded.Parameters.model_validate(given)
        construct = cast("Callable[[Any], Editor | Judge]", loaded)
        return construct(valid.with_base(base) if isinstance(valid, Parameters) else valid)
    except ValidationError as error:
        hint = f"`stillme list {_LISTED_BY[kind]} {name}` shows its parameters."
        raise InvalidParameters(f"The {kind} {use!r}", error, loaded.Parameters, given, hint) from None
    except StillmeError:
        raise
    except (Exception, SystemExit) as error:
        raise _broken(plugin(kind, name), "built", error) from error


def prompt_set(name: str) -> tuple[Prompt, ...]:
    """The prompts of a registered set."""
    return _made(plugin("prompt set", name))


def portrait_set(name: str) -> tuple[Portrait, ...]:
    """The portraits of a registered set."""
    return _made(plugin("portrait set", name))


def _made(found: Registered) -> tuple[Any, ...]:
    """What the function of a set returns."""
    function = found.load()
    try:
        return tuple(function())
    except StillmeError:
        raise
    except (Exception, SystemExit) as error:
        raise _broken(found, "read", error) from error


def _broken(found: Registered, what: str, error: BaseException) -> BrokenPlugin:
    return BrokenPlugin(
        f"The {found.kind} {found.name!r} of package {found.package!r} cannot be {what} "
        f"({type(error).__name__}: {error}). Report it to the authors of that package."
    )


def unmet(needs: Needs) -> list[str]:
    """One sentence per missing package or variable, with the command that provides it."""
    missing = [module for module in needs.modules if not _is_installed(module)]
    lacking: list[str] = []
    if missing:
        target = f'"stillme[{needs.extra}]"' if needs.extra else " ".join(missing)
        lacking.append(f"{', '.join(missing)} is not installed: run `pip install {target}`")
    for variable in needs.variables:
        if not os.environ.get(variable):
            lacking.append(f"{variable} is not set: run `export {variable}=…` with your key")
    return lacking


def _needs(needs: Needs, parameters: Mapping[str, Any]) -> Needs:
    """What a plugin needs with these parameters: `key_variable` names another variable than the usual one."""
    variable = parameters.get("key_variable", parameters.get("api_key_env"))
    if not needs.variables or not isinstance(variable, str):
        return needs
    return replace(needs, variables=(variable,) if variable else ())


def _is_installed(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except ModuleNotFoundError:
        # The parent package is absent, as `google` is for `google.genai`.
        return False


def plugin_class(kind: Buildable, name: str) -> type[Editor] | type[Judge]:
    """The class of an editor or judge; what it must have is checked here."""
    registered = plugin(kind, name)
    loaded: Any = registered.load()
    base = Editor if kind == "editor" else Judge
    lacking = ""
    if not _derives(loaded, base):
        lacking = f"is not a class derived from `stillme.plugins.{base.__name__}`"
    elif all(getattr(loaded, method) is getattr(base, method) for method in _METHODS[kind]):
        lacking = f"has no `{_METHODS[kind][0]}`"
    elif not _derives(loaded.Parameters, BaseModel):
        lacking = "has `Parameters` that are not a pydantic model"
    elif not isinstance(loaded.needs, Needs):
        lacking = "has `needs` that are not `Needs`"
    if lacking:
        raise BrokenPlugin(f"The {kind} {name!r} of package {registered.package!r} {lacking}; see docs/plugins.md.")
    return loaded


def _derives(loaded: object, base: type) -> bool:
    return isinstance(loaded, type) and issubclass(loaded, base)
