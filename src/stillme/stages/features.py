"""The stage before the edits, if an arm needs it: describe every portrait that has no features yet."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, replace

from stillme.audit import Audit, NamedEditor, NamedExtractor
from stillme.errors import StillmeError
from stillme.mitigation import (
    NEEDS_FEATURES,
    Declined,
    Described,
    Extraction,
    Extractor,
    NoFeaturePrompt,
    Unusable,
    extraction_key,
)
from stillme.protocols import ChecksRequests
from stillme.stages.loop import Done, Ended, Stage, Tally, Terms, grouped, in_turn, limits_of, missing, run
from stillme.store import FeatureRow, Store
from stillme.types import Failed, Portrait, Prompt

_LONGEST = 50
"""Instructions per editor that are counted token by token: if none of the longest is cut off, no other is."""
_SHOWN = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class _Task:
    key: str
    portrait: Portrait


def extract(audit: Audit, store: Store, terms: Terms) -> tuple[Ended, list[Tally]]:
    """Have every extractor describe the portraits it has not described, one extractor after the other."""
    return in_turn(_work_of(named, audit, store, terms) for named in audit.extractors)


def without_prompt(audit: Audit) -> str:
    """A note about portraits without a feature prompt; empty if all have one."""
    lacking = {name: prompt for name, prompt in audit.features.items() if isinstance(prompt, NoFeaturePrompt)}
    if not lacking:
        return ""
    shown = [f"  {name}: {prompt.reason}" for name, prompt in list(lacking.items())[:_SHOWN]]
    more = [f"  … and {len(lacking) - _SHOWN} more"] if len(lacking) > _SHOWN else []
    arms = " and ".join(arm for arm in audit.config.arms if arm in NEEDS_FEATURES)
    head = f"{len(lacking)} of {len(audit.features)} portraits have no feature prompt and are left out of {arms}:"
    return "\n".join([head, *shown, *more])


def refuse_truncation(audit: Audit) -> None:
    """Raise if an editor would truncate an instruction with its feature sentence; nothing is edited then."""
    for named in audit.editors:
        if sentences := list(_too_long(audit, named)):
            raise StillmeError(
                f"The editor {named.name!r} would truncate instructions: {'; '.join(sentences[:_SHOWN])}. "
                "Remove this editor or the arms feature and placebo, or use an extractor with shorter sentences."
            )


def _too_long(audit: Audit, named: NamedEditor) -> Iterator[str]:
    limit = named.editor.capabilities.prompt_tokens
    if limit is None:
        return
    treated = (request for request in audit.requests(named) if request.arm in NEEDS_FEATURES)
    longest = sorted(treated, key=lambda request: (-len(request.instruction), request.key))[:_LONGEST]
    prompts = [
        replace(
            request.prompt,
            id=f"{request.prompt.id} of {request.portraits[0].id} ({request.arm})",
            text=request.instruction,
        )
        for request in longest
    ]
    if isinstance(named.editor, ChecksRequests):
        yield from named.editor.problems(audit.portraits, prompts)
    else:
        yield from _surely_too_long(prompts, limit)


def _surely_too_long(prompts: Sequence[Prompt], limit: int) -> Iterator[str]:
    for prompt in prompts:
        # No tokenizer spends less than one token on a word.
        if (words := len(prompt.text.split())) > limit:
            yield f"the prompt {prompt.id!r} has {words} words, and at most {limit} tokens are read"


def _work_of(named: NamedExtractor, audit: Audit, store: Store, terms: Terms) -> tuple[Tally, Callable[[], Ended]]:
    extractor = named.extractor
    tasks = [
        _Task(key=extraction_key(portrait.image, extractor.spec), portrait=portrait)
        for portrait in audit.portraits_to_describe
    ]
    tasks = list({task.key: task for task in tasks}.values())
    tally = Tally(f"describe {named.name}", len(tasks), cost=store.totals().cost)

    def begin() -> Ended:
        todo = missing(tasks, lambda task: task.key, store.finished_features, tally)
        with closing(extractor):
            limits = limits_of(audit.config.executor, extractor.concurrency)
            return run(_stage(extractor, store), grouped(todo, 1), limits=limits, terms=terms, tally=tally)

    return tally, begin


def _stage(extractor: Extractor, store: Store) -> Stage[_Task, Extraction]:
    def perform(tasks: Sequence[_Task]) -> list[Extraction]:
        return [_extraction(extractor, task) for task in tasks]

    def save(finished: Sequence[Done[_Task, Extraction]]) -> None:
        store.add_features(
            [
                FeatureRow(
                    key=done.task.key,
                    image=done.task.portrait.image,
                    extractor=extractor.spec,
                    extraction=done.result,
                    attempts=done.attempts,
                    seconds=done.seconds,
                    cost=done.cost,
                )
                for done in finished
            ]
        )

    return Stage(
        perform=perform,
        failure=lambda extraction: extraction if isinstance(extraction, Failed) else None,
        label=_label,
        cost=lambda extraction: extraction.cost,
        save=save,
        name="describe",
        key=lambda task: task.key,
        keep=store.attempts.add,
    )


def _extraction(extractor: Extractor, task: _Task) -> Extraction:
    try:
        return extractor.extract(task.portrait.image)
    except Exception as broken:
        # An extractor should return Failed; one that raises has failed too, and a retry may succeed.
        return Failed(error=f"{type(broken).__name__}: {broken}", retryable=True)


def _label(extraction: Extraction) -> str:
    match extraction:
        case Described():
            return "described"
        case Declined():
            return "declined"
        case Unusable():
            return "unusable"
        case Failed():
            return "failed"
