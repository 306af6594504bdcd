"""Functions of the user's own: find them by name, check what they ask for, and name them by their source."""

from __future__ import annotations

import functools
import hashlib
import importlib
import inspect
import sys
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.machinery import PathFinder
from importlib.util import module_from_spec, spec_from_file_location
from inspect import Parameter, Signature
from pathlib import Path
from types import ModuleType
from typing import Any, cast

from pydantic import Field

from stillme.core.errors import StillmeError, did_you_mean
from stillme.core.files import sha256_of
from stillme.core.protocols import Parameters
from stillme.core.types import Json, Spec, digest

_HOW = "Write `python:module:function`, or `python:./file.py:function` for a file"
_PREFIX = "stillme_function_"
_imported: dict[str, tuple[Path, str]] = {}
"""Modules from a folder of the user's: their file, and its hash when it was imported."""


class FunctionParameters(Parameters):
    """Which function, and what it is called with."""

    function: str = Field(min_length=1)
    """`module:function`, or `./file.py:function`."""
    arguments: dict[str, Json] = {}
    """Further keyword arguments of the function."""
    version: str = Field(default="", exclude=True)
    """Replaces the hash of the source; change it when its behaviour changes for a reason outside its file."""
    concurrency: int = Field(default=1, ge=1, le=256, exclude=True)
    """Calls at once, in threads; above 1 the function must be thread-safe."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Function:
    """A function, the arguments that it is always called with, and what identifies its results."""

    call: Callable[..., Any]
    name: str
    """`module:function`."""
    version: str
    arguments: Mapping[str, Json]

    @classmethod
    def of(cls, parameters: FunctionParameters, function: Callable[..., Any] | None = None) -> Function:
        """A function at hand, or the one that the parameters name, from the audit's folder or the environment."""
        name = parameters.function
        if function is None:
            module_name, colon, qualified = name.rpartition(":")
            if not (colon and module_name and qualified):
                raise StillmeError(f"{name!r} names no function. {_HOW}.")
            module = _import(module_name, parameters.path("").resolve())
            stem = Path(module_name).stem if _is_file(module_name) else module_name
            function, name = _member(module, module_name, qualified), f"{stem}:{qualified}"
        version = parameters.version or source_hash(function)
        return cls(call=function, name=name, version=version, arguments=parameters.arguments)

    def spec(self, parameters: FunctionParameters) -> Spec:
        """What keys its results: name, source or version, and arguments, but not where the file is."""
        stated = parameters.model_dump(mode="json") | {"function": self.name}
        return Spec(use="python", version=self.version, parameters=stated)

    def asks_for(self, name: str) -> bool:
        """Whether it has a parameter of that name."""
        try:
            return name in inspect.signature(self.call).parameters
        except (ValueError, TypeError):
            return False

    def problems(self, supplied: Iterable[str]) -> Iterator[str]:
        """Why a call with these names must fail."""
        known = tuple(supplied)
        if inspect.iscoroutinefunction(self.call):
            yield f"{self.name!r} is async; write a plain function that returns the result"
            return
        try:
            signature = inspect.signature(self.call)
        except (ValueError, TypeError):
            yield f"{self.name!r} does not tell its parameters; wrap it in a function of your own"
            return
        listed = ", ".join(known)
        for parameter in signature.parameters.values():
            if _is_required(parameter) and parameter.name not in {*known, *self.arguments}:
                yield (
                    f"{self.name!r} needs {parameter.name!r}, which is not supplied; rename it to one of {listed}, "
                    f"or set `arguments.{parameter.name}`"
                )
        takes_any = any(parameter.kind is Parameter.VAR_KEYWORD for parameter in signature.parameters.values())
        for argument in self.arguments:
            if argument in known:
                yield f"`arguments.{argument}` is not yours to set: every request has its own"
            elif argument not in signature.parameters and not takes_any:
                yield f"`arguments.{argument}` is no parameter of {self.name!r}; it has {_names(signature)}"

    def __call__(self, supplied: Mapping[str, Any]) -> Any:
        """Call it with those of the supplied values that it asks for, by name."""
        values = {**self.arguments, **supplied}
        positional: list[Any] = []
        named: dict[str, Any] = {}
        for parameter in inspect.signature(self.call).parameters.values():
            if parameter.kind is Parameter.VAR_KEYWORD:
                named |= {name: value for name, value in values.items() if name not in named}
            elif parameter.name in values and parameter.kind is Parameter.POSITIONAL_ONLY:
                positional.append(values[parameter.name])
            elif parameter.name in values and parameter.kind is not Parameter.VAR_POSITIONAL:
                named[parameter.name] = values[parameter.name]
        return self.call(*positional, **named)


