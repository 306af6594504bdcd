"""What editors and judges are made of. A plugin is one class with one method, and one entry-point line.

    [project.entry-points."stillme.editors"]
    mine = "my_package.editor:MyEditor"

The class is built from its validated `Parameters`, cheaply: weights and connections come with the first call. Its
docstring's first line is what `stillme list` shows. Everything but `edit_one` or `judge_one` has a default.
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

from stillme.core.capabilities import AcceptedJobs, Capabilities, JudgeCapabilities, Needs
from stillme.core.errors import UnreadableImage
from stillme.core.types import (
    Arm,
    Assessment,
    EditOutcome,
    Failed,
    Json,
    Pair,
    Portrait,
    Prompt,
    Rating,
    Request,
    Spec,
)


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
    return {name: text for base in reversed(record.__mro__) for name, text in _documented_in(base).items()}


@cache
def _documented_in(base: type) -> dict[str, str]:
    # Classes that were made at run time, or in C, have no source.
    with suppress(OSError, TypeError):
        return documented(textwrap.dedent(inspect.getsource(base)))
    return {}


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


_UNREADABLE = (UnreadableImage, FileNotFoundError, PermissionError)
"""What a picture raises that cannot be read. Not every `OSError`: a connection that breaks may work again."""


class Plugin:
    """What editors and judges have in common."""

    Parameters: ClassVar[type[BaseModel]] = Parameters
    needs: ClassVar[Needs] = Needs()
    name: ClassVar[str] = ""
    """Its name in audits; by default the class's, in small letters."""
    version: ClassVar[str] = "1"
    """Part of every result's key: change it whenever the same input would give another output."""
    shorthand: ClassVar[str] = ""
    """The parameter that takes what follows the colon in `use = "mine:this"`."""
    runs_foreign_code: ClassVar[bool] = False
    """Whether it calls code of the user's, which may take its process down."""
    spec: Spec
    """What keys its results."""

    def __init__(self, parameters: BaseModel) -> None:
        self.spec = spec_of(self.name or type(self).__name__.lower(), self.version, parameters)

    def problems(self, portraits: Sequence[Portrait], prompts: Sequence[Prompt]) -> Iterator[str]:
        """One sentence per problem before the first call: which setting, portrait or prompt, and what to write."""
        return iter(())

    def lacking(self, *, online: bool) -> Iterator[str]:
        """What the machine lacks besides `needs`, and what to do. Asks other computers only if `online`."""
        return iter(())

    def expected_dollars(self) -> float | None:
        """The approximate cost of one edit or one judgement; None if unknown."""
        return 0.0

    @property
    def gpus(self) -> int:
        """GPUs that one worker takes; 0 to work on a CPU."""
        return self.needs.gpus

    @property
    def provider(self) -> str:
        """The address of its provider; empty if it works on this machine.

        Such a plugin works in the process that was started, whatever the executor, under one rate limit. Those that
        share a provider are asked in turn, others at the same time; judges also while edits are still made.
        """
        return ""

    def close(self) -> None:
        """Release memory, processes, connections. May be called more than once."""


