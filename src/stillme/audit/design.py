"""What a run asks, written down: everything that reading its rows needs, so that no reader needs plugins or inputs.

A design is recorded in the ledger when work begins, with every request and its key. Readers open it and nothing else.
"""

from __future__ import annotations

import hashlib
import itertools
import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from stillme.core.capabilities import Capabilities, JudgeCapabilities
from stillme.core.errors import StillmeError
from stillme.core.types import Arm, ImageFile, Json, Portrait, Prompt, Request, Settings, Spec, digest

T = TypeVar("T")

FILE = "audit.toml"
"""What asks for an audit, in its folder."""
RESOLVED = "resolved.toml"
"""The same with every default filled in, as a run recorded it."""
_MADE_FROM = "# Made from audit.toml, SHA-256 "

UNKEYED_SECTIONS = frozenset({"title", "base", "budget", "claims", "executor", "pictures", "reuse", "control_pairs"})
"""Sections of a configuration that change no row."""


def name_source(folder: Path) -> str:
    """A comment for resolved.toml that names the audit.toml it was made from; empty where there is none."""
    file = folder / FILE
    return f"{_MADE_FROM}{hashlib.sha256(file.read_bytes()).hexdigest()}\n" if file.is_file() else ""


def is_edited(folder: Path) -> bool:
    """Whether audit.toml is another file than the one that the run was recorded from."""
    try:
        with (folder / RESOLVED).open(encoding="utf-8") as lines:
            recorded = [line for line in itertools.islice(lines, 2) if line.startswith(_MADE_FROM)]
        return bool(recorded) and recorded[0] != name_source(folder)
    except (OSError, UnicodeDecodeError):
        return False


class UnreadableDesign(StillmeError):
    """A recorded design that this stillme cannot make sense of."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlantedAnswers:
    """What a known-answer editor says it plants."""

    factor: str
    levels: tuple[str, ...]
    expected: Mapping[str, Mapping[str, float]]
    """Quantity to portrait to the planted value, on average over edits."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EditorRecord:
    """An editor as it was when the run was recorded."""

    name: str
    spec: Spec
    seeds: tuple[int, ...]
    summary: str = ""
    """The first line of its documentation."""
    capabilities: Capabilities = field(default_factory=Capabilities)
    answers: PlantedAnswers | None = None
    paper: str = ""
    """The paper's editor that it is, where the user says so."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CardRecord:
    """A judge's validity card as it was."""

    title: str
    axes: tuple[str, ...]
    paragraphs: Mapping[str, str]
    rows: tuple[tuple[str, ...], ...]
    body: str

    def text(self) -> str:
        """The card for a terminal."""
        return self.body


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgeRecord:
    """A judge as it was when the run was recorded."""

    name: str
    spec: Spec
    epochs: int
    capabilities: JudgeCapabilities
    summary: str = ""
    cards: tuple[CardRecord, ...] = ()
    calibration: Mapping[str, Json] | None = None
    """Its calibration as this machine knew it, if it was calibrated."""
    control_pairs: int = 0
    """How many pairs of known truth are hidden among its questions."""

    @property
    def unblinded(self) -> bool:
        """Whether it sees the portraits' labels; otherwise it is blind."""
        return self.capabilities.labels

    @property
    def asked(self) -> int:
        """How often it looks at each edit: in every epoch, in every way that it wants to see it."""
        return self.epochs * self.capabilities.views

    def assessments(self, request: str, image: str) -> Iterator[tuple[str, int]]:
        """The key and epoch of everything it is asked about an edit."""
        for epoch in range(self.asked):
            yield assessment_key(request, image, self.spec.key, epoch), epoch


@dataclass(frozen=True, slots=True, kw_only=True)
class ExtractorRecord:
    """An extractor as it was when the run was recorded."""

    name: str
    spec: Spec


@dataclass(frozen=True, slots=True, kw_only=True)
class RolesRecord:
    """How role prompts met the portraits: the attribute in which two people differ, and its values."""

    layouts: tuple[str, ...] = ()
    gender: str
    male: str
    female: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """A rule of the audit's [claims], and when it was recorded."""

    rule: str
    edits: int
    """How many edits the run had by then."""

    @property
    def status(self) -> str:
        """In words. A claim cannot be fitted to results that are not there yet."""
        return "fixed before the first edit" if not self.edits else f"added later, after {self.edits:,} edits"