def name_of(function: Callable[..., Any]) -> str:
    """`module:function` of a function that is at hand."""
    plain = _unwrapped(function)
    return f"{getattr(plain, '__module__', '')}:{getattr(plain, '__qualname__', type(plain).__qualname__)}"


def source_hash(function: Callable[..., Any]) -> str:
    """128 bits over the file that defines a function, or over its own source or code, and the values bound to it."""
    plain = _unwrapped(function)
    if not (inspect.isroutine(plain) or inspect.isclass(plain)):
        plain = cast("Any", type(plain))
    return digest([hashlib.sha256(_source(plain)).hexdigest(), _bound_values(function)])


def _source(plain: Any) -> bytes:
    try:
        file = inspect.getsourcefile(plain)
        if file and Path(file).is_file():
            return Path(file).read_bytes()
        return inspect.getsource(plain).encode()
    except (OSError, TypeError):
        code = getattr(plain, "__code__", None)
        if code is None:
            raise StillmeError(f"The source of {name_of(plain)!r} is not at hand; set `version`.") from None
        return repr((code.co_code, code.co_names, _plain(code.co_consts))).encode()


def _unwrapped(function: Callable[..., Any]) -> Any:
    partial = _as_partial(function)
    return _unwrapped(partial.func) if partial else inspect.unwrap(function)


def _as_partial(function: Callable[..., Any]) -> functools.partial[Any] | None:
    return cast("functools.partial[Any]", function) if isinstance(function, functools.partial) else None


def _bound_values(function: Callable[..., Any]) -> Json:
    """Arguments of a partial and values in a closure: the source alone does not tell `scale(2)` from `scale(3)`."""
    if partial := _as_partial(function):
        named = {name: _plain(value) for name, value in partial.keywords.items()}
        return [_plain(partial.args), named, _bound_values(partial.func)]
    return [_plain(_contents(cell)) for cell in getattr(function, "__closure__", None) or ()]


def _contents(cell: Any) -> Any:
    try:
        return cell.cell_contents
    except ValueError:  # not filled yet
        return None


def _plain(value: Any) -> Json:
    """Plain data as it is; of anything else only its type, as a memory address would be another one every time."""
    if isinstance(value, str | int | float | bool | None):
        return value
    if isinstance(value, tuple | list):
        return [_plain(item) for item in cast("Sequence[Any]", value)]
    return f"{type(value).__module__}.{type(value).__qualname__}"


def _is_required(parameter: Parameter) -> bool:
    variadic = (Parameter.VAR_POSITIONAL, Parameter.VAR_KEYWORD)
    return parameter.default is Parameter.empty and parameter.kind not in variadic


def _names(signature: Signature) -> str:
    return ", ".join(signature.parameters) or "none"


# -- finding a function by name ---------------------------------------------------------------------------------------


def _is_file(module_name: str) -> bool:
    return module_name.endswith(".py") or "/" in module_name


def _member(module: ModuleType, module_name: str, qualified: str) -> Callable[..., Any]:
    member: Any = module
    for part in qualified.split("."):
        if not hasattr(member, part):
            known = [name for name in dir(member) if callable(getattr(member, name)) and not name.startswith("_")]
            close = did_you_mean(part, known) or f" It has {', '.join(known) or 'none'}."
            raise StillmeError(f"{module_name!r} has no function {qualified!r}.{close}")
        member = getattr(member, part)
    if not callable(member):
        raise StillmeError(f"{module_name}:{qualified} is not a function, but {type(member).__name__}. {_HOW}.")
    return member


