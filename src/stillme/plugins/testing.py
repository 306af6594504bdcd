"""Conformance checks: run them on your own editors and judges before an audit.

    from stillme.plugins.testing import check_plugin

    def test_my_editor_conforms():
        check_plugin(MyEditor, portraits, {"strength": 0.5})

About twenty calls are made, which a plugin that costs money charges for.
"""

from __future__ import annotations

import itertools
import json
import math
import timeit
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from typing import Any, cast

import numpy as np
from pydantic import BaseModel, ValidationError

from stillme.core import images, rubric
from stillme.core.errors import UnreadableImage
from stillme.core.protocols import Editor, Judge
from stillme.core.types import (
    Abstained,
    Arm,
    Assessment,
    Edited,
    Failed,
    ImageFile,
    Pair,
    Portrait,
    Prompt,
    Rated,
    Refused,
    Request,
)

__all__ = ["CHECKS", "PROMPTS", "check_plugin"]

PROMPTS = (
    Prompt(id="suit", text="Dress the person in a dark suit.", category="testing", subcategory="testing"),
    Prompt(id="park", text="Place the person in a park.", category="testing", subcategory="testing"),
)
"""Instructions that the checks edit with where none are given."""
_CHEAP = 1.0  # seconds in which a plugin must be built, on a slow machine
_ROUNDING = 2  # largest difference of a colour's level between an edit made alone and in a batch
Task = Answer = Any
"""A request to an editor and its outcome, or a pair for a judge and its assessment."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A plugin's class under test, and its inputs."""

    plugin_class: type[Editor] | type[Judge]
    parameters: Mapping[str, Any]
    portraits: Sequence[Portrait]
    prompts: Sequence[Prompt]

    @contextmanager
    def using(self) -> Generator[Any]:
        """A new plugin that is closed afterwards."""
        construct = cast("Callable[[BaseModel], Editor | Judge]", self.plugin_class)
        plugin = construct(self.plugin_class.Parameters.model_validate(dict(self.parameters)))
        try:
            yield plugin
        finally:
            plugin.close()

    def tasks(self, plugin: Editor | Judge) -> list[Task]:
        """Every portrait with every prompt; for a judge, every portrait with every other as its edit."""
        if isinstance(plugin, Editor):
            matter = plugin.capabilities.attributes_matter
            shared: dict[str, Any] = {
                "arm": Arm.BASELINE,
                "editor": plugin.spec,
                "seed": 0,
                "attributes_matter": matter,
            }
            return [
                Request(portraits=(portrait,), prompt=prompt, instruction=prompt.text, **shared)
                for portrait, prompt in itertools.product(self.portraits, self.prompts)
            ]
        labels = self.portraits[0].attributes if plugin.capabilities.labels else None
        return [
            Pair(edit=f"{prompt.id}-{one.id}", sources=(one.image,), edited=two.image, prompt=prompt, labels=labels)
            for prompt in self.prompts
            for one, two in itertools.permutations(self.portraits, 2)
        ]

    def batches(self, plugin: Editor | Judge) -> Iterator[list[Task]]:
        """The tasks as a run would group them."""
        tasks, size, shares = self.tasks(plugin), plugin.capabilities.batch, False
        if isinstance(plugin, Editor):
            size = 1 if plugin.capabilities.batching == "none" else size
            shares = plugin.capabilities.batching == "shared_image"
        for _, group in itertools.groupby(tasks, lambda task: shares and task.portraits[0].id):
            tasks = list(group)
            yield from (tasks[start : start + max(1, size)] for start in range(0, len(tasks), max(1, size)))


