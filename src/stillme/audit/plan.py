"""An audit that was checked: its parts, and the grid of requests, generated and never held."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import cast

from stillme.audit import roles
from stillme.audit.config import Config, MitigationSection
from stillme.audit.roles import Cast
from stillme.audit.sampling import Sample
from stillme.mitigation import NEEDS_FEATURES, NOTHING, Extractor, FeaturePrompt, NoFeaturePrompt, instruction
from stillme.protocols import Editor, Fingerprinted, Judge
from stillme.types import Arm, ImageFile, Json, Pair, Portrait, Prompt, Request, digest

_NOOP = Prompt(id="noop", text=NOTHING, category="noop", subcategory="noop")
"""Changing nothing does not depend on the prompt: one no-op request per portrait."""

_HOW_NOT_WHAT = frozenset({"title", "base", "budget", "executor", "gate"})
"""Sections that change no row."""

NOT_DESCRIBED = NoFeaturePrompt(reason="not described yet", retryable=True)
"""Stands for a portrait that no extractor has looked at."""


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

    @property
    def asked(self) -> int:
        """How often it looks at each edit: in every epoch, in every way that it wants to see it."""
        return self.epochs * self.judge.capabilities.views


@dataclass(frozen=True, slots=True, kw_only=True)
class NamedExtractor:
    """An extractor under the name that the audit gives it."""

    name: str
    extractor: Extractor


def reads_features(editor: Editor, arm: Arm) -> bool:
    """Whether a request needs its portraits described: not for finished edits, whose words were read elsewhere."""
    return arm in NEEDS_FEATURES and editor.capabilities.reads_instruction


def _nobody() -> Mapping[str, FeaturePrompt | NoFeaturePrompt]:
    return {}


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
    sample: Sample | None = None
    """The cells of the grid that are run; None for all."""
    casts: tuple[Cast, ...] = ()
    """Role prompts with their people."""
    extractors: tuple[NamedExtractor, ...] = ()
    """Who describes the portraits; none where no arm needs it."""
    features: Mapping[str, FeaturePrompt | NoFeaturePrompt] = field(default_factory=_nobody)
    """By portrait: the feature prompt, or why there is none; those not described yet are absent."""

    def requests(self, named: NamedEditor) -> Iterator[Request]:
        """All requests to one editor, portrait by portrait, so that it can share work on one picture."""
        for portraits, arm, prompt in self.cells(named):
            lacking = self._lacking(named, portraits, arm)
            if lacking is not None:
                continue
            words = self._instruction(named, portraits, arm, prompt)
            yield from self._seeded(named, portraits, arm, prompt, words)

    def unasked(self, named: NamedEditor) -> Iterator[tuple[Request, NoFeaturePrompt]]:
        """Requests that cannot be made, as a portrait has no feature prompt or has none yet; with the reason."""
        for portraits, arm, prompt in self.cells(named) if self.extractors else ():
            lacking = self._lacking(named, portraits, arm)
            if lacking is not None:
                yield from ((each, lacking) for each in self._seeded(named, portraits, arm, prompt, prompt.text))

    def request_count(self, named: NamedEditor) -> int:
        """How many requests `requests` and `unasked` yield together."""
        return sum(1 for _ in self.cells(named)) * len(named.seeds)

    @cached_property
    def portraits_to_describe(self) -> tuple[Portrait, ...]:
        """Those whose features some request needs."""
        needed = {
            portrait.id
            for named in self.editors
            for portraits, arm, _ in self.cells(named)
            if reads_features(named.editor, arm)
            for portrait in portraits
        }
        return tuple(portrait for portrait in self.portraits if portrait.id in needed)

    def _lacking(self, named: NamedEditor, portraits: tuple[Portrait, ...], arm: Arm) -> NoFeaturePrompt | None:
        """Why this request cannot be put into words; None if it can."""
        if not self.extractors or not reads_features(named.editor, arm):
            return None
        found = (self.features.get(portrait.id, NOT_DESCRIBED) for portrait in portraits)
        return next((each for each in found if isinstance(each, NoFeaturePrompt)), None)

    def _instruction(self, named: NamedEditor, portraits: tuple[Portrait, ...], arm: Arm, prompt: Prompt) -> str:
        if not reads_features(named.editor, arm):
            # A finished edit was made with words that are not known here.
            return instruction(prompt, Arm.BASELINE if arm in NEEDS_FEATURES else arm)
        found = [self.features[portrait.id] for portrait in portraits]
        sentences = [each.sentence for each in found if isinstance(each, FeaturePrompt)]
        seed = digest([[portrait.id for portrait in portraits], prompt.id])
        return instruction(prompt, arm, sentences, position=self._mitigation.position, seed=seed)

    def _seeded(
        self, named: NamedEditor, portraits: tuple[Portrait, ...], arm: Arm, prompt: Prompt, words: str
    ) -> Iterator[Request]:
        for seed in named.seeds:
            yield Request(
                portraits=portraits,
                prompt=prompt,
                arm=arm,
                instruction=words,
                editor=named.editor.spec,
                seed=seed,
                attributes_matter=named.editor.capabilities.attributes_matter,
                content=_content(named.editor, portraits, prompt, arm, seed),
            )

    @property
    def _mitigation(self) -> MitigationSection:
        return self.config.mitigation or MitigationSection()

    def treatments(self) -> Iterator[tuple[Arm, Prompt]]:
        """Every arm with every prompt that it is used with."""
        for arm in self.config.arms:
            yield from ((arm, prompt) for prompt in ((_NOOP,) if arm is Arm.NOOP else self.prompts))

    @cached_property
    def ensemble(self) -> tuple[str, ...]:
        """The judges that are combined: those named, else all models.

        Instruments measure and do not rate; people are what the others are held against.
        """
        named = self.config.ensemble.judges
        return tuple(
            each.name
            for each in self.judges
            if (each.name in named if named is not None else each.judge.capabilities.kind == "model")
        )

    def expected_place(self, request: Request) -> int:
        """Role requests: whether the first or second person has the gender that the stereotype expects; else 0."""
        section = self.config.roles
        return roles.expected_place(request.prompt, request.portraits, section) if section else 0

    def cells(self, named: NamedEditor) -> Iterator[tuple[tuple[Portrait, ...], Arm, Prompt]]:
        """Who meets which prompt under which arm, before words and seeds."""
        for portrait in self.portraits:
            subjects = list(self._subjects(named, portrait))
            for arm in self.config.arms if subjects else ():
                if arm is Arm.NOOP:
                    yield (portrait,), arm, _NOOP
                else:
                    yield from ((portraits, arm, prompt) for portraits, prompt in subjects)

    def _subjects(self, named: NamedEditor, first: Portrait) -> Iterator[tuple[tuple[Portrait, ...], Prompt]]:
        """Who is edited with which prompt, of all requests that begin with this portrait."""
        for prompt in self.prompts:
            acted = self.config.roles and prompt.target
            if not acted and (self.sample is None or self.sample.holds(named.name, first, prompt)):
                yield (first,), prompt
        yield from ((each.portraits, each.prompt) for each in self._casts_by_first.get(first.id, ()))

    @cached_property
    def _casts_by_first(self) -> Mapping[str, Sequence[Cast]]:
        found: dict[str, list[Cast]] = {}
        for each in self.casts:
            found.setdefault(each.portraits[0].id, []).append(each)
        return found

    def assessments(self, named: NamedJudge, request: Request, image: str) -> Iterator[tuple[str, int]]:
        """What a judge is asked about an edit: the key of the assessment and its epoch, for every epoch."""
        for epoch in range(named.asked):
            yield digest([request.key, image, named.judge.spec.key, epoch]), epoch

    def pair(self, named: NamedJudge, request: Request, edited: ImageFile, epoch: int) -> Pair:
        """What a judge is shown of an edit: the labels only if it asks for them."""
        return Pair(
            edit=request.key,
            sources=tuple(portrait.image for portrait in request.portraits),
            edited=edited,
            prompt=request.prompt,
            labels=request.portraits[0].attributes if named.judge.capabilities.labels else None,
            epoch=epoch,
        )

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
        plain["mitigation"] = self._resolved_mitigation()
        return _without_none(plain)

    def _resolved_mitigation(self) -> Json:
        """Who describes the portraits, where somebody does: elsewhere the section changes no row."""
        described = [
            {"name": each.name, "use": spec.use, "version": spec.version, "parameters": dict(spec.parameters)}
            for each in self.extractors
            for spec in [each.extractor.spec]
        ]
        return {"position": self._mitigation.position, "extractors": described} if described else None

    def as_input(self) -> Mapping[str, Json]:
        """An audit.toml that means the same from any folder."""
        return _without_none(self.config.model_dump(mode="json") | {"base": str(self.base)})

    @cached_property
    def base(self) -> Path:
        """Where relative paths are meant from."""
        return (self.file.parent / (self.config.base or "")).resolve()

    @cached_property
    def hash(self) -> str:
        """Names the configuration; budget, executor and title do not count, as they change no row."""
        return digest({name: part for name, part in self.resolved.items() if name not in _HOW_NOT_WHAT})


def _content(editor: Editor, portraits: tuple[Portrait, ...], prompt: Prompt, arm: Arm, seed: int) -> str:
    return editor.fingerprint(portraits, prompt, arm, seed) if isinstance(editor, Fingerprinted) else ""


def _without_none(value: Json) -> Json:
    if isinstance(value, dict):
        items = cast("dict[str, Json]", value).items()
        return {key: _without_none(item) for key, item in items if item is not None}
    if isinstance(value, list):
        return [_without_none(entry) for entry in cast("list[Json]", value)]
    return value
