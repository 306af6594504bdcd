"""An audit that was checked: its parts, and the grid of requests, generated and never held in memory."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import cast

from stillme.audit.config import Config, ControlPairsSection, MitigationSection
from stillme.audit.design import (
    CardRecord,
    Design,
    EditorRecord,
    ExtractorRecord,
    JudgeRecord,
    PlantedAnswers,
    RecordedRequest,
    RolesRecord,
    configuration_hash,
)
from stillme.audit.grid import NOOP, AuditGrid, Cast, Cell, Sample, expected_place
from stillme.core.protocols import Editor, Judge, ValidityCard
from stillme.core.registry import PluginRecipe
from stillme.core.types import Arm, ImageFile, Json, Pair, Portrait, Prompt, Request, Settings, Spec, digest
from stillme.judges.ensemble import primary_of
from stillme.mitigation.arms import NEEDS_FEATURES, PairedArms, instruction
from stillme.mitigation.features import Extractor, FeaturePrompt, NoFeaturePrompt

PLANTED_QUANTITIES = ("skin_delta_l", "unchanged")
"""Quantities that known-answer editors know in advance."""

NOT_DESCRIBED = NoFeaturePrompt(reason="not described yet", retryable=True)
"""For a portrait that no extractor has described."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NamedEditor:
    """An editor under the name that the audit's tables show."""

    name: str
    editor: Editor
    seeds: tuple[int, ...]
    recipe: PluginRecipe | None = None
    """How to build it in another process; None for one that was built in Python."""
    time_limit: float | None = None
    """Seconds that one call may take, where audit.toml says."""
    paper: str = ""
    """The paper's editor that it is, where audit.toml says so."""

    def record(self, portraits: Sequence[Portrait]) -> EditorRecord:
        """What reading its rows needs."""
        return EditorRecord(
            name=self.name,
            spec=self.editor.spec,
            seeds=self.seeds,
            summary=_summary(self.editor),
            capabilities=self.editor.capabilities,
            answers=_planted(self.editor, portraits),
            paper=self.paper,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class NamedJudge:
    """A judge under the name that the audit's tables show."""

    name: str
    judge: Judge
    epochs: int
    control_pairs: ControlPairsSection = field(default_factory=ControlPairsSection)
    recipe: PluginRecipe | None = None
    """As an editor's."""
    time_limit: float | None = None

    @property
    def asked_elsewhere(self) -> bool:
        """Whether it is a model on another party's computer, which may change without notice."""
        capabilities = self.judge.capabilities
        return capabilities.kind == "model" and not capabilities.given and bool(self.judge.provider)

    def record(self, calibration: Mapping[str, Json] | None = None) -> JudgeRecord:
        """What reading its rows needs."""
        return JudgeRecord(
            name=self.name,
            spec=self.judge.spec,
            epochs=self.epochs,
            capabilities=self.judge.capabilities,
            summary=_summary(self.judge),
            cards=tuple(_card(card) for card in self.judge.cards()),
            calibration=calibration,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class NamedExtractor:
    """An extractor under the name that the audit gives it."""

    name: str
    extractor: Extractor


def reads_features(editor: Editor, arm: Arm) -> bool:
    """Whether a request needs its portraits described: not for finished edits, whose words were read elsewhere."""
    return arm in NEEDS_FEATURES and editor.capabilities.reads_instruction


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
    """What describes the portraits; empty if no arm needs it."""
    readers: tuple[NamedJudge, ...] = ()
    """Who says what single pictures show."""
    features: Mapping[str, FeaturePrompt | NoFeaturePrompt] = field(
        default_factory=dict[str, FeaturePrompt | NoFeaturePrompt]
    )
    """By portrait: the feature prompt, or why there is none; those not described yet are absent."""

    def __repr__(self) -> str:
        factors = ", ".join(self.factors) or "none"
        lines = {
            "portraits": f"{len(self.portraits)} by {factors}",
            "instructions": len(self.prompts),
            "arms": ", ".join(self.config.arms),
            "editors": ", ".join(f"{named.name} ({self.request_count(named):,} edits)" for named in self.editors),
            "judges": ", ".join(named.name for named in self.judges) or "none",
            "folder": self.folder,
        }
        body = "".join(f"\n  {name:<14}{value}" for name, value in lines.items())
        return f"<Audit {self.config.title!r}{body}\n  `stillme.run(audit)` starts or resumes it>"

    def requests(self, named: NamedEditor) -> Iterator[Request]:
        """All requests to one editor, portrait by portrait, so that it can share work on one picture."""
        for portraits, arm, prompt in self.cells(named):
            lacking = self._lacking(named, portraits, arm)
            if lacking is not None:
                continue
            words = self._instruction(named, portraits, arm, prompt)
            yield from self._seeded(named, portraits, arm, prompt, words)

    def notes(self) -> Iterator[str]:
        """What editors tell before their first edit."""
        for named in self.editors:
            yield from (f"{named.name}: {note}." for note in named.editor.notes(self.requests(named)))

    def requests_by_portrait(self) -> Iterator[Request]:
        """All requests to all editors, portrait by portrait, so that a judge can share work on one source."""
        streams = [itertools.groupby(self.requests(named), lambda r: r.portraits[0].id) for named in self.editors]
        waiting = [next(stream, None) for stream in streams]
        for portrait in self.portraits:
            for place, stream in enumerate(streams):
                # An editor's own requests come in the order of the portraits, but need not reach all of them.
                if (group := waiting[place]) and group[0] == portrait.id:
                    yield from group[1]
                    waiting[place] = next(stream, None)

    def unasked(self, named: NamedEditor) -> Iterator[tuple[Request, NoFeaturePrompt]]:
        """Requests that cannot be made, as a portrait has no feature prompt or has none yet; with the reason."""
        for portraits, arm, prompt in self.cells(named) if self.extractors else ():
            lacking = self._lacking(named, portraits, arm)
            if lacking is not None:
                requests = self._seeded(named, portraits, arm, prompt, prompt.text)
                yield from ((request, lacking) for request in requests)

    def request_count(self, named: NamedEditor) -> int:
        """How many requests `requests` and `unasked` yield together."""
        if self.sample is not None or self.casts:
            return sum(1 for _ in self.cells(named)) * len(named.seeds)
        # Every portrait has the cells of the first: a grid of millions need not be walked.
        first = replace(self, portraits=self.portraits[:1])
        return sum(1 for _ in first.cells(named)) * len(self.portraits) * len(named.seeds)

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
        """Why this request has no instruction; None if it has one."""
        if not self.extractors or not reads_features(named.editor, arm):
            return None
        prompts = (self.features.get(portrait.id, NOT_DESCRIBED) for portrait in portraits)
        return next((prompt for prompt in prompts if isinstance(prompt, NoFeaturePrompt)), None)

    def _instruction(self, named: NamedEditor, portraits: tuple[Portrait, ...], arm: Arm, prompt: Prompt) -> str:
        if not reads_features(named.editor, arm):
            # A finished edit was made with words that are not known here.
            return instruction(prompt, Arm.BASELINE if arm in NEEDS_FEATURES else arm)
        prompts = [self.features[portrait.id] for portrait in portraits]
        sentences = [described.sentence for described in prompts if isinstance(described, FeaturePrompt)]
        return self.words(portraits, arm, prompt, sentences)

    def words(self, portraits: Sequence[Portrait], arm: Arm, prompt: Prompt, sentences: Sequence[str]) -> str:
        """The instruction of an arm, where these sentences describe the portraits."""
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
                content=named.editor.fingerprint(portraits, prompt, arm, seed),
            )

    @property
    def _mitigation(self) -> MitigationSection:
        return self.config.mitigation or MitigationSection()

    def treatments(self) -> Iterator[tuple[Arm, Prompt]]:
        """Every arm with every prompt that it is used with."""
        for arm in self.config.arms:
            yield from ((arm, prompt) for prompt in ((NOOP,) if arm is Arm.NOOP else self.prompts))

    @cached_property
    def ensemble(self) -> tuple[str, ...]:
        """The judges that are combined: those named, in that order, else all models. The first is Eq. 3's primary.

        Instruments measure and do not rate; people are the standard that the others are compared with.
        """
        named = self.config.ensemble.judges
        if named is not None:
            return tuple(named)
        return tuple(judge.name for judge in self.judges if judge.judge.capabilities.kind == "model")

    def expected_place(self, request: Request) -> int:
        """Role requests: whether the first or second person has the gender that the stereotype expects; else 0."""
        section = self.config.roles
        return expected_place(request.prompt, request.portraits, section) if section else 0

    def cells(self, named: NamedEditor) -> Iterator[Cell]:
        """Which portraits are edited with which prompt under which arm, before instructions and seeds."""
        return self._grid.cells(named.name)

    @cached_property
    def _grid(self) -> AuditGrid:
        return AuditGrid(
            portraits=self.portraits,
            prompts=[prompt for prompt in self.prompts if not (self.config.roles and prompt.target)],
            arms=self.config.arms,
            sample=self.sample,
            casts=self.casts,
        )

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
    def control_prompts(self) -> tuple[Prompt, ...]:
        """Instructions that a pair of known truth can be shown with: those of one person."""
        return tuple(dict.fromkeys(prompt for _, prompt in self.treatments() if prompt.target is None))

    def control_pair_count(self, named: NamedJudge) -> int:
        """How many pairs of known truth are hidden among the questions to a judge."""
        if not named.asked_elsewhere or not named.control_pairs.share or not self.control_prompts:
            return 0
        pictures = sum(self.request_count(editor) for editor in self.editors)
        return round(named.control_pairs.share * pictures * named.record().asked)

    def design(self, calibrations: Mapping[str, Mapping[str, Json]] | None = None) -> Design:
        """The audit written down, with what is known of its judges' calibration."""
        known = calibrations or {}
        roles = self.config.roles
        return Design(
            title=self.config.title,
            hash=self.hash,
            resolved=self.resolved,
            portraits=self.portraits,
            prompts=self.prompts,
            treatments=tuple(self.treatments()),
            editors=tuple(named.record(self.portraits) for named in self.editors),
            judges=tuple(
                replace(named.record(known.get(named.name)), control_pairs=self.control_pair_count(named))
                for named in self.judges
            ),
            extractors=tuple(ExtractorRecord(name=named.name, spec=named.extractor.spec) for named in self.extractors),
            readers=tuple(named.record() for named in self.readers),
            analysis=Settings(
                factors=self.factors,
                **self.config.estimates.model_dump(exclude={"factors"}),
                rule=self.config.ensemble.rule,
                combined=self.ensemble,
            ),
            roles=RolesRecord(layouts=tuple(roles.layouts), gender=roles.gender, male=roles.male, female=roles.female)
            if roles
            else None,
        )

    def recorded_requests(self) -> Iterator[RecordedRequest]:
        """Every request in the audit's own order, editor by editor; after them those that cannot be made."""
        for named in self.editors:
            arms = PairedArms()
            for request in self.requests(named):
                arms.check(request)
                yield self._recorded(named, request)
            for request, lacking in self.unasked(named):
                yield replace(self._recorded(named, request), withheld=lacking.reason, waiting=lacking.retryable)

    def _recorded(self, named: NamedEditor, request: Request) -> RecordedRequest:
        return RecordedRequest(
            editor=named.name,
            key=request.key,
            portraits=tuple(portrait.id for portrait in request.portraits),
            prompt=request.prompt.id,
            arm=request.arm,
            instruction=request.instruction,
            seed=request.seed,
            attributes_matter=request.attributes_matter,
            content=request.content,
            expected_place=self.expected_place(request),
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
        if self.sample and plain["sample"]["cells"]:
            plain["sample"] |= {"hash": self.sample.hash}
        for entry, editor in zip(plain["editors"], self.editors, strict=True):
            spec = editor.editor.spec
            entry |= {"name": editor.name, "version": spec.version, "parameters": spec.stated}
            entry |= {"seeds": list(editor.seeds)}
            del entry["time_limit"], entry["paper"]  # they change no row of the run
        for entry, judge in zip(plain["judges"], self.judges, strict=True):
            spec = judge.judge.spec
            del entry["control_pairs"], entry["time_limit"]  # they change no row of the run
            entry |= {"name": judge.name, "version": spec.version, "parameters": spec.stated}
        primary = primary_of(self.config.ensemble.rule, self.ensemble)
        plain["ensemble"] |= {"combined": list(self.ensemble)} | ({"primary": primary} if primary else {})
        plain["mitigation"] = self._resolved_mitigation()
        if self.config.readings:
            plain["readings"]["judges"] = [_named_spec(named.name, named.judge.spec) for named in self.readers]
        return without_none(plain)

    def _resolved_mitigation(self) -> Json:
        """The extractors, if any is used; otherwise the section changes no row."""
        described = [_named_spec(named.name, named.extractor.spec) for named in self.extractors]
        return {"position": self._mitigation.position, "extractors": described} if described else None

    def kept_in(self, folder: Path) -> Audit:
        """The same audit, whose run is kept elsewhere."""
        return replace(self, folder=folder)

    def as_input(self) -> Mapping[str, Json]:
        """An audit.toml that means the same from any folder."""
        return without_none(self.config.model_dump(mode="json") | {"base": str(self.base)})

    @cached_property
    def base(self) -> Path:
        """What relative paths are relative to."""
        return (self.file.parent / (self.config.base or "")).resolve()

    @cached_property
    def hash(self) -> str:
        """Names the configuration."""
        return configuration_hash(self.resolved)


def _named_spec(name: str, spec: Spec) -> dict[str, Json]:
    return {"name": name, "use": spec.use, "version": spec.version, "parameters": spec.stated}


def _summary(plugin: object) -> str:
    return (type(plugin).__doc__ or "").partition("\n")[0]


def _card(card: ValidityCard) -> CardRecord:
    return CardRecord(
        title=card.title,
        axes=tuple(card.axes),
        paragraphs=dict(card.paragraphs),
        rows=tuple(tuple(row) for row in card.rows),
        body=card.text(),
    )


def _planted(editor: Editor, portraits: Sequence[Portrait]) -> PlantedAnswers | None:
    if editor.planted is None:
        return None
    factor, levels = editor.planted
    return PlantedAnswers(
        factor=factor,
        levels=tuple(levels),
        expected={
            quantity: {portrait.id: editor.expected(quantity, portrait) or 0.0 for portrait in portraits}
            for quantity in PLANTED_QUANTITIES
        },
    )


def without_none(value: Json) -> Json:
    """The value as TOML has it, which knows no absent values."""
    if isinstance(value, dict):
        items = cast("dict[str, Json]", value).items()
        return {key: without_none(item) for key, item in items if item is not None}
    if isinstance(value, list):
        return [without_none(entry) for entry in cast("list[Json]", value)]
    return value
