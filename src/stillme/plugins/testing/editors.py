"""Conformance checks for editors."""

from __future__ import annotations

import math
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, cast

import numpy as np
from pydantic import BaseModel

from stillme.core import images
from stillme.core.errors import UnreadableImage
from stillme.core.protocols import Capabilities, Editor
from stillme.core.types import Arm, Edited, EditOutcome, Failed, ImageFile, Portrait, Prompt, Refused, Request, Spec
from stillme.plugins.testing.conformance import PROMPTS, cheap, described, not_plain, report, run_checks

_ROUNDING = 2 / 255
"""Largest colour difference between an edit made alone and in a batch."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """An editor class under test, and its inputs."""

    editor_class: type[Editor]
    parameters: Mapping[str, Any]
    portraits: Sequence[Portrait]
    prompts: Sequence[Prompt]

    def build(self) -> Editor:
        """A new editor."""
        construct = cast("Callable[[BaseModel], Editor]", self.editor_class)
        return construct(self.editor_class.Parameters.model_validate(dict(self.parameters)))

    @contextmanager
    def using(self) -> Generator[Editor]:
        """A new editor that is closed afterwards."""
        editor = self.build()
        try:
            yield editor
        finally:
            editor.close()

    def requests(self, editor: Editor, *, seed: int = 0) -> list[Request]:
        """Every portrait with every prompt, portrait by portrait."""
        return [
            self.request(editor, (portrait,), prompt, seed) for portrait in self.portraits for prompt in self.prompts
        ]

    def request(self, editor: Editor, portraits: tuple[Portrait, ...], prompt: Prompt, seed: int = 0) -> Request:
        """One request."""
        return Request(
            portraits=portraits,
            prompt=prompt,
            arm=Arm.BASELINE,
            instruction=prompt.text,
            editor=editor.spec,
            seed=seed,
            attributes_matter=editor.capabilities.attributes_matter,
        )


Check = Callable[[Case], Iterator[str]]


def check_editor(
    editor_class: type[Editor],
    portraits: Sequence[Portrait],
    parameters: Mapping[str, Any] | None = None,
    *,
    prompts: Sequence[Prompt] = PROMPTS,
    skip: Sequence[str] = (),
) -> None:
    """Raise an `AssertionError` with one sentence per violation. `skip` names checks that are not run."""
    report(editor_class, violations(editor_class, portraits, parameters, prompts=prompts, skip=skip))


def violations(
    editor_class: type[Editor],
    portraits: Sequence[Portrait],
    parameters: Mapping[str, Any] | None = None,
    *,
    prompts: Sequence[Prompt] = PROMPTS,
    skip: Sequence[str] = (),
) -> list[str]:
    """One sentence per violation; empty for an editor that conforms."""
    if len(portraits) < 2 or len(prompts) < 2:
        raise ValueError("give at least two portraits and two prompts; with one, mixed-up results go unnoticed")
    case = Case(editor_class=editor_class, parameters=parameters or {}, portraits=portraits, prompts=prompts)
    return run_checks(CHECKS, case, skip)


# -- what it declares -------------------------------------------------------------------------------------------


def _described(case: Case) -> Iterator[str]:
    """Its class has what `stillme list` and audits need."""
    yield from described(case.editor_class, case.parameters)


def _cheap(case: Case) -> Iterator[str]:
    """Building it is cheap: an audit builds every editor to check its parameters."""
    yield from cheap(case.build, "edit")


def _stable(case: Case) -> Iterator[str]:
    """Its `spec` is always the same for the same parameters: it keys the results."""
    with case.using() as editor, case.using() as other:
        if not _is(editor.spec, Spec) or not editor.spec.use or not editor.spec.version:
            yield "its `spec` is not a `Spec` with a name and a version; make it with `stillme.core.protocols.spec_of`"
            return
        try:
            before = editor.spec.key
            if before != other.spec.key:
                yield "two editors with the same parameters have different `spec`s; a rerun would redo every edit"
            list(editor.edit(case.requests(editor)[:1]))
            if replace(editor.spec).key != before:
                yield "its `spec` changes when it edits"
        except TypeError as error:
            yield f"its `spec` is not plain data ({error})"


def _sensible(case: Case) -> Iterator[str]:
    """Its capabilities are consistent."""
    capabilities = case.build().capabilities
    if not _is(capabilities, Capabilities):
        yield "its `capabilities` is not a `Capabilities`"
        return
    if min(capabilities.inputs, capabilities.batch, capabilities.concurrency) < 1:
        yield "`inputs`, `batch` or `concurrency` is below 1"
    if capabilities.batching == "none" and capabilities.batch != 1:
        yield f'it declares batching = "none" and batch = {capabilities.batch}; change one of them'


# -- what it does -----------------------------------------------------------------------------------------------------


def _answers(case: Case) -> Iterator[str]:
    """One valid outcome per request, and none without a request."""
    with case.using() as editor:
        if list(editor.edit([])):
            yield "it gives outcomes without requests"
        all_outcomes: list[EditOutcome] = []
        for batch in _batches(editor, case.requests(editor)):
            outcomes = list(editor.edit(batch))
            all_outcomes.extend(outcomes)
            if len(outcomes) != len(batch):
                yield f"it gave {len(outcomes)} outcomes for {len(batch)} requests"
            for outcome in outcomes:
                yield from _invalid(outcome, editor.capabilities)
        if not any(isinstance(outcome, Edited) for outcome in all_outcomes):
            yield f"it made no edit, so little could be checked; the first outcome: {all_outcomes[:1]}"


def _repeats(case: Case) -> Iterator[str]:
    """With an exact seed, a request gives the same pixels in any order and from any instance."""
    with case.using() as editor, case.using() as other:
        if editor.capabilities.seed != "exact":
            return
        requests = case.requests(editor)
        first = [_one(editor, request) for request in requests]
        again = [_one(other, request) for request in reversed(requests)][::-1]
        for request, one, two in zip(requests, first, again, strict=True):
            if not _agree(one, two, within=0.0):
                yield f"its seed is `exact`, but {_name(request)} differs the second time"


def _batched(case: Case) -> Iterator[str]:
    """A batch gives the same as its requests alone, in their order."""
    with case.using() as editor:
        if editor.capabilities.batching == "none":
            return
        for batch in _batches(editor, case.requests(editor)):
            for request, together in zip(batch, editor.edit(batch), strict=True):
                alone = _one(editor, request)
                if editor.capabilities.seed != "exact":
                    if type(alone) is not type(together):
                        yield f"{_name(request)} is {_word(alone)} alone and {_word(together)} in a batch"
                elif not _agree(alone, together, within=_ROUNDING):
                    yield f"{_name(request)} differs in a batch, or comes in another order"


def _parallel(case: Case) -> Iterator[str]:
    """As many concurrent calls as it declares give the same as sequential ones."""
    with case.using() as editor:
        calls = editor.capabilities.concurrency
        if calls == 1:
            return
        requests = case.requests(editor)
        with ThreadPoolExecutor(max_workers=min(calls, len(requests))) as pool:
            together = list(pool.map(_one, [editor] * len(requests), requests))
        for request, outcome in zip(requests, together, strict=True):
            alone = _one(editor, request)
            if isinstance(outcome, Failed) and not isinstance(alone, Failed):
                yield f"{_name(request)} fails with {calls} calls at once, but not alone: {outcome.error}"
            elif editor.capabilities.seed == "exact" and not _agree(outcome, alone, within=_ROUNDING):
                yield f"{_name(request)} differs with {calls} calls at once"


def _blind(case: Case) -> Iterator[str]:
    """It ignores the portraits' labels unless it declares `attributes_matter`."""
    with case.using() as editor:
        if editor.capabilities.attributes_matter or editor.capabilities.seed != "exact":
            return
        portrait, prompt = case.portraits[0], case.prompts[0]
        labels = {name: f"not {value}" for name, value in portrait.attributes.items()}
        before = _one(editor, case.request(editor, (portrait,), prompt))
        after = _one(editor, case.request(editor, (replace(portrait, attributes=labels),), prompt))
        if not _agree(before, after, within=0.0):
            yield "it edits the same picture differently with other labels; declare `attributes_matter`"


