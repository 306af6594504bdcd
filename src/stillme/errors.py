"""Errors a user can act on: each says what, which one, and what to do next."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from difflib import get_close_matches


class StillmeError(Exception):
    """The user's mistake or the machine's state; shown as one sentence, without a traceback."""


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


class UnreadableImage(StillmeError):
    """A file that is no usable picture."""


class StoreBusy(StillmeError):
    """Another process is writing to the run."""


class StoreTooNew(StillmeError):
    """The run was written by a later stillme."""


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

    def __init__(self, source: str, problems: Iterable[Problem]) -> None:
        self.source = source
        self.problems = tuple(problems)
        count = len(self.problems)
        head = f"{source} has {count} problem{'s' if count != 1 else ''}; {self.consequence}:"
        super().__init__("\n".join([head, *(f"  - {problem}" for problem in self.problems)]))


class InvalidAudit(Invalid):
    """An audit.toml that must not start."""


class InvalidPrompts(Invalid):
    """A prompt set that cannot be read whole."""


class InvalidPortraits(Invalid):
    """A folder of portraits that cannot be read whole."""


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """A leading-space sentence naming the closest known name, or nothing."""
    close = get_close_matches(name, list(known), n=1, cutoff=0.5)
    return f" Did you mean {close[0]!r}?" if close else ""