@dataclass(frozen=True, kw_only=True)
class Design:
    """An audit without its plugins and files."""

    title: str
    hash: str
    """Names the configuration: the same audit has the same hash."""
    resolved: Mapping[str, Json]
    """The configuration with every default filled in and every input named by its hash."""
    portraits: tuple[Portrait, ...]
    prompts: tuple[Prompt, ...]
    treatments: tuple[tuple[Arm, Prompt], ...]
    """Every arm with every prompt that it is used with."""
    editors: tuple[EditorRecord, ...]
    judges: tuple[JudgeRecord, ...]
    extractors: tuple[ExtractorRecord, ...] = ()
    readers: tuple[JudgeRecord, ...] = ()
    """Judges of single pictures; their `reads` are the words for apparent race."""
    analysis: Settings = field(default_factory=Settings)
    roles: RolesRecord | None = None
    claims: tuple[Claim, ...] = ()
    """Every rule that was recorded, those included that were fixed before the first edit and dropped since."""

    @property
    def arms(self) -> tuple[Arm, ...]:
        """The arms, in the audit's order."""
        return tuple(dict.fromkeys(arm for arm, _ in self.treatments))

    @property
    def factors(self) -> tuple[str, ...]:
        """The attributes whose groups are compared."""
        return self.analysis.factors

    @property
    def read_attribute(self) -> str:
        """The attribute whose values are the readers' words for apparent race; empty without readers."""
        return self.resolved["readings"]["attribute"] if self.readers else ""

    @property
    def synthetic(self) -> bool:
        """Whether the portraits are rendered people, the embedded ones or copies of them."""
        return bool(self.portraits) and all(portrait.label_origin.startswith(_RENDERED) for portrait in self.portraits)

    @property
    def of_rows(self) -> bool:
        """Whether the run was made of imported rows: there is no audit that could go on, and no picture to seal."""
        return "rows" in self.resolved

    @cached_property
    def people(self) -> frozenset[str]:
        """The judges who are people."""
        return frozenset(judge.name for judge in self.judges if judge.capabilities.kind == "person")

    def judge(self, name: str) -> JudgeRecord | None:
        """The judge of that name; None for one made of others."""
        return next((judge for judge in self.judges if judge.name == name), None)

    @cached_property
    def portrait_by_id(self) -> Mapping[str, Portrait]:
        """Portraits by their id."""
        return {portrait.id: portrait for portrait in self.portraits}

    @cached_property
    def prompt_by_id(self) -> Mapping[str, Prompt]:
        """Prompts by their id, those of the no-op arm included."""
        return {prompt.id: prompt for prompt in (*self.prompts, *(prompt for _, prompt in self.treatments))}

    def as_json(self) -> dict[str, Json]:
        """For the ledger, and for a bundle: no path of this machine is in it."""
        # What has paths, or is written in another form, is written below.
        document: dict[str, Json] = asdict(replace(self, resolved={}, portraits=(), prompts=(), treatments=())) | {
            "resolved": dict(self.resolved) | {"base": None},
            "portraits": [_portrait_json(portrait) for portrait in self.portraits],
            "prompts": [asdict(prompt) for prompt in self.prompt_by_id.values()],
            "asked": [prompt.id for prompt in self.prompts],
            "treatments": [[str(arm), prompt.id] for arm, prompt in self.treatments],
        }
        if not self.readers:
            del document["readers"]
        # An audit is matched on what it compares; only analyses that compare less have something else here.
        del document["analysis"]["matched_on"]
        # As it will be read: what was recorded is compared with this, and tuples come back as lists.
        return json.loads(json.dumps(document))


class CountedRequest(NamedTuple):
    """As much of a request as counting needs: there may be millions."""

    editor: str
    key: str
    counts: bool
    """Whether an edit of it is expected: not where the request cannot be made."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedRequest:
    """One request of a run: what was asked, of whom, and the key of its rows."""

    editor: str
    key: str
    portraits: tuple[str, ...]
    prompt: str
    arm: Arm
    instruction: str
    seed: int
    attributes_matter: bool = False
    content: str = ""
    """The hash of what the editor would return, where it knew beforehand."""
    expected_place: int = 0
    """Role requests: whether the first or second person has the gender that the stereotype expects; else 0."""
    withheld: str = ""
    """Why it cannot be made; empty where it can."""
    waiting: bool = False
    """Whether what is withheld may still be made."""

    def request(self, design: Design) -> Request:
        """The request itself; its key is computed from what is said here."""
        editor = next(editor for editor in design.editors if editor.name == self.editor)
        return Request(
            portraits=tuple(design.portrait_by_id[name] for name in self.portraits),
            prompt=design.prompt_by_id[self.prompt],
            arm=self.arm,
            instruction=self.instruction,
            editor=editor.spec,
            seed=self.seed,
            attributes_matter=self.attributes_matter,
            content=self.content,
        )


def configuration_hash(resolved: Mapping[str, Json]) -> str:
    """Names a configuration; budget, executor and title do not count, as they change no row."""
    return digest({name: part for name, part in resolved.items() if name not in UNKEYED_SECTIONS})


_RENDERED = "rendering parameters"
"""Where the labels of people who do not exist come from."""


def assessment_key(request: str, image: str, judge: str, epoch: int) -> str:
    """The hash of everything that can change what a judge says: edit, picture, judge, repeat."""
    if request.isalnum() and image.isalnum() and judge.isalnum():
        # The same JSON, in a third of the time: millions of these are computed.
        return hashlib.sha256(f'["{request}","{image}","{judge}",{epoch}]'.encode()).hexdigest()[:32]
    return digest([request, image, judge, epoch])


def reading_key(image: str, judge: str, repeat: int) -> str:
    """The hash of everything that can change what a reader says: picture, reader, repeat."""
    return digest(["reading", image, judge, repeat])


CONTROL = "control"
"""Stands for the editor of a portrait that was only encoded again, as the control of readings."""


def control_spec(editor: Spec) -> Spec:
    """Whose edits are the controls of an editor's edits: JPEG of quality 90, at the size of its output."""
    return Spec(use=CONTROL, version="1", parameters={"editor": editor.key, "quality": 90})


