"""What the checks of editors and of judges share."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from stillme.core.protocols import Editor, Judge, Needs
from stillme.core.types import Json, Prompt

PROMPTS = (
    Prompt(id="suit", text="Dress the person in a dark suit.", category="testing", subcategory="testing"),
    Prompt(id="park", text="Place the person in a park.", category="testing", subcategory="testing"),
)
"""Instructions that the checks edit with where none are given."""
CHEAP = 1.0
"""Seconds in which a plugin must be built, on a slow machine."""
_UNKNOWN = "no_such_parameter"

C = TypeVar("C")


def run_checks(checks: Mapping[str, Callable[[C], Iterator[str]]], case: C, skip: Sequence[str]) -> list[str]:
    """One sentence per violation."""
    if unknown := sorted(set(skip) - checks.keys()):
        raise ValueError(f"there is no check {unknown[0]!r}; write one of {', '.join(checks)}")
    sentences: list[str] = []
    for name, check in checks.items():
        if name in skip:
            continue
        try:
            sentences.extend(f"{name}: {sentence}" for sentence in check(case))
        except Exception as error:
            sentences.append(f"{name}: it raised {type(error).__name__}: {error}")
    return sentences


def report(plugin: type, sentences: Sequence[str]) -> None:
    """Raise an `AssertionError` with all of them, if there are any."""
    if sentences:
        head = f"{plugin.__name__} has {len(sentences)} violations:"
        raise AssertionError("\n".join([head, *(f"  - {sentence}" for sentence in sentences)]))


def described(plugin: type, given: Mapping[str, Any]) -> Iterator[str]:
    """What `stillme list` and audits need of a class, and what is wrong with it."""
    if not (plugin.__doc__ or "").strip():
        yield "its class has no docstring; `stillme list` shows the first line"
    if not isinstance(getattr(plugin, "needs", None), Needs):
        yield "its class has no `needs`"
    parameters = getattr(plugin, "Parameters", None)
    if not (isinstance(parameters, type) and issubclass(parameters, BaseModel)):
        yield "its `Parameters` is not a pydantic model"
        return
    try:
        parameters.model_validate({**given, _UNKNOWN: 1})
    except ValidationError as error:
        if all(_UNKNOWN not in problem["loc"] for problem in error.errors()):
            yield "its `Parameters` does not report an unknown key; derive it from `stillme.core.protocols.Parameters`"
    else:
        yield "its `Parameters` accepts unknown keys, so a mistyped setting would be ignored"


def cheap(build: Callable[[], Editor | Judge], call: str) -> Iterator[str]:
    """Building it is cheap: an audit builds every plugin to check its parameters."""
    seconds = CHEAP
    for _ in range(3):  # a busy machine makes anybody late once
        started = time.perf_counter()
        build().close()
        seconds = time.perf_counter() - started
        if seconds <= CHEAP:
            return
    yield f"building it took {seconds:.1f} s; load weights and connect with the first {call}"


def not_plain(name: str, value: Json) -> Iterator[str]:
    """Why a value cannot be stored as JSON."""
    try:
        json.dumps(value, allow_nan=False)
    except (TypeError, ValueError) as error:
        yield f"`{name}` is not plain data ({error})"
