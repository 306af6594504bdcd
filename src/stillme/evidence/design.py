"""An audit written down so that its numbers can be computed again without its plugins."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

from pydantic import BaseModel, ValidationError

from stillme.audit import Audit, NamedEditor, NamedJudge
from stillme.audit.config import Config
from stillme.errors import StillmeError
from stillme.estimates import Standing
from stillme.mitigation import NoFeaturePrompt
from stillme.protocols import Capabilities, JudgeCapabilities, Needs, Parameters
from stillme.types import Arm, Assessment, EditOutcome, Failed, ImageFile, Json, Pair, Portrait, Prompt, Request, Spec

REQUEST_COLUMNS = (
    *("editor", "key", "portraits", "prompt", "arm", "instruction", "seed"),
    *("attributes_matter", "content", "expected_place", "unasked"),
)


def describe(audit: Audit, standing: Standing) -> dict[str, Json]:
    """Everything of an audit that a number depends on, besides its requests and rows."""
    treatments = list(audit.treatments())
    prompts = {prompt.id: prompt for prompt in (*audit.prompts, *(prompt for _, prompt in treatments))}
    return {
        "resolved": dict(audit.resolved),
        # Where the files lay says nothing to anybody else.
        "config": audit.config.model_dump(mode="json") | {"base": None},
        "factors": list(audit.factors),
        "portraits": [_portrait_json(portrait) for portrait in audit.portraits],
        "prompts": [asdict(prompt) for prompt in prompts.values()],
        "asked": [prompt.id for prompt in audit.prompts],
        "treatments": [[str(arm), prompt.id] for arm, prompt in treatments],
        "editors": [
            {"name": named.name, "seeds": list(named.seeds), "spec": _spec_json(named.editor.spec)}
            for named in audit.editors
        ],
        "judges": [
            {
                "name": named.name,
                "epochs": named.epochs,
                "spec": _spec_json(named.judge.spec),
                "capabilities": asdict(named.judge.capabilities),
            }
            for named in audit.judges
        ],
        "standing": {judge: dict(axes) for judge, axes in standing.items()},
    }


def request_rows(audit: Audit) -> Iterator[dict[str, Json]]:
    """Every request of the audit, in its own order, with all that its key is made of; then those never made."""
    for named in audit.editors:
        for request in audit.requests(named):
            yield _request_json(audit, named, request, None)
        for request, lacking in audit.unasked(named):
            yield _request_json(audit, named, request, {"reason": lacking.reason, "retryable": lacking.retryable})


def _request_json(audit: Audit, named: NamedEditor, request: Request, unasked: Json) -> dict[str, Json]:
    return {
        "editor": named.name,
        "key": request.key,
        "portraits": [portrait.id for portrait in request.portraits],
        "prompt": request.prompt.id,
        "arm": str(request.arm),
        "instruction": request.instruction,
        "seed": request.seed,
        "attributes_matter": request.attributes_matter,
        "content": request.content,
        "expected_place": audit.expected_place(request),
        "unasked": unasked,
    }


@dataclass(frozen=True, kw_only=True)
class SealedAudit(Audit):
    """An audit from a bundle: its editors and judges are names, and its requests are read, not made."""

    listed: Path
    """The file of its requests."""
    pairs: tuple[tuple[Arm, Prompt], ...]
    recorded: Mapping[str, Json]

    @cached_property
    def resolved(self) -> Mapping[str, Json]:
        """As it was written down: some of it only plugins could say again."""
        return self.recorded

    def rows(self) -> Iterator[Mapping[str, Json]]:
        """The requests as they were written down."""
        with self.listed.open(encoding="utf-8") as stream:
            for line in stream:
                yield json.loads(line)

    def requests(self, named: NamedEditor) -> Iterator[Request]:
        """The listed requests to one editor."""
        return (self.request(named, row) for row in self.rows() if row["editor"] == named.name and not row["unasked"])

    def unasked(self, named: NamedEditor) -> Iterator[tuple[Request, NoFeaturePrompt]]:
        """The listed requests that were never made."""
        for row in self.rows():
            if row["editor"] == named.name and row["unasked"]:
                yield self.request(named, row), NoFeaturePrompt(**row["unasked"])

    def request(self, named: NamedEditor, row: Mapping[str, Json]) -> Request:
        """One request; its key is computed from what it says."""
        return Request(
            portraits=tuple(self._people[name] for name in row["portraits"]),
            prompt=self._by_id[row["prompt"]],
            arm=Arm(row["arm"]),
            instruction=row["instruction"],
            editor=named.editor.spec,
            seed=row["seed"],
            attributes_matter=row["attributes_matter"],
            content=row["content"],
        )

    def request_count(self, named: NamedEditor) -> int:
        """How many requests are listed."""
        return sum(row["editor"] == named.name for row in self.rows())

    def treatments(self) -> Iterator[tuple[Arm, Prompt]]:
        """As they were written down."""
        return iter(self.pairs)

    def expected_place(self, request: Request) -> int:
        """As it was written down."""
        return self._places.get(request.key, 0)

    @cached_property
    def _people(self) -> Mapping[str, Portrait]:
        return {portrait.id: portrait for portrait in self.portraits}

    @cached_property
    def _by_id(self) -> Mapping[str, Prompt]:
        return {prompt.id: prompt for prompt in (*self.prompts, *(prompt for _, prompt in self.pairs))}

    @cached_property
    def _places(self) -> Mapping[str, int]:
        return {row["key"]: row["expected_place"] for row in self.rows() if row["expected_place"]}


def restore(design: Mapping[str, Json], listed: Path) -> SealedAudit:
    """The audit that `describe` wrote down."""
    try:
        config = Config.model_validate(design["config"])
        prompts = {entry["id"]: Prompt(**entry) for entry in design["prompts"]}
        return SealedAudit(
            file=Path("audit.toml"),
            folder=listed.parent,
            config=config,
            portraits=tuple(_portrait(entry) for entry in design["portraits"]),
            prompts=tuple(prompts[name] for name in design["asked"]),
            editors=tuple(
                NamedEditor(name=entry["name"], editor=_Editor(Spec(**entry["spec"])), seeds=tuple(entry["seeds"]))
                for entry in design["editors"]
            ),
            judges=tuple(
                NamedJudge(name=entry["name"], judge=_Judge(entry), epochs=entry["epochs"])
                for entry in design["judges"]
            ),
            factors=tuple(design["factors"]),
            listed=listed,
            recorded=design["resolved"],
            pairs=tuple((Arm(arm), prompts[name]) for arm, name in design["treatments"]),
        )
    except (ValidationError, KeyError, TypeError, ValueError) as error:
        raise Unreadable(f"the design does not say what this stillme needs: {error}") from None


class Unreadable(StillmeError):
    """A bundle whose contents this stillme cannot make sense of."""


class _Editor:
    """Stands for an editor that need not be installed."""

    Parameters: ClassVar[type[BaseModel]] = Parameters
    needs: ClassVar[Needs] = Needs()

    def __init__(self, spec: Spec) -> None:
        self.spec = spec
        self.capabilities = Capabilities()

    def edit(self, requests: Sequence[Request]) -> Iterator[EditOutcome]:
        return (Failed(error="a bundle cannot edit", retryable=False) for _ in requests)

    def close(self) -> None:
        """Nothing is held."""


class _Judge:
    """Stands for a judge that need not be installed."""

    Parameters: ClassVar[type[BaseModel]] = Parameters
    needs: ClassVar[Needs] = Needs()

    def __init__(self, entry: Mapping[str, Json]) -> None:
        self.spec = Spec(**entry["spec"])
        known = {field.name for field in fields(JudgeCapabilities)}
        said: dict[str, Any] = {name: value for name, value in entry["capabilities"].items() if name in known}
        for name in ("axes", "partial"):
            said[name] = tuple(said.get(name, ()))
        self.capabilities = JudgeCapabilities(**said)

    def judge(self, pairs: Sequence[Pair]) -> Iterator[Assessment]:
        failed = Failed(error="a bundle cannot judge", retryable=False)
        return (Assessment(ratings=dict.fromkeys(self.capabilities.axes, failed)) for _ in pairs)

    def close(self) -> None:
        """Nothing is held."""


def _spec_json(spec: Spec) -> dict[str, Json]:
    return {"use": spec.use, "version": spec.version, "parameters": dict(spec.parameters)}


def _portrait_json(portrait: Portrait) -> dict[str, Json]:
    return {
        "id": portrait.id,
        "sha256": portrait.image.sha256,
        "attributes": dict(portrait.attributes),
        "label_origin": portrait.label_origin,
        "licence": portrait.licence,
        "block": portrait.block,
    }


def _portrait(entry: Mapping[str, Json]) -> Portrait:
    image = ImageFile(path=Path(entry["sha256"]), sha256=entry["sha256"])
    return Portrait(
        id=entry["id"],
        image=image,
        attributes=entry["attributes"],
        label_origin=entry["label_origin"],
        licence=entry["licence"],
        block=entry["block"],
    )