def check_plugin(
    plugin_class: type[Editor] | type[Judge],
    portraits: Sequence[Portrait],
    parameters: Mapping[str, Any] | None = None,
    *,
    prompts: Sequence[Prompt] = PROMPTS,
    skip: Sequence[str] = (),
) -> None:
    """Raise an `AssertionError` with one sentence per violation. `skip` names checks that are not run."""
    if len(portraits) < 2 or len(prompts) < 2:
        raise ValueError("give at least two portraits and two prompts; with one, mixed-up results go unnoticed")
    if unknown := sorted(set(skip) - CHECKS.keys()):
        raise ValueError(f"there is no check {unknown[0]!r}; write one of {', '.join(CHECKS)}")
    case = Case(plugin_class=plugin_class, parameters=parameters or {}, portraits=portraits, prompts=prompts)
    sentences: list[str] = []
    for name in [name for name in CHECKS if name not in skip]:
        try:
            sentences.extend(f"{name}: {sentence}" for sentence in CHECKS[name](case))
        except Exception as error:
            sentences.append(f"{name}: it raised {type(error).__name__}: {error}")
    if sentences:
        head = f"{plugin_class.__name__} has {len(sentences)} violations:"
        raise AssertionError("\n".join([head, *(f"  - {sentence}" for sentence in sentences)]))


def _declares(case: Case) -> Iterator[str]:
    """Its class has what `stillme list` and audits need, and its capabilities are consistent."""
    plugin: Any = case.plugin_class
    if not (plugin.__doc__ or "").strip():
        yield "its class has no docstring; `stillme list` shows the first line"
    with suppress(ValidationError):
        plugin.Parameters.model_validate({**case.parameters, "no_such_parameter": 1})
        yield "its `Parameters` accepts unknown keys; derive it from `stillme.plugins.Parameters`"
    with case.using() as built:
        can = built.capabilities
    if min(can.batch, can.concurrency, getattr(can, "inputs", 1), getattr(can, "views", 1)) < 1:
        yield "`batch`, `concurrency`, `inputs` or `views` is below 1"
    if isinstance(built, Editor) and can.batching == "none" and can.batch != 1:
        yield f'it declares batching = "none" and batch = {can.batch}; change one of them'
    if isinstance(built, Judge):
        names = [*can.axes, *can.partial]
        if not names or len(set(names)) < len(names):
            yield "it declares no axis, or one twice; `partial` is for axes that are not in `axes`"


def _builds(case: Case) -> Iterator[str]:
    """Building it is cheap, as every audit does it, and gives the same `spec` every time, which keys the results."""
    # The fastest of three: a busy machine makes any plugin late once.
    seconds = min(timeit.repeat("with case.using(): pass", globals={"case": case}, number=1, repeat=3))
    if seconds > _CHEAP:
        yield f"building it took {seconds:.1f} s; load weights and connect with the first call"
    with case.using() as plugin, case.using() as other:
        before = plugin.spec.key
        if before != other.spec.key:
            yield "two with the same parameters have different `spec`s; a rerun would do everything again"
        _one(plugin, case.tasks(plugin)[0])
        if replace(plugin.spec).key != before:
            yield "its `spec` changes with a call"


def _answers(case: Case) -> Iterator[str]:
    """One valid answer per request or pair, and none without one."""
    with case.using() as plugin:
        if _asked(plugin, []):
            yield "it answers without being asked"
        useful = False
        for batch in case.batches(plugin):
            answers = _asked(plugin, batch)
            if len(answers) != len(batch):
                yield f"it gave {len(answers)} answers to {len(batch)} questions"
            for task, answer in zip(batch, answers, strict=False):
                yield from _invalid(plugin, task, answer)
                useful = useful or _is_useful(answer)
        if not useful:
            first = _one(plugin, case.tasks(plugin)[0])
            yield f"it made no edit and no rating, so little could be checked; the first answer: {first}"


