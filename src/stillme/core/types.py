"""The records that every room speaks in: frozen, plain, and keyed by their content."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, is_dataclass, replace
from enum import StrEnum
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, cast

from stillme.core.errors import StillmeError

Json = Any
"""Anything that `json.dumps` takes. Spelled out, the recursive type buys no safety here."""

Attributes = Mapping[str, str]


_canonical = json.JSONEncoder(sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode


def digest(value: Json) -> str:
    """128 bits of SHA-256 over canonical JSON: the same content has the same key on every machine."""
    return hashlib.sha256(_canonical(value).encode()).hexdigest()[:32]


def plain(value: object) -> Json:
    """A value as JSON has it. Records become objects of their fields, or what their own `as_json` says."""
    return json.loads(json.dumps(value, default=_plain_part))


def _plain_part(value: Any) -> Json:
    if hasattr(value, "as_json"):
        return value.as_json()
    if is_dataclass(value):
        return {part.name: getattr(value, part.name) for part in fields(value)}
    return dict(cast("Mapping[str, object]", value)) if isinstance(value, Mapping) else str(value)


class Arm(StrEnum):
    """How the prompt reaches the editor."""

    BASELINE = "baseline"
    FEATURE = "feature"
    PLACEBO = "placebo"
    NOOP = "noop"


@dataclass(frozen=True, slots=True, kw_only=True)
class ImageFile:
    """An image on disk, named by the SHA-256 of its bytes."""

    path: Path
    sha256: str

    def read(self) -> bytes:
        """The file as it is, undecoded."""
        return self.path.read_bytes()

    @classmethod
    def of(cls, path: Path) -> ImageFile:
        """Hash the file at `path`."""
        return cls(path=path, sha256=hashlib.sha256(path.read_bytes()).hexdigest())


@dataclass(frozen=True, slots=True, kw_only=True)
class Portrait:
    """One source picture of one person."""

    id: str
    image: ImageFile
    attributes: Attributes
    """Labels such as race, gender or age band: assigned by someone, never truth."""
    label_origin: str
    """Who or what gave the labels."""
    licence: str
    block: str = ""
    """Portraits that share a block differ only by design, so contrasts within it are paired."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Prompt:
    """One instruction of a prompt set."""

    id: str
    text: str
    category: str
    subcategory: str
    years: int | None = None
    """Aging prompts: how many years older the person should look."""
    target: str | None = None
    """Role prompts: the occupation whose stereotype is tested."""
    stereotype: str | None = None
    """Role prompts: the gender that the stereotype expects, `male` or `female`."""
    pronoun: str | None = None
    """Role prompts: whether the pronoun follows the stereotype (`pro`), goes against it (`anti`) or tells nothing."""


@dataclass(frozen=True, kw_only=True)
class Spec:
    """What exactly did the work: a plugin, its version, and every parameter that can change the result."""

    use: str
    version: str
    parameters: Mapping[str, Json]
    """What is part of the key. A parameter that changes no result has its default here, whatever was given."""
    unkeyed: Mapping[str, Json] = field(default_factory=lambda: dict[str, Json]())
    """The given values of parameters that change no result, where they are not the default."""

    @cached_property
    def key(self) -> str:
        """The hash of what can change the result."""
        return digest([self.use, self.version, self.parameters])

    @property
    def stated(self) -> dict[str, Json]:
        """All parameters as they were given."""
        return {**self.parameters, **self.unkeyed}


@dataclass(frozen=True, kw_only=True)
class Request:
    """One edit that the audit asks for."""

    portraits: tuple[Portrait, ...]
    prompt: Prompt
    arm: Arm
    instruction: str
    """The words the editor reads: the prompt, as its arm changes it."""
    editor: Spec
    seed: int
    attributes_matter: bool = False
    """Whether the editor reads the labels (only planted ones do); they are then part of the key."""
    content: str = ""
    """The hash of what the editor would return, where it knows beforehand: a file that changes is another request."""

    @cached_property
    def key(self) -> str:
        """The hash of everything that can change the outcome, and of what it is an outcome of."""
        return digest(
            [
                [[p.id, p.image.sha256] for p in self.portraits],
                [self.prompt.id, self.prompt.text],
                self.arm,
                self.instruction,
                self.editor.key,
                self.seed,
                [dict(p.attributes) for p in self.portraits] if self.attributes_matter else None,
                self.content,
            ]
        )