class Editor(Plugin):
    """Turns a portrait and an instruction into an outcome. Override `edit_one`, or `edit` to make several at once."""

    capabilities: Capabilities = Capabilities()
    default_seed: ClassVar[int] = 0
    """Used where an audit names none."""
    more_inputs: ClassVar[str] = ""
    """What a message about too many portraits adds."""

    def edit_one(self, request: Request) -> EditOutcome:
        """The outcome of one request, which has no more portraits than `capabilities.inputs`."""
        return next(iter(self.edit([request])))

    def edit(self, requests: Sequence[Request]) -> Iterator[EditOutcome]:
        """One outcome per request, in order. What goes wrong is a `Failed`, not an exception."""
        for request in requests:
            given, taken = len(request.portraits), self.capabilities.inputs
            if given > taken:
                error = f"{self.spec.use} takes {taken} portrait{'s' * (taken > 1)}, not {given}{self.more_inputs}"
                yield Failed(error=error, retryable=False)
                continue
            try:
                outcome = self.edit_one(request)
            except _UNREADABLE as unreadable:
                outcome = Failed(error=str(unreadable), retryable=False)
            yield outcome

    def seed_problems(self, seeds: Sequence[int]) -> Iterator[str]:
        """One sentence per problem with the seeds that the audit names."""
        return iter(())

    def notes(self, requests: Iterable[Request]) -> Iterator[str]:
        """What to tell before the first edit that stops nothing; `requests` are all of the audit."""
        return iter(())

    @property
    def devices(self) -> tuple[str, ...]:
        """Those that its parameters name, such as `cuda:1`; empty where it takes whichever there is.

        Where all editors of a machine name theirs, those that share none work at the same time.
        """
        return ()

    # -- what a run tells it before the first edit ------------------------------------------------------------------

    def set_portraits(self, portraits: Sequence[Portrait]) -> None:
        """All portraits of the audit, for known-answer editors."""

    def set_prompts(self, prompts: Sequence[Prompt]) -> None:
        """All prompts of the audit in their order, for files that are named by number."""

    def set_casts(self, casts: Sequence[tuple[Sequence[Portrait], Prompt]]) -> None:
        """The portraits of every request that role prompts make."""

    def remember_in(self, jobs: AcceptedJobs) -> None:
        """Where a provider's queued work is remembered, which must be paid for once.

        A request whose job is open asks for that job instead of making another.
        """

    def end_calls_after(self, seconds: float) -> None:
        """The time limit of a call, for editors with processes of their own, which end one that hangs."""

    def keep_weights(self, recorded: Sequence[Mapping[str, Json]]) -> None:
        """What the run's edits under its key were made with, where the name of weights can move, such as a branch.

        It stores that as `weights` among the effective parameters. Further edits must be made with the same, or fail.
        """

    # -- edits that are known beforehand ----------------------------------------------------------------------------

    def fingerprint(self, portraits: tuple[Portrait, ...], prompt: Prompt, arm: Arm, seed: int) -> str:
        """The hash of the picture that it would return, such as a finished file's; empty if there is none."""
        return ""

    def expected_file(self, portraits: Sequence[Portrait], prompt: Prompt, arm: Arm, seed: int) -> Path | None:
        """Where the file of an edit made elsewhere must be; raises `ValueError` with the reason if nowhere."""
        return None

    @property
    def planted(self) -> tuple[str, tuple[str, ...]] | None:
        """Of a known-answer editor: the attribute that it treats differently, and the levels that it treats so."""
        return None

    def expected(self, quantity: str, portrait: Portrait) -> float | None:
        """The planted value of a quantity, on average over edits of this portrait; None if it plants none."""
        return None


class Judge(Plugin):
    """Rates what changed between a source and its edit. Override `judge_one`, or `judge` to rate several at once."""

    capabilities: JudgeCapabilities

    def judge_one(self, pair: Pair) -> Assessment:
        """The assessment of one pair, with a rating on every axis."""
        return next(iter(self.judge([pair])))

    def judge(self, pairs: Sequence[Pair]) -> Iterator[Assessment]:
        """One assessment per pair, in order. What goes wrong is a `Failed` rating, not an exception."""
        for pair in pairs:
            try:
                assessment = self.judge_one(pair)
            except _UNREADABLE as unreadable:
                assessment = self.alike(Failed(error=str(unreadable), retryable=False))
            yield assessment

    def alike(self, rating: Rating, **more: Any) -> Assessment:
        """The same rating on every axis."""
        return Assessment(ratings=dict.fromkeys(self.capabilities.axes, rating), **more)

    def cards(self) -> Sequence[ValidityCard]:
        """The validity card of each instrument."""
        return ()


def overrides(plugin: Plugin, method: str) -> bool:
    """Whether a plugin has its own method, where calling the default would be a waste."""
    base = Editor if isinstance(plugin, Editor) else Judge
    return getattr(type(plugin), method) is not getattr(base, method)


@runtime_checkable
class Priced(Protocol):
    """What may cost money: every editor and judge, and some extractors of features."""

    def expected_dollars(self) -> float | None:
        """The approximate cost of one edit or one judgement; None if unknown."""
        ...


def expected_dollars(plugin: object) -> float | None:
    """The approximate cost of one call; None if unknown."""
    if not isinstance(plugin, Priced):
        return 0.0
    try:
        return plugin.expected_dollars()
    except ModuleNotFoundError:
        # The price list comes with an extra; planning must work without it.
        return None


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


def spec_of(use: str, version: str, parameters: BaseModel) -> Spec:
    """The specification that keys a plugin's results: its name, version, and parameters with defaults filled in."""
    stated: Mapping[str, object] = parameters.model_dump(mode="json")
    names = parameters.unkeyed if isinstance(parameters, Parameters) else frozenset[str]()
    defaults = {name: type(parameters).model_fields[name].default for name in names}
    unkeyed = {name: stated[name] for name in sorted(names) if stated[name] != defaults[name]}
    return Spec(use=use, version=version, parameters={**stated, **defaults}, unkeyed=unkeyed)


def revision_note(place: str) -> str:
    """What to say where another checkpoint may come behind the same place, which only the user knows."""
    return (
        f"`revision` is not set, so a new checkpoint behind {place} will not be noticed, nor its edits "
        'made again; write revision = "…" in its parameters and change it with the checkpoint'
    )