def _import(module_name: str, base: Path) -> ModuleType:
    """The module of that name or file, from the folder first, else from the environment."""
    file = (base / Path(module_name).expanduser()).resolve() if _is_file(module_name) else None
    folder = file.parent if file else base
    try:
        _forget_unless_current(folder)
        with _on_path(folder):
            return _import_file(file) if file else _import_named(module_name, folder)
    except StillmeError:
        raise
    except ModuleNotFoundError as error:
        if error.name is None or not f"{module_name}.".startswith(f"{error.name}."):
            raise _unimportable(module_name, error) from error
        known = [other.stem for other in folder.glob("*.py")]
        raise StillmeError(
            f"There is no module {module_name!r}, neither in {folder} nor installed."
            f"{did_you_mean(module_name, known)} {_HOW}."
        ) from None
    except (Exception, SystemExit) as error:
        raise _unimportable(module_name, error) from error


def _unimportable(module_name: str, error: BaseException) -> StillmeError:
    return StillmeError(
        f"{module_name!r} cannot be imported ({type(error).__name__}: {error}). Correct it, or install what it needs."
    )


def _import_file(file: Path) -> ModuleType:
    # Under its own name it could replace an installed module, such as `json`.
    name = f"{_PREFIX}{digest(str(file))}"
    if name in sys.modules:
        return sys.modules[name]
    if not file.is_file():
        known = [other.name for other in file.parent.glob("*.py")]
        raise StillmeError(f"There is no file {file}.{did_you_mean(file.name, known)} {_HOW}.")
    spec = spec_from_file_location(name, file)
    if spec is None or spec.loader is None:
        raise StillmeError(f"{file} is not a Python file. {_HOW}.")
    module = sys.modules[name] = module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    return module


def _import_named(name: str, folder: Path) -> ModuleType:
    top = name.partition(".")[0]
    here, loaded = PathFinder.find_spec(top, [str(folder)]), sys.modules.get(top)
    if here and here.origin and loaded and loaded.__spec__ and loaded.__spec__.origin != here.origin:
        raise StillmeError(
            f"The module {top!r} of {folder} cannot be imported, as another one has its name "
            f"({loaded.__spec__.origin}). Rename yours, or write `python:./{Path(here.origin).name}:function`."
        )
    return importlib.import_module(name)


def _forget_unless_current(folder: Path) -> None:
    """Have modules imported again that changed, or that share their name with some of another folder.

    The hash of the file keys the results, so the file must be what runs.
    """
    current = all(
        file.is_relative_to(folder) and file.is_file() and sha256_of(file) == sha256
        for file, sha256 in _imported.values()
    )
    if not current:
        for name in _imported:
            sys.modules.pop(name, None)
        _imported.clear()


@contextmanager
def _on_path(folder: Path) -> Generator[None]:
    """First on the path while a module is imported, last afterwards: it may import its neighbours in a call, too.

    No bytecode is written: its time stamp is in seconds, so a file that is changed at once would be run as it was.
    """
    entry, writes_none, before = str(folder), sys.dont_write_bytecode, set(sys.modules)
    importlib.invalidate_caches()
    sys.path.insert(0, entry)
    sys.dont_write_bytecode = True
    try:
        yield
    finally:
        sys.dont_write_bytecode = writes_none
        sys.path.remove(entry)
        if entry not in sys.path:
            sys.path.append(entry)
        for name in set(sys.modules) - before:
            file = Path(getattr(sys.modules[name], "__file__", None) or "")
            if file.is_file() and file.is_relative_to(folder) and _lies_in(folder, file, name):
                _imported[name] = file, sha256_of(file)


def _lies_in(folder: Path, file: Path, name: str) -> bool:
    """Whether a module was found in the folder itself, not in an environment or a checkout somewhere below it."""
    top = name.partition(".")[0]
    return file.relative_to(folder).parts[0] in (top, f"{top}.py") or top.startswith(_PREFIX)
