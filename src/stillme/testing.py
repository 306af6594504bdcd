"""What every editor promises, checked: run this on your own before you run an audit with it.

    from stillme.testing import check_editor

    def test_my_editor_keeps_its_promises():
        check_editor(MyEditor, portraits, {"strength": 0.5})

A broken promise is one sentence; `check_editor` raises an `AssertionError` with all of them, and `broken_promises`
returns them. Editors that cost money are asked about twenty times.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, cast

import numpy as np
from pydantic import BaseModel, ValidationError

from stillme import images
from stillme.errors import UnreadableImage
from stillme.protocols import Capabilities, Editor, Needs
from stillme.types import Arm, Edited, EditOutcome, Failed, ImageFile, Json, Portrait, Prompt, Refused, Request, Spec

PROMPTS = (
    Prompt(id="suit", text="Dress the person in a dark suit.", category="testing", subcategory="testing"),
    Prompt(id="park", text="Place the person in a park.", category="testing", subcategory="testing"),
)

_CHEAP = 1.0
"""Seconds within which an editor must be built, on a slow machine."""
_ROUNDING = 2 / 255
"""Largest difference of a colour between an edit made alone and in a batch."""
_UNKNOWN = "surely_no_parameter_is_called_this"


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """An editor to be tried, and what to try it on."""

    kind: type[Editor]
    parameters: Mapping[str, Any]
    portraits: Sequence[Portrait]
    prompts: Sequence[Prompt]

    def build(self) -> Editor:
        """A fresh editor."""
        build = cast("Callable[[BaseModel], Editor]", self.kind)
        return build(self.kind.Parameters.model_validate(dict(self.parameters)))

    @contextmanager
    def using(self) -> Generator[Editor]:
        """A fresh editor that is closed afterwards."""
        editor = self.build()
        try:
            yield editor
        finally:
            editor.close()

    def requests(self, editor: Editor, *, seed: int = 0) -> list[Request]:
        """Every portrait with every prompt, portrait by portrait."""
        return [self.request(editor, (who,), what, seed) for who in self.portraits for what in self.prompts]

    def request(self, editor: Editor, who: tuple[Portrait, ...], what: Prompt, seed: int = 0) -> Request:
        """One request."""
        return Request(
            portraits=who,
            prompt=what,
            arm=Arm.BASELINE,
            instruction=what.text,
            editor=editor.spec,
            seed=seed,
            attributes_matter=editor.capabilities.attributes_matter,
        )


Promise = Callable[[Trial], Iterator[str]]


def check_editor(
    kind: type[Editor],
    portraits: Sequence[Portrait],
    parameters: Mapping[str, Any] | None = None,
    *,
    prompts: Sequence[Prompt] = PROMPTS,
    excused: Sequence[str] = (),
) -> None:
    """Raise an `AssertionError` with one sentence per broken promise. `excused` names promises not to check."""
    broken = broken_promises(kind, portraits, parameters, prompts=prompts, excused=excused)
    if broken:
        name = kind.__name__
        raise AssertionError("\n".join([f"{name} breaks {len(broken)} promises:", *(f"  - {each}" for each in broken)]))


def broken_promises(
    kind: type[Editor],
    portraits: Sequence[Portrait],
    parameters: Mapping[str, Any] | None = None,
    *,
    prompts: Sequence[Prompt] = PROMPTS,
    excused: Sequence[str] = (),
) -> list[str]:
    """One sentence per broken promise of an editor; none for one that keeps them all."""
    if len(portraits) < 2 or len(prompts) < 2:
        raise ValueError("give at least two portraits and two prompts, or an editor that mixes them up goes unnoticed")
    if unknown := sorted(set(excused) - PROMISES.keys()):
        raise ValueError(f"no promise is called {unknown[0]!r}; there are {', '.join(PROMISES)}")
    trial = Trial(kind=kind, parameters=parameters or {}, portraits=portraits, prompts=prompts)
    broken: list[str] = []
    for name, promise in PROMISES.items():
        if name in excused:
            continue
        try:
            broken.extend(f"{name}: {sentence}" for sentence in promise(trial))
        except Exception as error:
            broken.append(f"{name}: it raised {type(error).__name__}: {error}")
    return broken


# -- what it says of itself -------------------------------------------------------------------------------------------


def _described(trial: Trial) -> Iterator[str]:
    """It has what `stillme list` and the loader look for."""
    if not (trial.kind.__doc__ or "").strip():
        yield "its class has no docstring; the first line is what `stillme list` shows"
    if not isinstance(getattr(trial.kind, "needs", None), Needs):
        yield "its class has no `needs`"
    parameters = getattr(trial.kind, "Parameters", None)
    if not (isinstance(parameters, type) and issubclass(parameters, BaseModel)):
        yield "its `Parameters` is no pydantic model"
        return
    try:
        parameters.model_validate({**trial.parameters, _UNKNOWN: 1})
    except ValidationError as error:
        if all(_UNKNOWN not in problem["loc"] for problem in error.errors()):
            yield "its `Parameters` does not name an unknown key; derive it from `stillme.protocols.Parameters`"
    else:
        yield "its `Parameters` takes unknown keys, so a mistyped setting would be ignored"


def _cheap(trial: Trial) -> Iterator[str]:
    """Building it loads nothing: audits build every editor to check themselves."""
    started = time.perf_counter()
    editor = trial.build()
    seconds = time.perf_counter() - started
    editor.close()
    if seconds > _CHEAP:
        yield f"building it took {seconds:.1f} s; load weights and connect with the first edit"


def _stable(trial: Trial) -> Iterator[str]:
    """Its specification is the same each time and stays so: it keys the results."""
    with trial.using() as editor, trial.using() as other:
        if not _is(editor.spec, Spec) or not editor.spec.use or not editor.spec.version:
            yield "its `spec` is no `Spec` with a name and a version; make it with `stillme.protocols.spec_of`"
            return
        try:
            before = editor.spec.key
            if before != other.spec.key:
                yield "two editors with the same parameters have different `spec`s; a rerun would make every edit anew"
            list(editor.edit(trial.requests(editor)[:1]))
            if replace(editor.spec).key != before:
                yield "its `spec` changes when it edits"
        except TypeError as error:
            yield f"its `spec` is not plain data ({error})"


def _sensible(trial: Trial) -> Iterator[str]:
    """Its capabilities make sense."""
    can = trial.build().capabilities
    if not _is(can, Capabilities):
        yield "its `capabilities` is no `Capabilities`"
        return
    if min(can.inputs, can.batch, can.concurrency) < 1:
        yield "`inputs`, `batch` and `concurrency` are at least 1"
    if can.batching == "none" and can.batch != 1:
        yield f"it batches nothing, yet says batch = {can.batch}"


# -- what it does -----------------------------------------------------------------------------------------------------


def _answers(trial: Trial) -> Iterator[str]:
    """One sound outcome for each request, and none without a request."""
    with trial.using() as editor:
        if list(editor.edit([])):
            yield "it gives outcomes without requests"
        seen: list[EditOutcome] = []
        for batch in _batches(editor, trial.requests(editor)):
            outcomes = list(editor.edit(batch))
            seen.extend(outcomes)
            if len(outcomes) != len(batch):
                yield f"it gave {len(outcomes)} outcomes for {len(batch)} requests"
            for outcome in outcomes:
                yield from _unsound(outcome, editor.capabilities)
        if not any(isinstance(outcome, Edited) for outcome in seen):
            yield f"it made not a single edit, so little could be checked; the first outcome: {seen[:1]}"


def _repeats(trial: Trial) -> Iterator[str]:
    """If its seed is exact, the same request gives the same pixels, in another order and from another editor."""
    with trial.using() as editor, trial.using() as other:
        if editor.capabilities.seed != "exact":
            return
        requests = trial.requests(editor)
        first = [_one(editor, request) for request in requests]
        again = [_one(other, request) for request in reversed(requests)][::-1]
        for request, one, two in zip(requests, first, again, strict=True):
            if not _agree(one, two, within=0.0):
                yield f"its seed is `exact`, yet {_name(request)} came out differently the second time"


def _batched(trial: Trial) -> Iterator[str]:
    """A batch gives what its requests give alone, in their order."""
    with trial.using() as editor:
        if editor.capabilities.batching == "none":
            return
        for batch in _batches(editor, trial.requests(editor)):
            for request, together in zip(batch, editor.edit(batch), strict=True):
                alone = _one(editor, request)
                if editor.capabilities.seed != "exact":
                    if type(alone) is not type(together):
                        yield f"{_name(request)} is {_word(alone)} alone and {_word(together)} in a batch"
                elif not _agree(alone, together, within=_ROUNDING):
                    yield f"{_name(request)} comes out differently in a batch, or in another order"


def _parallel(trial: Trial) -> Iterator[str]:
    """As many calls at once as it declares give what they give one after the other."""
    with trial.using() as editor:
        calls = editor.capabilities.concurrency
        if calls == 1:
            return
        requests = trial.requests(editor)
        with ThreadPoolExecutor(max_workers=min(calls, len(requests))) as pool:
            together = list(pool.map(_one, [editor] * len(requests), requests))
        for request, outcome in zip(requests, together, strict=True):
            alone = _one(editor, request)
            if isinstance(outcome, Failed) and not isinstance(alone, Failed):
                yield f"{_name(request)} fails when {calls} calls are under way, and not alone: {outcome.error}"
            elif editor.capabilities.seed == "exact" and not _agree(outcome, alone, within=_ROUNDING):
                yield f"{_name(request)} comes out differently when {calls} calls are under way"


def _blind(trial: Trial) -> Iterator[str]:
    """Only an editor that says so reads the portraits' labels."""
    with trial.using() as editor:
        if editor.capabilities.attributes_matter or editor.capabilities.seed != "exact":
            return
        who, what = trial.portraits[0], trial.prompts[0]
        relabelled = replace(who, attributes={name: f"not {value}" for name, value in who.attributes.items()})
        plain, other = (_one(editor, trial.request(editor, (each,), what)) for each in (who, relabelled))
        if not _agree(plain, other, within=0.0):
            yield "it edits the same picture differently under other labels; declare `attributes_matter`"