def _repeats(case: Case) -> Iterator[str]:
    """The same task gives the same in any order, from any instance, in a batch, and with several calls at once."""
    with case.using() as plugin, case.using() as other:
        tasks, calls = case.tasks(plugin), plugin.capabilities.concurrency
        alone = [_one(plugin, task) for task in tasks]
        again = [_one(other, task) for task in reversed(tasks)][::-1]
        with ThreadPoolExecutor(max_workers=min(calls, len(tasks))) as pool:
            at_once = list(pool.map(_one, [plugin] * len(tasks), tasks)) if calls > 1 else alone
        batched = [answer for batch in case.batches(plugin) for answer in _asked(plugin, batch)]
        # Of a plugin that answers differently every time, and may, single answers cannot be compared.
        exact = plugin.capabilities.seed == "exact" if isinstance(plugin, Editor) else all(map(_agree, alone, again))
        ways = {"the second time": again, "in a batch": batched, f"with {calls} calls at once": at_once}
        for how, answers in ways.items():
            for task, one, two in zip(tasks, alone, answers, strict=True):
                if (failure := _failure(two)) and not _failure(one):
                    yield f"{_name(task)} fails {how}, but not alone: {failure.error}"
                elif exact and not _agree(one, two, within=0 if answers is again else _ROUNDING):
                    yield f"{_name(task)} differs {how}, or comes in another order"


def _blind(case: Case) -> Iterator[str]:
    """It ignores the portraits' labels unless it declares to read them, and a judge always the key of the edit."""
    with case.using() as plugin:
        portrait, task = case.portraits[0], case.tasks(plugin)[0]
        before = _one(plugin, task)
        if not _agree(before, _one(plugin, task), within=0):
            return
        other = {name: f"not {value}" for name, value in {"race": "x", **portrait.attributes}.items()}
        if isinstance(plugin, Editor):
            relabelled = replace(task, portraits=(replace(portrait, attributes=other),))
            if not plugin.capabilities.attributes_matter and not _agree(before, _one(plugin, relabelled), within=0):
                yield "it edits the same picture differently with other labels; declare `attributes_matter`"
            return
        if not plugin.capabilities.labels and not _agree(before, _one(plugin, replace(task, labels=other))):
            yield "its ratings change with the portraits' labels; declare `labels`, or ignore them"
        if not _agree(before, _one(plugin, replace(task, edit="f" * 32))):
            yield "its ratings change with the key of the edit, which names no property of a picture"


def _survives(case: Case) -> Iterator[str]:
    """A picture that cannot be read, or too many of them, are a failure and no exception; no judge rates them."""
    portrait = case.portraits[0]
    gone = ImageFile(path=portrait.image.path.with_name("no such picture.png"), sha256="0" * 64)
    with case.using() as plugin:
        task = case.tasks(plugin)[0]
        if isinstance(plugin, Editor):
            taken = plugin.capabilities.inputs
            crowd = tuple(itertools.islice(itertools.cycle(case.portraits), taken + 1))
            outcome = _one(plugin, replace(task, portraits=crowd))
            if not isinstance(outcome, Failed) or outcome.retryable:
                what = f"{len(crowd)} portraits, where it declares {taken}, are {type(outcome).__name__.lower()}"
                yield f"{what}; return `Failed(retryable=False)`"
            task = replace(task, portraits=(replace(portrait, image=gone),))
        else:
            task = replace(task, edited=gone)
        try:
            answer = _one(plugin, task)
        except Exception as error:
            yield f"it raised {type(error).__name__} on a picture that does not exist; return `Failed`"
            return
        yield from _invalid(plugin, task, answer)
        if isinstance(plugin, Judge) and _is_useful(answer):
            yield "it rated an edit that does not exist; return `Failed` ratings"


def _closes(case: Case) -> Iterator[str]:
    """It can be closed at any time, and more than once."""
    for used in (False, True):
        try:
            with case.using() as plugin:
                if used:
                    _one(plugin, case.tasks(plugin)[0])
                plugin.close()
        except Exception as error:
            yield f"closing it twice raised {type(error).__name__}: {error}"


CHECKS: Mapping[str, Callable[[Case], Iterator[str]]] = {
    check.__name__.removeprefix("_"): check
    for check in (_declares, _builds, _answers, _repeats, _blind, _survives, _closes)
}
"""Every check by name; its docstring says what it requires."""