def _nothing() -> Mapping[str, Json]:
    return {}


@dataclass(frozen=True, slots=True, kw_only=True)
class Edited:
    """An image came back. Whether it shows the edit is for the judges."""

    image: bytes
    """An encoded file, in any format that Pillow reads."""
    effective: Mapping[str, Json] = field(default_factory=_nothing)
    """What really applied: resolved size, library versions, a rewritten prompt."""
    truth: Mapping[str, Json] | None = None
    """Known-answer editors write here what they planted."""
    cost: float = 0.0
    """US dollars."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Refused:
    """The editor declined. A finding, never an error."""

    message: str
    """The editor's own words, unedited."""
    effective: Mapping[str, Json] = field(default_factory=_nothing)
    cost: float = 0.0


UNPRICED: Mapping[str, Json] = {"cost": "unknown"}
"""Among the effective parameters: something was charged, or may have been, whose price is unknown."""


def is_unpriced(effective: Mapping[str, Json]) -> bool:
    """Whether the effective parameters say so."""
    return effective.get("cost") == UNPRICED["cost"]


IN_WORDS = "words"
"""The `status` of an editor's answer that is neither a picture nor a refusal, such as a question: counted apart."""
MALFORMED = "malformed"
"""The `status` of a judge's answer that is not in the form that was asked for, whatever is wrong with it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Failed:
    """Something broke. Says nothing about the person in the picture, never becomes a score, and is never final."""

    error: str
    retryable: bool
    """Whether trying again in the same run may help; a later run tries again in any case."""
    fatal: bool = False
    """Whether every other call fails alike until the user acts: a wrong key, no credit, no such model."""
    throttled: bool = False
    """Whether the other side only asks to slow down: such a try does not count."""
    retry_after: float | None = None
    """Seconds, when the other side said how long to wait."""
    status: str = ""
    """The other side's code, such as an HTTP status, where there was one."""
    effective: Mapping[str, Json] = field(default_factory=_nothing)
    """What an edit's row keeps of it, such as `cost` = "unknown"."""
    cost: float = 0.0


EditOutcome = Edited | Refused | Failed


@dataclass(frozen=True, slots=True, kw_only=True)
class Rated:
    """A judge's answer on one axis, in that axis's own unit."""

    score: float
    evidence: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Abstained:
    """The judge looked and would not or could not say."""

    reason: str


