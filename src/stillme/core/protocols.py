"""What an editor and a judge must be. A plugin is one class and one entry-point line.

    [project.entry-points."stillme.editors"]
    mine = "my_package.editor:MyEditor"

The class is built from its validated `Parameters`, cheaply: weights and connections come with the first call. Its
docstring's first line is what `stillme list` shows. Two class attributes are optional: `default_seed`, used where an
audit names none, and `shorthand`, the parameter that takes what follows the colon in `use = "mine:this"`.
"""

from __future__ import annotations

import ast
import inspect
import itertools
import textwrap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any, ClassVar, Protocol, Self, runtime_checkable

from pydantic import BaseModel, ConfigDict, GetJsonSchemaHandler, PrivateAttr

from stillme.core.capabilities import Capabilities, JudgeCapabilities, Needs
from stillme.core.types import Arm, Assessment, EditOutcome, Json, Pair, Portrait, Prompt, Request, Spec


class Section(BaseModel):
    """A table of a TOML file. Unknown keys are mistakes."""

    # A command imports many of them and reads few: what checks a value is made with the first one.
    model_config = ConfigDict(extra="forbid", frozen=True, defer_build=True)

    @classmethod
    def __get_pydantic_json_schema__(cls, core_schema: Any, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        # Not pydantic's `use_attribute_docstrings`: it reads the source of every section whenever one is imported.
        schema = handler(core_schema)
        properties = handler.resolve_ref_schema(schema).get("properties", {})
        for name, text in documented_fields(cls).items():
            if name in properties:
                properties[name].setdefault("description", text)
        return schema


@cache
def documented_fields(record: type) -> dict[str, str]:
    """Docstrings of a record's fields, inherited ones included; none of a class without source."""
    found: dict[str, str] = {}
    for base in reversed(record.__mro__):
        # Classes that were made at run time, or in C, have no source.
        with suppress(OSError, TypeError):
            found |= documented(textwrap.dedent(inspect.getsource(base)))
    return found


def documented(source: str) -> dict[str, str]:
    """Names that are assigned or annotated, with the string that follows them."""
    found: dict[str, str] = {}
    tree: Sequence[ast.stmt] = ast.parse(source).body
    for body in (tree, *(node.body for node in tree if isinstance(node, ast.ClassDef))):
        for statement, after in itertools.pairwise(body):
            match statement, after:
                case (
                    ast.AnnAssign(target=ast.Name(id=name)) | ast.Assign(targets=[ast.Name(id=name)]),
                    ast.Expr(value=ast.Constant(value=str(text))),
                ):
                    found[name] = inspect.cleandoc(text)
                case _:
                    pass
    return found


class Parameters(Section):
    """What a plugin lets an audit set. Unknown keys are mistakes."""

    unkeyed: ClassVar[frozenset[str]] = frozenset()
    """Parameters that are recorded and change no result: their value is not part of the key."""

    _folder: Path = PrivateAttr(default_factory=Path)

    def with_base(self, folder: Path) -> Self:
        """Resolve relative paths from this folder, usually that of audit.toml. Returns the same parameters."""
        self._folder = folder
        return self

    def path(self, written: str) -> Path:
        """Resolve a path among the parameters. The spec keeps it as written, so a run can move."""
        return self._folder / Path(written).expanduser()


@runtime_checkable
class Editor(Protocol):
    """Turns a portrait and an instruction into an outcome."""

    Parameters: ClassVar[type[BaseModel]]
    needs: ClassVar[Needs]
    spec: Spec
    capabilities: Capabilities

    def edit(self, requests: Sequence[Request]) -> Iterator[EditOutcome]:
        """One outcome per request, in order. What goes wrong is a `Failed`, not an exception."""
        ...

    def close(self) -> None:
        """Release memory, processes, connections. May be called more than once."""
        ...


@runtime_checkable
class Judge(Protocol):
    """Rates what changed between a source and its edit."""

    Parameters: ClassVar[type[BaseModel]]
    needs: ClassVar[Needs]
    spec: Spec
    capabilities: JudgeCapabilities

    def judge(self, pairs: Sequence[Pair]) -> Iterator[Assessment]:
        """One assessment per pair, in order. What goes wrong is a `Failed` rating, not an exception."""
        ...

    def close(self) -> None:
        """Release memory, processes, connections. May be called more than once."""
        ...


@runtime_checkable
class ChecksRequests(Protocol):
    """An editor or judge that checks its settings and the requests before the first one is made. Optional."""

    def problems(self, portraits: Sequence[Portrait], prompts: Sequence[Prompt]) -> Iterator[str]:
        """One sentence per problem: which parameter, portrait or prompt, and what to write instead."""
        ...


@runtime_checkable
class NeedsCasts(Protocol):
    """An editor that must know which people a role prompt is asked with. Optional."""

    def set_casts(self, casts: Sequence[tuple[Sequence[Portrait], Prompt]]) -> None:
        """Called before `problems`, with the portraits of every request that role prompts make."""
        ...


@runtime_checkable
class ChecksMachine(Protocol):
    """An editor or judge that knows more of what a machine must have than `Needs` says. Optional; for the doctor."""

    def lacking(self, *, online: bool) -> Iterator[str]:
        """One sentence per lack: what, and what to do. Asks other computers only if `online`."""
        ...


@runtime_checkable
class NeedsPortraits(Protocol):
    """An editor that needs all portraits of the audit, not only the one to edit. Optional; for known-answer editors."""

    def set_portraits(self, portraits: Sequence[Portrait]) -> None:
        """Called once, before anything else."""
        ...


@runtime_checkable
class NeedsPrompts(Protocol):
    """An editor that needs all prompts of the audit, in their order. Optional; for files that are named by number."""

    def set_prompts(self, prompts: Sequence[Prompt]) -> None:
        """Called once, before anything else."""
        ...


@runtime_checkable
class ChecksSeeds(Protocol):
    """An editor that cannot take every seed. Optional."""

    def seed_problems(self, seeds: Sequence[int]) -> Iterator[str]:
        """One sentence per problem with the seeds that the audit names."""
        ...


@runtime_checkable
class HasNotes(Protocol):
    """An editor with something to tell before its first edit that stops nothing. Optional."""

    def notes(self, requests: Iterable[Request]) -> Iterator[str]:
        """One sentence each; `requests` are all of the audit."""
        ...


@runtime_checkable
class Priced(Protocol):
    """An editor or judge that costs money. Optional; without it, `stillme plan` counts zero."""

    def expected_dollars(self) -> float | None:
        """The approximate cost of one edit or one judgement; None if unknown."""
        ...


def expected_dollars(plugin: object) -> float | None:
    """The approximate cost of one call: zero for a plugin that is not `Priced`, None if unknown."""
    if not isinstance(plugin, Priced):
        return 0.0
    try:
        return plugin.expected_dollars()
    except ModuleNotFoundError:
        # The price list comes with an extra; planning must work without it.
        return None


class Jobs(Protocol):
    """Work that providers have accepted, by the request's key. Safe to use from any thread."""

    def open(self, key: str) -> str | None:
        """The job to ask for, if there is one."""
        ...

    def add(self, key: str, job: str) -> None:
        """Remember a job. On return, a crash does not lose it."""
        ...

    def answered(self, key: str) -> None:
        """The job gave a picture or a refusal, which is about to be saved."""
        ...

    def end(self, key: str) -> None:
        """Forget a job that gives no picture, so that a new one may be made."""
        ...


@runtime_checkable
class Resumable(Protocol):
    """An editor whose provider queues work, which must be paid for once. Optional."""

    def remember_in(self, jobs: Jobs) -> None:
        """Called before the first edit. A request whose job is open asks for that job instead of making another."""
        ...


@runtime_checkable
class EndsCalls(Protocol):
    """An editor that works in processes of its own, and ends one that hangs. Optional.

    Others cannot be ended from outside: after its time limit nobody waits for such a call any longer.
    """

    def end_calls_after(self, seconds: float) -> None:
        """Called before the first edit, with its time limit."""
        ...


@runtime_checkable
class TakesGpus(Protocol):
    """An editor or judge whose parameters decide how many GPUs one worker takes. Optional; else `needs.gpus`."""

    @property
    def gpus(self) -> int:
        """0 to work on a CPU."""
        ...


@runtime_checkable
class NamesDevices(Protocol):
    """An editor whose parameters may name the devices that it computes on. Optional.

    Where all editors of a machine do, those that share none work at the same time.
    """

    @property
    def devices(self) -> tuple[str, ...]:
        """Such as `cuda:1`; empty where it takes whichever there is."""
        ...


@runtime_checkable
class HasProvider(Protocol):
    """A hosted editor or judge. Optional.

    It works in the process that was started, whatever the executor, under one rate limit. Editors and judges of
    different providers are asked at the same time; judges also while edits are still made.
    """

    @property
    def provider(self) -> str:
        """The provider's address: editors that share it are asked one after the other, and so are judges."""
        ...


@runtime_checkable
class Fingerprinted(Protocol):
    """An editor that knows its result beforehand, such as a folder of finished edits. Optional."""

    def fingerprint(self, portraits: tuple[Portrait, ...], prompt: Prompt, arm: Arm, seed: int) -> str:
        """The hash of the picture that it would return; empty if there is none."""
        ...


@runtime_checkable
class KeepsWeights(Protocol):
    """An editor whose weights have a name that can move, such as a branch of a repository. Optional.

    It stores what the name meant as `weights` among the effective parameters of each edit.
    """

    def keep_weights(self, recorded: Sequence[Mapping[str, Json]]) -> None:
        """Called before the first edit with the different `weights` of the edits under its key that a run has.

        Further edits must be made with the same, or fail.
        """
        ...


@runtime_checkable
class ReadsFiles(Protocol):
    """An editor whose edits are made elsewhere and read from files. Optional."""

    def expected_file(self, portraits: Sequence[Portrait], prompt: Prompt, arm: Arm, seed: int) -> Path:
        """Where the file of a request must be; raises `ValueError` with the reason if there is no such place."""
        ...


@runtime_checkable
class KnowsAnswers(Protocol):
    """An editor that knows what it planted. Optional; for demos, tests and calibration."""

    @property
    def planted(self) -> tuple[str, tuple[str, ...]]:
        """The attribute that it treats differently, and the levels that it treats so."""
        ...

    def expected(self, quantity: str, portrait: Portrait) -> float | None:
        """The planted value of a quantity, on average over edits of this portrait; None if it plants none."""
        ...


class ValidityCard(Protocol):
    """What one instrument measures, on which data, and how reliable it is."""

    @property
    def title(self) -> str:
        """The instrument's name."""
        ...

    @property
    def axes(self) -> tuple[str, ...]:
        """The axes that it answers."""
        ...

    @property
    def paragraphs(self) -> Mapping[str, str]:
        """What it measures, how, under which licence, its noise floor, known failures."""
        ...

    @property
    def rows(self) -> Sequence[Sequence[str]]:
        """Measured numbers by group; the first row names the columns."""
        ...

    def text(self) -> str:
        """The card for a terminal."""
        ...


@runtime_checkable
class HasValidityCards(Protocol):
    """A judge with validity cards. Optional."""

    def cards(self) -> Sequence[ValidityCard]:
        """One card per instrument."""
        ...


def spec_of(use: str, version: str, parameters: BaseModel) -> Spec:
    """The specification that keys a plugin's results: its name, version, and parameters with defaults filled in."""
    stated: Mapping[str, object] = parameters.model_dump(mode="json")
    names = parameters.unkeyed if isinstance(parameters, Parameters) else frozenset[str]()
    defaults = {name: type(parameters).model_fields[name].default for name in names}
    unkeyed = {name: stated[name] for name in sorted(names) if stated[name] != defaults[name]}
    return Spec(use=use, version=version, parameters={**stated, **defaults}, unkeyed=unkeyed)