def _counts(case: Case) -> Iterator[str]:
    """A request with too many portraits is a final failure."""
    with case.using() as editor:
        crowd = tuple(case.portraits[index % len(case.portraits)] for index in range(editor.capabilities.inputs + 1))
        outcome = _one(editor, case.request(editor, crowd, case.prompts[0]))
        if not isinstance(outcome, Failed) or outcome.retryable:
            yield (
                f"{len(crowd)} portraits, where it declares {editor.capabilities.inputs}, are {_word(outcome)}; "
                "return `Failed(retryable=False)`"
            )


def _survives(case: Case) -> Iterator[str]:
    """An unreadable portrait is an outcome, not an exception."""
    portrait = case.portraits[0]
    gone = ImageFile(path=portrait.image.path.with_name("no such portrait.png"), sha256="0" * 64)
    with case.using() as editor:
        try:
            outcome = _one(editor, case.request(editor, (replace(portrait, image=gone),), case.prompts[0]))
            yield from _invalid(outcome, editor.capabilities)
        except Exception as error:
            yield f"it raised {type(error).__name__} on a portrait that does not exist; return `Failed`"


def _closes(case: Case) -> Iterator[str]:
    """It can be closed at any time, and more than once."""
    for used in (False, True):
        editor = case.build()
        if used:
            list(editor.edit(case.requests(editor)[:1]))
        try:
            editor.close()
            editor.close()
        except Exception as error:
            yield f"closing it twice raised {type(error).__name__}: {error}"