def design_from(data: Mapping[str, Json], locate: Callable[[str], Path]) -> Design:
    """The design that `as_json` wrote; `locate` says where the picture of a hash would be."""
    try:
        prompts = {entry["id"]: _record(Prompt, entry) for entry in data["prompts"]}
        roles = data["roles"]
        return Design(
            title=data["title"],
            hash=data["hash"],
            resolved=data["resolved"],
            portraits=tuple(_portrait(entry, locate) for entry in data["portraits"]),
            prompts=tuple(prompts[name] for name in data["asked"]),
            treatments=tuple((Arm(arm), prompts[name]) for arm, name in data["treatments"]),
            editors=tuple(_editor(entry) for entry in data["editors"]),
            judges=tuple(_judge(entry) for entry in data["judges"]),
            extractors=tuple(_record(ExtractorRecord, entry, spec=_spec) for entry in data["extractors"]),
            readers=tuple(_judge(entry) for entry in data.get("readers", ())),
            analysis=_record(Settings, data["analysis"]),
            roles=_record(RolesRecord, roles) if roles else None,
            claims=tuple(_record(Claim, entry) for entry in data["claims"]),
        )
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise UnreadableDesign(f"The recorded design does not say what this stillme needs: {error!r}.") from None


def _editor(entry: Mapping[str, Json]) -> EditorRecord:
    return _record(
        EditorRecord,
        entry,
        spec=_spec,
        capabilities=lambda part: _record(Capabilities, part),
        answers=lambda part: _record(PlantedAnswers, part),
    )


def _judge(entry: Mapping[str, Json]) -> JudgeRecord:
    return _record(
        JudgeRecord,
        entry,
        spec=_spec,
        capabilities=lambda part: _record(JudgeCapabilities, part),
        cards=lambda part: tuple(map(_card, part)),
    )


def _card(entry: Mapping[str, Json]) -> CardRecord:
    return _record(CardRecord, entry, rows=lambda rows: tuple(tuple(map(str, row)) for row in rows))


def _spec(entry: Mapping[str, Json]) -> Spec:
    return Spec(**entry)


def _portrait_json(portrait: Portrait) -> dict[str, Json]:
    return {
        "id": portrait.id,
        "sha256": portrait.image.sha256,
        "attributes": dict(portrait.attributes),
        "label_origin": portrait.label_origin,
        "licence": portrait.licence,
        "block": portrait.block,
    }


def _portrait(entry: Mapping[str, Json], locate: Callable[[str], Path]) -> Portrait:
    return Portrait(
        id=entry["id"],
        image=ImageFile(path=locate(entry["sha256"]), sha256=entry["sha256"]),
        attributes=dict(entry["attributes"]),
        label_origin=entry["label_origin"],
        licence=entry["licence"],
        block=entry["block"],
    )


def _record(kind: type[T], entry: Mapping[str, Json], **parts: Callable[[Json], Any]) -> T:
    """A record of what this version knows; what a later one added is passed over, lists become tuples.

    `parts` make the fields that are records themselves.
    """
    known: dict[str, Any] = {}
    for name in [part.name for part in fields(kind) if part.name in entry]:  # pyright: ignore[reportArgumentType]
        value = entry[name]
        make = parts.get(name, tuple) if isinstance(value, list) or name in parts else None
        known[name] = make(value) if make and value is not None else value
    return kind(**known)
