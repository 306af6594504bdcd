"""The stage before the edits, if an arm needs it: describe every portrait that has no features yet."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, replace

from stillme.audit import Audit, NamedEditor
from stillme.core.errors import StillmeError
from stillme.core.protocols import expected_dollars
from stillme.core.types import Failed, Portrait, Prompt
from stillme.mitigation.arms import NEEDS_FEATURES
from stillme.mitigation.features import (
    Declined,
    Described,
    Extraction,
    Extractor,
    FeaturePrompt,
    NoFeaturePrompt,
    Unusable,
    extraction_key,
    merge,
)
from stillme.runs.store import FeatureRow, Store
from stillme.runs.store.rows import Done
from stillme.work.loop import Activity, run_sequentially, steps
from stillme.work.stage import Session, Stage, grouped, limits_of, missing_in
from stillme.work.tally import Tally

_LONGEST = 50
"""Instructions per editor that are counted token by token: if none of the longest is cut off, no other is."""
_SHOWN = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class _Task:
    key: str
    portrait: Portrait


def extract(audit: Audit, store: Store, session: Session) -> tuple[Activity, list[Tally]]:
    """Have every extractor describe the portraits it has not described, one extractor after the other."""
    activities, tallies = list[Activity](), list[Tally]()
    for named in audit.extractors:
        keys = {
            extraction_key(portrait.image, named.extractor.spec): portrait for portrait in audit.portraits_to_describe
        }
        tasks = [_Task(key=key, portrait=portrait) for key, portrait in keys.items()]
        tallies.append(Tally(f"describe {named.name}", len(tasks)))
        activities.append(_describe(named.extractor, tasks, audit, store, session, tallies[-1]))
    return run_sequentially(activities), tallies


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
    yield from list(named.editor.problems(audit.portraits, prompts)) or _surely_too_long(prompts, limit)


def _surely_too_long(prompts: Sequence[Prompt], limit: int) -> Iterator[str]:
    for prompt in prompts:
        # No tokenizer spends less than one token on a word.
        if (words := len(prompt.text.split())) > limit:
            yield f"the prompt {prompt.id!r} has {words} words, and at most {limit} tokens are read"


def _describe(
    extractor: Extractor, tasks: Iterable[_Task], audit: Audit, store: Store, session: Session, tally: Tally
) -> Activity:
    """All descriptions by one extractor."""
    todo = missing_in(store, "feature", tasks, session, tally)
    limits = limits_of(audit.config.executor, extractor.concurrency)
    with closing(extractor):
        return (
            yield from steps(_stage(extractor, store), grouped(todo, 1), limits=limits, session=session, tally=tally)
        )


def _stage(extractor: Extractor, store: Store) -> Stage[_Task, Extraction]:
    def perform(tasks: Sequence[_Task]) -> list[Extraction]:
        return [_extraction(extractor, task) for task in tasks]

    def save(finished: Sequence[Done[_Task, Extraction]]) -> None:
        store.add(
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
        failed=lambda failure: failure,
        failure=lambda extraction: extraction if isinstance(extraction, Failed) else None,
        label=_label,
        cost=lambda extraction: extraction.cost,
        save=save,
        name="describe",
        key=lambda task: task.key,
        keep=store.add_attempts,
        expected=expected_dollars(extractor),
    )


def _extraction(extractor: Extractor, task: _Task) -> Extraction:
    try:
        return extractor.extract(task.portrait.image)
    except (Exception, SystemExit) as broken:
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


def with_features(audit: Audit, store: Store) -> Audit:
    """The audit with what its extractors have said so far, merged portrait by portrait."""
    keys = {
        (portrait.id, named.name): extraction_key(portrait.image, named.extractor.spec)
        for portrait in audit.portraits_to_describe
        for named in audit.extractors
    }
    extractions = store.features(list(dict.fromkeys(keys.values())))
    features: dict[str, FeaturePrompt | NoFeaturePrompt] = {}
    for portrait in audit.portraits_to_describe if audit.extractors else ():
        answers = [(named.name, extractions.get(keys[portrait.id, named.name])) for named in audit.extractors]
        given = [(name, extraction) for name, extraction in answers if extraction is not None]
        if len(given) == len(answers):
            features[portrait.id] = merge(given)
    return replace(audit, features=features)