CHECKS: Mapping[str, Check] = {
    "described": _described,
    "cheap": _cheap,
    "stable": _stable,
    "sensible": _sensible,
    "answers": _answers,
    "repeats": _repeats,
    "batched": _batched,
    "parallel": _parallel,
    "blind": _blind,
    "counts": _counts,
    "survives": _survives,
    "closes": _closes,
}
"""Every check by name; its docstring says what it requires."""


# -- comparing outcomes ----------------------------------------------------------------------------------------------


def _batches(editor: Editor, requests: Sequence[Request]) -> Iterator[list[Request]]:
    """As the edit stage would make them."""
    capabilities = editor.capabilities
    size = 1 if capabilities.batching == "none" else capabilities.batch
    start = 0
    while start < len(requests):
        batch = list(requests[start : start + size])
        if capabilities.batching == "shared_image":
            batch = [request for request in batch if request.portraits == batch[0].portraits]
        yield batch
        start += len(batch)


def _one(editor: Editor, request: Request) -> EditOutcome:
    outcomes = list(editor.edit([request]))
    if len(outcomes) != 1:
        raise ValueError(f"{len(outcomes)} outcomes for one request")
    return outcomes[0]


def _invalid(outcome: object, capabilities: Capabilities) -> Iterator[str]:
    if isinstance(outcome, Edited):
        try:
            images.check(outcome.image, name="its picture")
        except UnreadableImage as error:
            yield str(error)
        yield from not_plain("effective", outcome.effective)
        yield from not_plain("truth", outcome.truth)
    elif isinstance(outcome, Refused):
        if not capabilities.can_refuse:
            yield "it refused, but does not declare `can_refuse`"
        if not outcome.message:
            yield "it refused without a message; return the editor's own"
        yield from not_plain("effective", outcome.effective)
    elif isinstance(outcome, Failed):
        if not outcome.error:
            yield "it failed without a message"
        if outcome.retry_after is not None and not outcome.retry_after >= 0:
            yield f"retry_after = {outcome.retry_after} is not a duration"
        yield from not_plain("effective", outcome.effective)
    else:
        yield f"{type(outcome).__name__} is not an outcome; return Edited, Refused or Failed"
        return
    if not (math.isfinite(outcome.cost) and outcome.cost >= 0):
        yield f"cost = {outcome.cost} is not an amount of money"


def _agree(one: EditOutcome, two: EditOutcome, *, within: float) -> bool:
    if isinstance(one, Edited) and isinstance(two, Edited):
        first, second = images.read_rgb(one.image), images.read_rgb(two.image)
        return first.shape == second.shape and np.abs(first.astype(np.int16) - second).max() <= within * 255
    return type(one) is type(two)


def _is(value: object, kind: type) -> bool:
    """`isinstance` on what a plugin declares, whose type the checker trusts and we do not."""
    return isinstance(value, kind)


def _name(request: Request) -> str:
    return f"{request.prompt.id!r} of portrait {request.portraits[0].id!r}"


def _word(outcome: EditOutcome) -> str:
    return type(outcome).__name__.lower()