def _counts(trial: Trial) -> Iterator[str]:
    """A request with more portraits than it takes fails for good, in words."""
    with trial.using() as editor:
        crowd = tuple(trial.portraits[index % len(trial.portraits)] for index in range(editor.capabilities.inputs + 1))
        outcome = _one(editor, trial.request(editor, crowd, trial.prompts[0]))
        if not isinstance(outcome, Failed) or outcome.retryable:
            yield (
                f"given {len(crowd)} portraits where it declares {editor.capabilities.inputs}, it is {_word(outcome)}; "
                "it must answer `Failed(retryable=False)`"
            )


def _survives(trial: Trial) -> Iterator[str]:
    """A portrait that cannot be read is an outcome, not an exception."""
    who = trial.portraits[0]
    gone = ImageFile(path=who.image.path.with_name("no such portrait.png"), sha256="0" * 64)
    with trial.using() as editor:
        try:
            outcome = _one(editor, trial.request(editor, (replace(who, image=gone),), trial.prompts[0]))
            yield from _unsound(outcome, editor.capabilities)
        except Exception as error:
            yield f"it raised {type(error).__name__} on a portrait that does not exist; answer `Failed`"


def _closes(trial: Trial) -> Iterator[str]:
    """Closing works at any time, and more than once."""
    for used in (False, True):
        editor = trial.build()
        if used:
            list(editor.edit(trial.requests(editor)[:1]))
        try:
            editor.close()
            editor.close()
        except Exception as error:
            yield f"closing it twice raised {type(error).__name__}: {error}"