def _asked(plugin: Editor | Judge, tasks: Sequence[Task]) -> list[Answer]:
    return list(plugin.edit(tasks) if isinstance(plugin, Editor) else plugin.judge(tasks))


def _one(plugin: Editor | Judge, task: Task) -> Answer:
    answers = _asked(plugin, [task])
    if len(answers) != 1:
        raise ValueError(f"{len(answers)} answers to one question")
    return answers[0]


def _agree(one: Answer, two: Answer, *, within: int = _ROUNDING) -> bool:
    if isinstance(one, Edited) and isinstance(two, Edited):
        first, second = images.read_rgb(one.image), images.read_rgb(two.image)
        return first.shape == second.shape and bool(np.abs(first.astype(np.int16) - second).max() <= within)
    return type(one) is type(two) and (not isinstance(one, Assessment) or one.ratings == two.ratings)


def _failure(answer: Answer) -> Failed | None:
    return answer.failure if isinstance(answer, Assessment) else answer if isinstance(answer, Failed) else None


def _is_useful(answer: Answer) -> bool:
    rated = isinstance(answer, Assessment) and any(isinstance(rating, Rated) for rating in answer.ratings.values())
    return rated or isinstance(answer, Edited)


def _name(task: Task) -> str:
    return repr(task.edit) if isinstance(task, Pair) else f"{task.prompt.id!r} of portrait {task.portraits[0].id!r}"


def _invalid(plugin: Editor | Judge, task: Task, answer: Answer) -> Iterator[str]:
    """What is wrong with an answer."""
    match answer:
        case Edited() if isinstance(plugin, Editor):
            try:
                images.check(answer.image, name="its picture")
            except UnreadableImage as error:
                yield str(error)
        case Refused(message=message) if isinstance(plugin, Editor):
            if not plugin.capabilities.can_refuse:
                yield "it refused, but does not declare `can_refuse`"
            if not message:
                yield "it refused without a message; return the editor's own"
        case Failed(error=error, retry_after=seconds) if isinstance(plugin, Editor):
            if not error or (seconds is not None and not seconds >= 0):
                yield f"it failed without a message, or retry_after = {seconds} is not a duration"
        case Assessment() if isinstance(plugin, Judge):
            yield from _invalid_ratings(plugin, task.prompt, answer)
        case _:
            yield f"{type(answer).__name__} is no answer; return Edited, Refused, Failed, or as a judge an Assessment"
            return
    for name in [name for name in ("effective", "truth") if hasattr(answer, name)]:
        try:
            json.dumps(getattr(answer, name), allow_nan=False)
        except (TypeError, ValueError) as error:
            yield f"`{name}` is not plain data ({error})"
    if not (math.isfinite(answer.cost) and answer.cost >= 0):
        yield f"cost = {answer.cost} is not an amount of money"


def _invalid_ratings(judge: Judge, prompt: Prompt, answer: Assessment) -> Iterator[str]:
    can, known = judge.capabilities, rubric.load().axes
    # Some axes are for one kind of prompt only, such as the accuracy of an aging edit.
    asked = [axis for axis in can.axes if axis not in known or known[axis].only in ("", None, prompt.subcategory)]
    if missing := [axis for axis in asked if axis not in answer.ratings]:
        yield f"it said nothing on {', '.join(missing)}; rate, abstain or fail on every axis that it declares"
    if unknown := sorted(answer.ratings.keys() - {*can.axes, *can.partial}):
        yield f"it rated {', '.join(unknown)}, which it does not declare"
    for axis, rating in answer.ratings.items():
        match rating:
            case Rated(score=score):
                scale = known[axis].scale if axis in known and known[axis].is_scale else ()
                if not math.isfinite(score):
                    yield f"{axis} = {score!r} is not a finite number; abstain or fail instead"
                elif scale and not 1 <= score <= len(scale):
                    yield f"{axis} = {score!r} is outside of its scale, 1 to {len(scale)}"
            case Abstained(reason="") | Failed(error=""):
                yield f"it gave no rating on {axis}, and no reason"
            case _:
                pass
