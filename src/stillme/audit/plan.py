"""An audit that was checked: its parts, and the grid of requests, generated and never held."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import cast

from stillme.audit.config import Config
from stillme.mitigation import NOTHING, instruction
from stillme.protocols import Editor, Fingerprinted, Judge
from stillme.types import Arm, ImageFile, Json, Pair, Portrait, Prompt, Request, digest
from stillme.work import Limits

_NOOP = Prompt(id="noop", text=NOTHING, category="noop", subcategory="noop")
"""Changing nothing does not depend on the prompt: one no-op request per portrait."""

_HOW_NOT_WHAT = frozenset({"title", "budget", "executor"})
"""Sections that change no row."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NamedEditor:
    """An editor under the name that the audit's tables show."""

    name: str
    editor: Editor
    seeds: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class NamedJudge:
    """A judge under the name that the audit's tables show."""

    name: str
    judge: Judge
    epochs: int


@dataclass(frozen=True, kw_only=True)
class Audit:
    """Everything a run needs, resolved."""

    file: Path
    """The audit.toml it was read from."""
    folder: Path
    """The run folder."""
    config: Config
    portraits: tuple[Portrait, ...]
    prompts: tuple[Prompt, ...]
    editors: tuple[NamedEditor, ...]
    judges: tuple[NamedJudge, ...]
    factors: tuple[str, ...]
    """The attributes whose groups are compared."""

    def requests(self, named: NamedEditor) -> Iterator[Request]:
        """All requests to one editor, portrait by portrait, so that it can share work on one picture."""
        for portrait in self.portraits:
            for arm, prompt in self.treatments():
                for seed in named.seeds:
                    yield Request(
                        portraits=(portrait,),
                        prompt=prompt,
                        arm=arm,
                        instruction=instruction(prompt, arm),
                        editor=named.editor.spec,
                        seed=seed,
                        attributes_matter=named.editor.capabilities.attributes_matter,
                        content=_content(named.editor, portrait, prompt, arm, seed),
                    )

    def treatments(self) -> Iterator[tuple[Arm, Prompt]]:
        """Every arm with every prompt that it is used with."""
        for arm in self.config.arms:
            yield from ((arm, prompt) for prompt in ((_NOOP,) if arm is Arm.NOOP else self.prompts))

    def request_count(self, named: NamedEditor) -> int:
        """How many requests `requests` yields."""
        return len(self.portraits) * sum(1 for _ in self.treatments()) * len(named.seeds)

    def assessments(self, named: NamedJudge, request: Request, image: str) -> Iterator[tuple[str, int]]:
        """What a judge is asked about an edit: the key of the assessment and its epoch, for every epoch."""
        for epoch in range(named.epochs):
            yield digest([request.key, image, named.judge.spec.key, epoch]), epoch

    def pair(self, request: Request, edited: ImageFile, epoch: int) -> Pair:
        """What a judge is shown of an edit."""
        sources = tuple(portrait.image for portrait in request.portraits)
        return Pair(edit=request.key, sources=sources, edited=edited, prompt=request.prompt, epoch=epoch)

    def limits(self, concurrency: int) -> Limits:
        """How hard a stage may work, given what its editor or judge can take."""
        executor = self.config.executor
        return Limits(concurrency=min(concurrency, executor.workers or concurrency), attempts=executor.attempts)

    @cached_property
    def resolved(self) -> Mapping[str, Json]:
        """The configuration with every default filled in and every input named by its hash."""
        plain = self.config.model_dump(mode="json")
        plain["portraits"] |= {
            "count": len(self.portraits),
            "hash": digest([[p.id, p.image.sha256, dict(p.attributes)] for p in self.portraits]),
        }
        plain["prompts"] |= {
            "count": len(self.prompts),
            "hash": digest([[p.id, p.text] for p in self.prompts]),
        }
        plain["estimates"] |= {"factors": list(self.factors)}
        for entry, editor in zip(plain["editors"], self.editors, strict=True):
            spec = editor.editor.spec
            entry |= {"name": editor.name, "version": spec.version, "parameters": dict(spec.parameters)}
            entry |= {"seeds": list(editor.seeds)}
        for entry, judge in zip(plain["judges"], self.judges, strict=True):
            spec = judge.judge.spec
            entry |= {"name": judge.name, "version": spec.version, "parameters": dict(spec.parameters)}
        return _without_none(plain)

    def as_input(self) -> Mapping[str, Json]:
        """An audit.toml that means the same from any folder."""
        plain = self.config.model_dump(mode="json")
        here = self.file.parent.resolve()
        plain["portraits"]["source"] = _absolute(here, plain["portraits"]["source"])
        plain["prompts"]["sets"] = [_absolute(here, name) for name in plain["prompts"]["sets"]]
        return _without_none(plain)

    @cached_property
    def hash(self) -> str:
        """Names the configuration; budget, executor and title do not count, as they change no row."""
        return digest({name: part for name, part in self.resolved.items() if name not in _HOW_NOT_WHAT})


def _content(editor: Editor, portrait: Portrait, prompt: Prompt, arm: Arm, seed: int) -> str:
    return editor.fingerprint((portrait,), prompt, arm, seed) if isinstance(editor, Fingerprinted) else ""


def _absolute(here: Path, name: str) -> str:
    return str(here / name) if (here / name).exists() else name


def _without_none(value: Json) -> Json:
    if isinstance(value, dict):
        items = cast("dict[str, Json]", value).items()
        return {key: _without_none(item) for key, item in items if item is not None}
    if isinstance(value, list):
        return [_without_none(entry) for entry in cast("list[Json]", value)]
    return value