Rating = Rated | Abstained | Failed


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """One edit as a judge sees it: pictures and the instruction, but no editor, no arm, no group."""

    edit: str
    """The request's key. For bookkeeping: a judge must not show it to a model."""
    sources: tuple[ImageFile, ...]
    edited: ImageFile
    prompt: Prompt
    labels: Attributes | None = None
    """The portrait's labels, only where the audit discloses them."""
    epoch: int = 0
    """Repeats of the same rating count up from 0."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Assessment:
    """Everything that one judge said of one pair in one go."""

    ratings: Mapping[str, Rating]
    raw: str | None = None
    """The judge's answer as it came, to check the parsing."""
    effective: Mapping[str, Json] = field(default_factory=_nothing)
    cost: float = 0.0

    @property
    def failure(self) -> Failed | None:
        """The first failure among the ratings, if any."""
        return next((r for r in self.ratings.values() if isinstance(r, Failed)), None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Interval:
    """A value and how sure we are of it."""

    value: float
    low: float
    high: float
    confidence: float
    method: str


@dataclass(frozen=True, slots=True, kw_only=True)
class NotEstimable:
    """There is no honest number here."""

    reason: str


Redaction = Literal["none", "blur", "omit"]
"""Portraits as they are, as a dozen blurred patches of colour, or not at all."""

Scope = Literal["all", "group", "disparity", "contrast"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """One quantity, for everyone, for a group, or between groups."""

    quantity: str
    """A mean (`skin_delta_l`) or a named rate (`unchanged`)."""
    editor: str
    arm: str
    judge: str
    scope: Scope
    factor: str
    """The attribute that divides the portraits; empty for everyone."""
    group: str
    """One level of the factor; for a contrast `level - reference`; empty otherwise."""
    outcome: Interval | NotEstimable
    portraits: int
    edits: int
    excluded: Mapping[str, int] = field(default_factory=_nothing)
    """Edits excluded from this number, counted by reason."""
    prompts: str = ""
    """The prompt, or the set of prompts, that the edits are limited to; empty for all."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlantedGap:
    """A gap that a known-answer editor planted between a group and the rest, and what the audit makes of it."""

    quantity: str
    editor: str
    factor: str
    group: str
    planted: float
    """By the editor's parameters, on average."""
    realised: Interval | NotEstimable
    """In the edits at hand, by the truth stored with each."""
    recovered: Interval | NotEstimable
    """By the judge, who does not know."""


TIMES = " × "
"""Between the parts of an intersection: `race × gender`, `Black × female`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """How numbers are made of the rows: one record from audit.toml to the estimates."""

    factors: tuple[str, ...] = ()
    """The attributes whose groups are compared."""
    reference: Mapping[str, str] = field(default_factory=dict[str, str])
    """Factor to the level that others are compared with; without one, each level against the rest."""
    confidence: float = 0.95
    prompts: Literal["fixed", "sample"] = "fixed"
    """`fixed`: results are about these prompts. `sample`: about prompts like these, so prompts are clusters too."""
    smallest_effects: Mapping[str, float] = field(default_factory=dict[str, float])
    """The smallest differences that matter, where the audit has its own."""
    race_cut: int | None = None
    """From which score on the paper's tables count a race as changed; None for the rubric's."""
    rule: str = "mean"
    """How several judges become one."""
    combined: tuple[str, ...] = ()
    """The judges that are combined, the primary one of Eq. 3 first."""
    matched_on: tuple[str, ...] = ()
    """Attributes that portraits are matched on although they are not compared here; those compared always count."""

    def __post_init__(self) -> None:
        if not 0.5 <= self.confidence < 1:
            raise StillmeError(f"confidence is {self.confidence}; give a share from 0.5 to below 1.")
        if self.prompts not in ("fixed", "sample"):
            raise StillmeError(f"prompts is {self.prompts!r}; give 'fixed' or 'sample'.")
        if stray := sorted(set(self.reference) - set(self.factors)):
            raise StillmeError(f"reference names {stray[0]!r}, which is not among the factors {list(self.factors)}.")

    def comparing(self, *factors: str, reference: Mapping[str, str] | None = None) -> Settings:
        """The same with other factors compared; portraits stay matched as they were."""
        matched_on = tuple(dict.fromkeys((*self.factors, *self.matched_on)))
        return replace(self, factors=factors, reference=reference or {}, matched_on=matched_on)

    def matched_with(self, factor: str) -> tuple[str, ...]:
        """The attributes that the portraits of a factor's levels are matched on: all declared ones but its own."""
        own = factor.split(TIMES)
        return tuple(name for name in self.design_factors if name not in own)

    @property
    def design_factors(self) -> tuple[str, ...]:
        """Every attribute that the portraits were chosen by."""
        declared = (*self.factors, *self.matched_on)
        return tuple(dict.fromkeys(part for factor in declared for part in factor.split(TIMES)))


@dataclass(frozen=True, slots=True, kw_only=True)
class Genders:
    """The attribute in which the two people of a role prompt differ, and its labels for the stereotypes' genders."""

    factor: str = "gender_presentation"
    male: str = "masculine"
    female: str = "feminine"
