"""Errors a user can act on: each says what, which one, and what to do next."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any, cast, get_args

if TYPE_CHECKING:  # `stillme --help` imports this module, and pydantic takes longer than the rest of it
    from pydantic import BaseModel, ValidationError
    from pydantic_core import ErrorDetails


class StillmeError(Exception):
    """The user's mistake or the machine's state; shown as one sentence, without a traceback."""

    exit_code = 2
    """What a command ends with."""


class Interrupted(StillmeError):
    """The user or the system asked for an end; everything finished is saved."""

    exit_code = 130


class StillRecording(StillmeError):
    """The requests of a run are not all recorded yet, so nothing can be computed from it. Nothing is wrong."""

    exit_code = 3


class StillImporting(StillmeError):
    """The rows of a file are not all in the run yet."""

    exit_code = 3


class UnknownName(StillmeError):
    """A name that nothing answers to."""

    @classmethod
    def among(cls, kind: str, name: str, known: Iterable[str], hint: str) -> UnknownName:
        """Say what is unknown, the nearest known name, and where to see all of them."""
        return cls(f"Unknown {kind} {name!r}.{did_you_mean(name, known)} {hint}")


class MissingExtra(StillmeError):
    """A plugin needs packages that are not installed."""


class BrokenPlugin(StillmeError):
    """A plugin is installed but cannot be loaded or does not keep the protocol."""


class NotReady(StillmeError):
    """A plugin needs packages or keys that this machine lacks."""

    def __init__(self, subject: str, lacking: Iterable[str]) -> None:
        self.lacking = tuple(lacking)
        super().__init__(f"{subject} cannot work here: {'; '.join(self.lacking)}.")


class InvalidParameters(StillmeError):
    """Parameters that a plugin rejects. Carries pydantic's error for callers that know the line of each parameter."""

    def __init__(
        self, subject: str, error: ValidationError, model: type[BaseModel], given: Mapping[str, Any], hint: str = ""
    ) -> None:
        self.error, self.model, self.given = error, model, given
        problems = "; ".join(_placed(detail, model) for detail in error.errors(include_url=False))
        super().__init__(f"{subject} cannot be built: {problems}. {hint}".rstrip())


class Refusal(Exception):
    """Raised by an editor's function that declines; the words are kept as they are. A finding, never an error."""


class UnreadableImage(StillmeError):
    """A file that is no usable picture."""


class StoreBusy(StillmeError):
    """Another process is writing to the run."""


class StoreUnwritable(StillmeError):
    """The run's ledger cannot be written to here."""


class PicturesUnreachable(StoreUnwritable):
    """The place where a run keeps its pictures does not answer, refuses or is gone. No picture is lost by that."""


class StoreDamaged(StillmeError):
    """The run's ledger is not what was written."""


class StoreOfAnotherVersion(StillmeError):
    """The run's ledger has another schema than this stillme reads."""


class AuditChanged(StillmeError):
    """audit.toml no longer describes the rows of its run."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """One thing wrong with a file that the user wrote."""

    place: str
    """Where: `line 12, editors[1].parameters.seed`."""
    message: str
    """What is wrong there and what to write instead."""

    def __str__(self) -> str:
        return f"{self.place}: {self.message}" if self.place else self.message


class Invalid(StillmeError):
    """A file that must not be used as it is. Carries every problem, not only the first."""

    consequence = "nothing was run"
    shown: int | None = None
    """At most so many problems are shown, then a count; None shows all."""

    def __init__(self, source: str, problems: Iterable[Problem]) -> None:
        self.source = source
        self.problems = tuple(problems)
        count = len(self.problems)
        head = f"{source} has {count} problem{'s' if count != 1 else ''}; {self.consequence}:"
        lines = [f"  - {problem}" for problem in self.problems[: self.shown]]
        hidden = count - len(lines)
        super().__init__("\n".join([head, *lines, *([f"  and {hidden:,} more"] if hidden else [])]))


class InvalidAudit(Invalid):
    """An audit.toml that must not start."""


class InvalidPrompts(Invalid):
    """A prompt set that cannot be read whole."""


class InvalidPortraits(Invalid):
    """A folder of portraits that cannot be read whole."""


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """A leading-space sentence naming the closest known name, or nothing."""
    names = list(known)
    # `gender` is a beginning of `gender_presentation`; `race` shares letters with `age`, and nothing else.
    begun = [known for known in names if name and known.lower().startswith(name.lower())]
    close = begun or get_close_matches(name, names, n=1, cutoff=0.6)
    return f" Did you mean {close[0]!r}?" if close else ""


def validation_message(detail: ErrorDetails, model: type[BaseModel]) -> str:
    """One of pydantic's errors in our words, without its location."""
    key = str(detail["loc"][-1]) if detail["loc"] else ""
    match detail["type"]:
        case "extra_forbidden":
            known = list(_fields_at(model, detail["loc"][:-1]))
            return f"unknown key {key!r}.{did_you_mean(key, known)} Known here: {', '.join(known) or 'none'}"
        case "missing":
            return f"{key!r} is missing; add it"
        case "literal_error" | "enum":
            return f"{detail['input']!r} is not allowed; write {detail.get('ctx', {}).get('expected', 'another value')}"
        case "too_short":
            return "is empty; give at least one"
        case "value_error":
            return detail["msg"].removeprefix("Value error, ")
        case _:
            message = detail["msg"][0].lower() + detail["msg"][1:]
            return f"{message.replace('input should', 'should')}, not {detail['input']!r}"


def _placed(detail: ErrorDetails, model: type[BaseModel]) -> str:
    names_its_key = detail["type"] in ("extra_forbidden", "missing")
    place = ".".join(map(str, detail["loc"][:-1] if names_its_key else detail["loc"]))
    message = validation_message(detail, model)
    return f"{place}: {message}" if place else message


def _fields_at(model: type[BaseModel], location: Sequence[str | int]) -> Iterable[str]:
    current: type[BaseModel] = model
    for part in location:
        field = current.model_fields.get(str(part)) if isinstance(part, str) else None
        inner = _model_in(field.annotation) if field else None
        if inner is not None:
            current = inner
    return current.model_fields


def _model_in(annotation: Any) -> type[BaseModel] | None:
    """The model inside `dict[str, Effect]` or `Effect | None`, if there is one."""
    if hasattr(annotation, "model_fields"):
        return cast("type[BaseModel]", annotation)
    models = (_model_in(argument) for argument in get_args(annotation))
    return next((model for model in models if model), None)