PROMISES: Mapping[str, Promise] = {
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
"""Every promise by name; the docstring of each says what it asks."""


# -- looking at outcomes ----------------------------------------------------------------------------------------------


def _batches(editor: Editor, requests: Sequence[Request]) -> Iterator[list[Request]]:
    """As the edit stage would call it."""
    can = editor.capabilities
    size = 1 if can.batching == "none" else can.batch
    start = 0
    while start < len(requests):
        batch = list(requests[start : start + size])
        if can.batching == "shared_image":
            batch = [request for request in batch if request.portraits == batch[0].portraits]
        yield batch
        start += len(batch)


def _one(editor: Editor, request: Request) -> EditOutcome:
    outcomes = list(editor.edit([request]))
    if len(outcomes) != 1:
        raise ValueError(f"{len(outcomes)} outcomes for one request")
    return outcomes[0]


def _unsound(outcome: object, can: Capabilities) -> Iterator[str]:
    if isinstance(outcome, Edited):
        try:
            images.check(outcome.image, name="its picture")
        except UnreadableImage as error:
            yield str(error)
        yield from _not_plain("effective", outcome.effective)
        yield from _not_plain("truth", outcome.truth)
    elif isinstance(outcome, Refused):
        if not can.can_refuse:
            yield "it refused, and does not declare `can_refuse`"
        if not outcome.message:
            yield "it refused without a word; give the editor's own"
        yield from _not_plain("effective", outcome.effective)
    elif isinstance(outcome, Failed):
        if not outcome.error:
            yield "it failed without a word"
        if outcome.retry_after is not None and not outcome.retry_after >= 0:
            yield f"retry_after = {outcome.retry_after} is no time to wait"
    else:
        yield f"{type(outcome).__name__} is no outcome; give Edited, Refused or Failed"
        return
    if not (math.isfinite(outcome.cost) and outcome.cost >= 0):
        yield f"cost = {outcome.cost} is no amount of money"


def _not_plain(name: str, value: Json) -> Iterator[str]:
    try:
        json.dumps(value, allow_nan=False)
    except (TypeError, ValueError) as error:
        yield f"`{name}` is not plain data ({error})"


def _agree(one: EditOutcome, two: EditOutcome, *, within: float) -> bool:
    if isinstance(one, Edited) and isinstance(two, Edited):
        here, there = images.read_rgb(one.image), images.read_rgb(two.image)
        return here.shape == there.shape and np.abs(here.astype(np.int16) - there).max() <= within * 255
    return type(one) is type(two)


def _is(value: object, kind: type) -> bool:
    """What a plugin declares is not yet known to be what the protocol says."""
    return isinstance(value, kind)


def _name(request: Request) -> str:
    return f"{request.prompt.id!r} of portrait {request.portraits[0].id!r}"


def _word(outcome: EditOutcome) -> str:
    return type(outcome).__name__.lower()
